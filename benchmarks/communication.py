"""What processes that train together tell each other: bytes of a step, counted and computed.

    python benchmarks/communication.py [--steps 3]

Trains the demo's tasks on MiniLM with two processes of this machine and prints, for some plans and
ways of combining gradients, the bytes of a step as the run counts them beside what docs/scale.md
computes, which must be the same; then the paper estimate for 8 and 64 GPUs.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import distributed
from torch.distributed import FileStore  # type: ignore[attr-defined]
from torch.multiprocessing.spawn import spawn

from bough import demo
from bough.data.dataset import Data
from bough.data.examples import Examples
from bough.data.tokens import Ints
from bough.distributed import Processes, joined
from bough.inference.torch_model import untrained_model
from bough.model.network import Network
from bough.recipe.recipe import Recipe
from bough.training.phase import Phase, PhaseSchedule, Progress

CASES = (
    ("full", "sum"),
    ("split@3", "sum"),
    ("full", "pcgrad"),
    ("split@3", "pcgrad"),
    ("pal:64", "pcgrad"),
)
WORDS = "words.weight"


def computed(network: Network, combine: str, words: dict[str, set[int]]) -> dict[str, int]:
    """The bytes of a step in which these words of each task occur anywhere."""
    users, owned = network.plan.users(), network.owned()
    keys = ["together"] if combine == "sum" else list(network.tasks)
    flags = numbers = rows = 0
    for key in keys:
        for cell, named in owned.items():
            if combine != "sum" and key not in users[cell]:
                continue
            for name, parameter in named:
                if not name.endswith(WORDS):
                    flags, numbers = flags + 1, numbers + parameter.numel()
                    continue
                met = set().union(*words.values()) if combine == "sum" else words[key]
                flags, rows = flags + len(parameter), rows + len(met) * parameter.shape[1]
    extra = len(network.tasks) + 1  # the losses, and the tokens
    return {"flags": flags, "gradients": 4 * numbers, "words": 4 * rows, "numbers": 4 * extra}


def words_of(examples: dict[str, Examples], drawn: Mapping[str, Ints]) -> dict[str, set[int]]:
    out = {}
    for task, numbers in drawn.items():
        source = examples[task]
        chosen = source.sequences.of(source.index[numbers].reshape(-1))
        out[task] = set(chosen.ids.tolist())
    return out


class Seen:
    """What was drawn for the last step."""

    def __init__(self, draw: Callable[[], Mapping[str, Ints]]):
        self.draw = draw
        self.drawn: Mapping[str, Ints] = {}

    def __call__(self) -> Mapping[str, Ints]:
        self.drawn = self.draw()
        return self.drawn


def steps_of(recipe: Recipe, processes: Processes, steps: int) -> list[tuple[int, dict[str, int]]]:
    """The bytes of some steps as they are counted, and as they are computed."""
    data = Data.gather(recipe)
    model, _ = untrained_model(recipe, data)
    examples = data.examples("train", model.tokenizer, model.longest)
    schedule = PhaseSchedule.of(recipe.training, None, examples)
    weights = recipe.task_weights()
    phase = Phase(schedule, Progress(), model.network, examples, weights, processes)
    phase.loader.draw = seen = Seen(phase.loader.draw)
    out = []
    for _ in range(steps):
        before = processes.exchanged
        phase.step()
        counted = processes.exchanged - before
        words = words_of(examples, seen.drawn)
        parts = computed(model.network, recipe.training.combine, words)
        assert counted == sum(parts.values()), (counted, parts)
        out.append((counted, parts))
    return out


def work(rank: int, folder: str, steps: int) -> None:
    torch.set_num_threads(1)
    store = FileStore(f"{folder}/store", 2)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    base = Recipe.read(demo.recipe())
    with joined() as processes:
        if processes.first:
            print(f"{'plan':10}{'combine':10}{'counted':>12}{'computed':>12}  of which")
        for plan, combine in CASES:
            recipe = Recipe.read(base, [f"plan={plan}", f"training.combine={combine}"])
            counted, parts = steps_of(recipe, processes, steps)[-1]
            if processes.first:
                shown = ", ".join(f"{name} {size:,}" for name, size in parts.items())
                print(f"{plan:10}{combine:10}{counted:12,}{sum(parts.values()):12,}  {shown}")
        if processes.first:
            recipe = Recipe.read(base, ["plan=full"])
            model, _ = untrained_model(recipe, Data.gather(recipe))
            estimate(model.network)
    distributed.destroy_process_group()


def estimate(network: Network) -> None:
    """On paper: a ring all-reduce moves 2 (n - 1) / n of the bytes through every link."""
    trunk = 12 * network.shape.layers * network.shape.width**2  # of MiniLM: 4 d^2 + 8 d^2 a layer
    tokens, speed = 96 * 40, 0.3 * 312e12  # of a GPU in a step; 30 % of an A100's bf16 products
    compute = 6 * trunk * tokens / speed
    words = 30_522 * 384 * 4  # at the most: every word of the vocabulary
    gradients = 4 * sum(p.numel() for n, p in network.named_parameters() if not n.endswith(WORDS))
    for tasks, combine in ((1, "sum"), (3, "pcgrad")):
        size = tasks * (gradients + words)
        print(f"\n{combine}: at most {size / 1e6:.0f} MB a step; computing {1e3 * compute:.1f} ms")
        for gpus, link in ((8, 200e9), (64, 25e9)):
            seconds = 2 * (gpus - 1) / gpus * size / link
            rate = gpus * tokens / (compute + seconds)
            share = compute / (compute + seconds)
            print(
                f"{gpus:3} GPUs, {link / 1e9:.0f} GB/s: exchange {1e3 * seconds:.1f} ms, "
                f"{rate / 1e6:.1f} million tokens/s, {share:.0%} of {gpus} times one GPU"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spawn(work, (str(Path(folder)), asked.steps), nprocs=2)
