"""Training speed and memory against plain transformers, on the same examples in turn.

    python benchmarks/train_speed.py [--rounds 8] [--batch 32] [--dropout 0.1]

Prints how many times as fast bough's training step is as a plain transformers loop (rows in random
order, and grouped by length), the share of the machine's matrix-product speed that it reaches, and
each side's peak memory (measured in processes of their own).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

import numpy as np

import peer
from bough.data.examples import Examples
from bough.data.loader import Loader
from bough.model.network import Network, plan_of
from bough.model.pretrained import load
from bough.recipe.training import Training
from bough.runs.cost import peak_memory
from bough.training.step import Stepper


def bough_stepper(
    tasks, examples, pretrained, dropout: float, plan: str = "full", **training
) -> Stepper:
    network = Network.pretrained(plan_of(plan, tasks, pretrained.shape), tasks, pretrained, seed=0)
    settings = Training(lr=2e-5, dropout=dropout, clip=None, **training)
    return Stepper(network, examples, settings, dict.fromkeys(tasks, 1.0), seed=[0])


def step(stepper: Stepper, examples, chosen, lr: float = 2e-5) -> None:
    stepper.step(Loader(examples, lambda: chosen), lr)


def setting(args) -> tuple:
    recipe = peer.real_or_embedded()
    tasks, train = peer.load_rows(recipe)
    # The peer reads the bare [CLS] state, so bough does here, too.
    tasks = {
        n: t.model_copy(update={"pooling": "cls", "dropout": args.dropout})
        for n, t in tasks.items()
    }
    pretrained = load("minilm")
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
    command = [
        sys.executable,
        __file__,
        "--alone",
        side,
        "--batch",
        str(args.batch),
        "--dropout",
        str(args.dropout),
    ]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(out.split()[-1])


def alone(args) -> None:
    tasks, train, pretrained, examples = setting(args)
    batches = peer.draw(train, 6, args.batch, 0)
    before = peak_memory()
    if args.alone == "bough":
        stepper = bough_stepper(tasks, examples, pretrained, args.dropout)
        del pretrained  # as training does: the network has its own copy
        for chosen in batches:
            step(stepper, examples, chosen)
    elif args.alone == "transformers":
        hf = peer.Peer("minilm", tasks, args.dropout)
        for chosen in batches:
            hf.step(train, chosen)
    print(before if args.alone == "nothing" else peak_memory())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument(
        "--alone", choices=["bough", "transformers", "nothing"], help=argparse.SUPPRESS
    )
    args = parser.parse_args()
    if args.alone:
        alone(args)
        return
    tasks, train, pretrained, examples = setting(args)
    steps = args.rounds + 2
    plain, grouped = (peer.draw(train, steps, args.batch, group) for group in (0, 50))
    hf = peer.Peer("minilm", tasks, args.dropout)
    stepper = bough_stepper(tasks, examples, pretrained, args.dropout)

    def tokens(batches):
        return [
            sum(int(examples[n].lengths[w].sum()) for n, w in chosen.items()) / 1000
            for chosen in batches
        ]

    variants = {
        "transformers": lambda i: hf.step(train, plain[i]),
        "transformers, grouped": lambda i: hf.step(train, grouped[i]),
        "bough": lambda i: step(stepper, examples, plain[i]),
        "bough, grouped": lambda i: step(stepper, examples, grouped[i]),
    }
    work = {name: tokens(grouped if "grouped" in name else plain) for name in variants}
    speed = peer.matrix_speed()
    times = peer.interleave(variants, work, args.rounds)
    speed = max(speed, peer.matrix_speed())
    print(
        f"\nmatrix products: {speed / 1e9:.0f} GFLOP/s; {args.rounds} rounds, "
        f"batch {args.batch} of each of {len(tasks)} tasks, dropout {args.dropout:g}\n"
    )
    print(f"{'':24}{'x transformers':>15}{'x grouped':>11}{'tokens/s':>10}{'of matrix speed':>17}")
    for name in variants:
        batches = grouped if "grouped" in name else plain
        shares = []
        for i, seconds in enumerate(times[name]):
            chosen = batches[i + 2]
            flops = 3 * sum(
                forward_flops(examples[n].lengths[w].astype(float), pretrained.shape)
                for n, w in chosen.items()
            )
            shares.append(flops / (seconds * work[name][i + 2]) / speed)
        per_second = 1000 / statistics.median(times[name])
        print(
            f"{name:24}{peer.ratio(times, 'transformers', name):15.2f}"
            f"{peer.ratio(times, 'transformers, grouped', name):11.2f}{per_second:10,.0f}"
            f"{statistics.median(shares):17.0%}"
        )
    memory = {side: memory_of(side, args) for side in ("nothing", "transformers", "bough")}
    print(
        f"\npeak memory: transformers {memory['transformers'] / 2**20:,.0f} MiB, "
        f"bough {memory['bough'] / 2**20:,.0f} MiB, "
        f"ratio {memory['bough'] / memory['transformers']:.2f}"
        f" (of which libraries and data {memory['nothing'] / 2**20:,.0f} MiB)"
    )


if __name__ == "__main__":
    main()
