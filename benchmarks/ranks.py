"""Processes that train one run together, against one process on the whole batch.

    python benchmarks/ranks.py [--combine sum pcgrad uncertainty] [--plan full split@3 pal:64]
        [--sampling method2 annealed] [--ranks 2 4] [--steps 30]

Trains the demo's tasks on MiniLM without dropout, and prints for every case how far the weights of
so many processes are from those of one, at most; then the same number of processes with dropout,
twice, whose weights must be the same bits. Ends with exit code 1 if one is further than 1e-5 away.

The biases of attention's keys add the same to every score of a row, so that their gradient is zero:
what Adam makes of its rounding is no part of the model, and is told apart.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from itertools import product
from pathlib import Path

import torch
from torch import distributed
from torch.distributed import FileStore
from torch.multiprocessing.spawn import spawn

from bough import demo
from bough.recipe.recipe import Recipe
from bough.training.train import train

NEAR = 1e-5
Case = tuple[str, str, str]


def recipe_of(case: Case, steps: int, dropout: float) -> Recipe:
    combine, plan, sampling = case
    key = "weighting" if combine == "uncertainty" else "combine"
    recipe = Recipe.read(demo.recipe(), [f"plan={plan}", f"training.{key}={combine}"])
    settings = {
        "sampling": sampling, "steps": steps, "epochs": None, "batch": 4, "dropout": dropout,
        "evaluate_rows": 4, "evaluate_every": steps, "heads": "fresh", "lr": 5e-5,
    }  # fmt: skip
    tasks = {
        name: task.model_copy(update={"dropout": dropout}) for name, task in recipe.tasks.items()
    }
    training = recipe.training.model_copy(update=settings)
    changed = {"tasks": tasks, "training": training, "precision": "fp32", "max_length": 48}
    return recipe.model_copy(update=changed)


def work(rank: int, count: int, folder: str, case: Case, steps: int, dropout: float) -> None:
    torch.set_num_threads(1)
    if count > 1:
        store = FileStore(f"{folder}/store", count)
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=count)
    train(recipe_of(case, steps, dropout), Path(folder) / "run")
    if count > 1:
        distributed.destroy_process_group()


def trained(case: Case, count: int, steps: int, dropout: float = 0.0) -> dict[str, torch.Tensor]:
    """The weights that so many processes end with."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(work, (count, folder, case, steps, dropout), nprocs=count)
        file = Path(folder) / "run" / "checkpoint" / "state.pt"
        return torch.load(file, weights_only=True)["stepper"]["network"]


def furthest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> tuple[float, float]:
    """The largest difference of any weight, and of any bias of a key."""
    most = keys = 0.0
    for name, tensor in one.items():
        apart = (tensor - other[name]).abs()
        if name.endswith("qkv.bias"):
            query, key, value = apart.chunk(3)
            keys = max(keys, float(key.max()))
            apart = torch.cat([query, value])
        most = max(most, float(apart.max()))
    return most, keys


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    combines, plans = ("sum", "pcgrad", "uncertainty"), ("full", "split@3", "pal:64")
    parser.add_argument("--combine", nargs="*", default=combines, choices=combines)
    parser.add_argument("--plan", nargs="*", default=plans)
    parser.add_argument("--sampling", nargs="*", default=("method2", "annealed"))
    parser.add_argument("--ranks", nargs="*", type=int, default=(2, 4))
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    far = False
    for case in product(args.combine, args.plan, args.sampling):
        one = trained(case, 1, args.steps)
        said = []
        for count in args.ranks:
            most, keys = furthest(one, trained(case, count, args.steps))
            far |= most > NEAR
            said.append(f"{count} ranks {most:.1e} (biases of keys {keys:.1e})")
        first, second = (trained(case, 2, args.steps, dropout=0.1) for _ in range(2))
        same = all(first[name].equal(second[name]) for name in first)
        far |= not same
        said.append(f"with dropout {'the same bits' if same else 'OTHER BITS'}")
        print(f"{' '.join(case):30}{'; '.join(said)}", flush=True)
    return int(far)


if __name__ == "__main__":
    sys.exit(main())
