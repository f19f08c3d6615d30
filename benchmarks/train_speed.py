"""Training speed and memory against transformers, on the same examples in turn.

    python benchmarks/train_speed.py [--rounds 8] [--batch 32] [--dropout 0.1] [--encoder minilm]
                                     [--precision auto] [--fastest] [--json FILE]

Prints how many times as fast bough's training step is as a transformers loop: plain (rows in random
order, fp32), grouped by length, and grouped in bf16 by autocast, the fastest that it offers; the
share of the machine's matrix-product speed, in the precision of the step, that it reaches; and each
side's peak memory (measured in processes of their own). Texts are tokenised before the clock runs.

Both sides read [CLS]. So bough leaves out what nobody reads of the last layer, a seventh of all
products; the share counts them all the same, as the work that others do. The row "mean" is bough
where every token is read, as MiniLM's own pooling does, and all products are made.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

import peer
from bough.data.examples import Examples
from bough.data.loader import Loader
from bough.model.network import Network, plan_of
from bough.model.pretrained import load
from bough.native.precision import resolve
from bough.recipe.training import Training
from bough.runs.cost import peak_memory
from bough.training.step import Stepper

NUMBERS = {"fp32": torch.float32, "bf16": torch.bfloat16}
WARMUP = 2


def bough_stepper(
    tasks, examples, pretrained, dropout: float, plan: str = "full", precision: str = "fp32",
    **training,
) -> Stepper:  # fmt: skip
    network = Network.pretrained(plan_of(plan, tasks, pretrained.shape), tasks, pretrained, seed=0)
    network.narrow = NUMBERS[precision] if precision != "fp32" else None
    settings = Training(**{"lr": 2e-5, "dropout": dropout, "clip": None, **training})
    return Stepper(network, examples, settings, dict.fromkeys(tasks, 1.0), seed=[0])


class Steps:
    """Steps on given rows."""

    def __init__(self, stepper: Stepper, examples, batches):
        self.stepper = stepper
        self.batches = batches
        self.loader = Loader(examples, lambda: self.chosen)

    def __call__(self, i: int) -> None:
        self.chosen = self.batches[i]
        self.stepper.step(self.loader, self.stepper.training.lr)


def reading(tasks, pooling: str, dropout: float):
    return {
        n: t.model_copy(update={"pooling": pooling, "dropout": dropout}) for n, t in tasks.items()
    }


def setting(args) -> tuple:
    recipe = peer.real_or_embedded()
    tasks, train = peer.load_rows(recipe)
    # The peer reads the bare [CLS] state, so bough does here, too.
    tasks = reading(tasks, "cls", args.dropout)
    pretrained = load(args.encoder)
    examples = {
        n: Examples.of(tasks[n], rows, pretrained.tokenizer, 512) for n, rows in train.items()
    }
    return tasks, train, pretrained, examples


def forward_flops(lengths: np.ndarray, shape) -> float:
    """Matrix products of one forward over these lengths; training takes three times that."""
    d, inner = shape.width, shape.inner
    per_token = 2 * (4 * d * d + 2 * d * inner)
    return float(shape.layers * (lengths * per_token + 4 * lengths**2 * d).sum())


def memory_of(side: str, args) -> int:
    """Peak memory of a process that runs one side only."""
    command = [sys.executable, __file__, "--alone", side]
    for option in ("batch", "dropout", "encoder", "precision"):
        command += [f"--{option}", str(getattr(args, option))]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(out.split()[-1])


def alone(args) -> None:
    tasks, train, pretrained, examples = setting(args)
    batches = peer.draw(train, 6, args.batch, 0)
    before = peak_memory()
    if args.alone == "bough":
        stepper = bough_stepper(tasks, examples, pretrained, args.dropout, precision=args.precision)
        del pretrained  # as training does: the network has its own copy
        steps = Steps(stepper, examples, batches)
        for i in range(len(batches)):
            steps(i)
    elif args.alone == "transformers":
        hf = peer.Peer(args.encoder, tasks, args.dropout)
        for chosen in batches:
            hf.step(hf.prepared(train, chosen))
    print(before if args.alone == "nothing" else peak_memory())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--encoder", default="minilm", help="a folder, a hub id, or minilm")
    parser.add_argument("--precision", choices=["auto", *NUMBERS], default="auto", help="bough's")
    parser.add_argument("--fastest", action="store_true", help="only the fastest of each side")
    parser.add_argument("--json", help="a file for the ratios")
    parser.add_argument(
        "--alone", choices=["bough", "transformers", "nothing"], help=argparse.SUPPRESS
    )
    args = parser.parse_args()
    args.precision = resolve(args.precision, torch.device("cpu"))
    if args.alone:
        alone(args)
        return
    ratios = speeds(args)
    memory = {side: memory_of(side, args) for side in ("nothing", "transformers", "bough")}
    ratios["memory_ratio"] = memory["bough"] / memory["transformers"]
    print(
        f"\npeak memory: transformers {memory['transformers'] / 2**20:,.0f} MiB, "
        f"bough {memory['bough'] / 2**20:,.0f} MiB, ratio {ratios['memory_ratio']:.2f}"
        f" (of which libraries and data {memory['nothing'] / 2**20:,.0f} MiB)"
    )
    if args.json:
        Path(args.json).write_text(json.dumps(ratios, indent=1) + "\n", encoding="utf-8")


def speeds(args) -> dict[str, float]:
    """Every side's steps in turn, printed; bough's on plain batches against the others."""
    tasks, train, pretrained, examples = setting(args)
    steps = args.rounds + WARMUP
    plain, grouped = (peer.draw(train, steps, args.batch, group) for group in (0, 50))
    hf = peer.Peer(args.encoder, tasks, args.dropout)
    own = {
        precision: bough_stepper(tasks, examples, pretrained, args.dropout, precision=precision)
        for precision in dict.fromkeys((args.precision, "fp32"))
    }

    def tokens(batches):
        return [
            sum(int(examples[n].lengths[w].sum()) for n, w in chosen.items()) / 1000
            for chosen in batches
        ]

    padded, padded_grouped = ([hf.prepared(train, c) for c in some] for some in (plain, grouped))
    variants = {
        "transformers": lambda i: hf.step(padded[i]),
        "transformers, grouped": lambda i: hf.step(padded_grouped[i]),
        "transformers, grouped, bf16": lambda i: hf.step(padded_grouped[i], bf16=True),
    }
    for precision, stepper in own.items():
        variants[f"bough, {precision}"] = Steps(stepper, examples, plain)
        variants[f"bough, grouped, {precision}"] = Steps(stepper, examples, grouped)
    chosen = f"bough, {args.precision}"
    every_token = bough_stepper(
        reading(tasks, "mean", args.dropout), examples, pretrained, args.dropout,
        precision=args.precision,
    )  # fmt: skip
    variants[f"{chosen}, mean"] = Steps(every_token, examples, plain)
    bases = ["transformers", "transformers, grouped", "transformers, grouped, bf16"]
    if args.fastest:
        bases = bases[-1:]
        variants = {name: variants[name] for name in (*bases, chosen)}
    work = {name: tokens(grouped if "grouped" in name else plain) for name in variants}
    speed = {name: peer.matrix_speed(dtype) for name, dtype in NUMBERS.items()}
    times = peer.interleave(variants, work, args.rounds, WARMUP)
    speed = {name: max(speed[name], peer.matrix_speed(dtype)) for name, dtype in NUMBERS.items()}

    def share(name: str) -> float:
        """Of the speed of products in the step's precision."""
        batches = grouped if "grouped" in name else plain
        reached = []
        for i, seconds in enumerate(times[name], WARMUP):
            flops = 3 * sum(
                forward_flops(examples[n].lengths[w].astype(float), pretrained.shape)
                for n, w in batches[i].items()
            )
            reached.append(flops / (seconds * work[name][i]))
        return statistics.median(reached) / speed["bf16" if "bf16" in name else "fp32"]

    products = ", ".join(f"{name} {each / 1e9:.0f}" for name, each in speed.items())
    print(
        f"\nmatrix products, GFLOP/s: {products}; {args.rounds} rounds, batch {args.batch} of each "
        f"of {len(tasks)} tasks, dropout {args.dropout:g}\n"
    )
    against = ["x plain", "x grouped", "x grouped bf16"][-len(bases) :]
    heads = [*against, "tokens/s", "of products"]
    print(f"{'':28}" + "".join(f"{head:>15}" for head in heads))
    for name in variants:
        ratios = "".join(f"{peer.ratio(times, base, name):15.2f}" for base in bases)
        per_second = 1000 / statistics.median(times[name])
        print(f"{name:28}{ratios}{per_second:15,.0f}{share(name):15.0%}")
    found = {f"x_{base.replace(', ', '_')}": peer.ratio(times, base, chosen) for base in bases}
    return {**found, "of_product_speed": share(chosen)}


if __name__ == "__main__":
    main()
