"""Processes that train one run together, against one process on the whole batch.

    python benchmarks/ranks.py [--combine sum pcgrad uncertainty] [--plan full split@3 pal:64]
        [--sampling method2 annealed] [--ranks 2 4] [--steps 30]

Trains the demo's tasks on MiniLM without dropout, and prints for every case how far the weights of
so many processes are from those of one, at most; then, of the first cases, whether two processes
with dropout come to the same bits twice. Ends with exit code 1 if not, or if a weight is further
than 1e-5 away.

The biases of attention's keys add the same to every score of a row, so that their gradient is zero:
what Adam makes of its rounding is no part of the model, and is told apart.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import distributed
from torch.distributed import FileStore
from torch.multiprocessing.spawn import spawn

from bough import demo
from bough.recipe.recipe import Recipe
from bough.recipe.sources import Limit
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
        name: task.model_copy(update={"dropout": dropout, "limit": Limit(dev=8)})
        for name, task in recipe.tasks.items()
    }
    training = recipe.training.model_copy(update=settings)
    changed = {"tasks": tasks, "training": training, "precision": "fp32", "max_length": 48}
    return recipe.model_copy(update=changed)


def work(rank: int, count: int, folder: str, cases: list[Case], steps: int, dropout: float) -> None:
    """What each process does: all the cases, one after the other."""
    torch.set_num_threads(1)
    if count > 1:
        store = FileStore(f"{folder}/store", count)
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=count)
    for case in cases:
        run = train(recipe_of(case, steps, dropout), Path(folder) / " ".join(case))
        if rank == 0:
            state = torch.load(run.checkpoint, weights_only=True)["stepper"]["network"]
            shutil.rmtree(run.folder)
            parts = {name: tensor.clone() for name, tensor in state.items()}
            save_file(parts, run.folder.with_suffix(".safetensors"))
    if count > 1:
        distributed.destroy_process_group()


def trained(
    folder: Path, cases: list[Case], count: int, steps: int, dropout: float = 0.0
) -> Callable[[Case], dict[str, torch.Tensor]]:
    """The weights that so many processes end with, case by case."""
    folder.mkdir()
    spawn(work, (count, str(folder), cases, steps, dropout), nprocs=count)
    return lambda case: load_file((folder / " ".join(case)).with_suffix(".safetensors"))


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
    parser.add_argument("--dropout", type=int, default=1, help="cases that are tried with it")
    args = parser.parse_args()
    cases = list(product(args.combine, args.plan, args.sampling))
    far = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        one = trained(folder / "1", cases, 1, args.steps)
        for count in args.ranks:
            many = trained(folder / str(count), cases, count, args.steps)
            for case in cases:
                most, keys = furthest(one(case), many(case))
                far |= most > NEAR
                print(
                    f"{count} ranks  {' '.join(case):32}{most:.1e}  (biases of keys {keys:.1e})",
                    flush=True,
                )
        for case in cases[: args.dropout]:
            first, second = (
                trained(folder / f"{' '.join(case)} {turn}", [case], 2, args.steps, 0.1)(case)
                for turn in range(2)
            )
            same = all(first[name].equal(second[name]) for name in first)
            far |= not same
            bits = "the same bits" if same else "OTHER BITS"
            print(f"2 ranks  {' '.join(case):32}{bits} with dropout", flush=True)
    return int(far)


if __name__ == "__main__":
    sys.exit(main())
