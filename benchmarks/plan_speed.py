"""What a plan costs in time: training steps and answers under different plans, in turn.

    python benchmarks/plan_speed.py [--rounds 6] [--precision auto]

Prints step times relative to `full` on the same batch (split@3, separate, pal:64, PCGrad, 32
tasks), how much faster all three tasks are answered under `full` than by three models, and how much
faster an epoch of a frozen probe is on kept states. Steps are counted after 30 of each, since the
kernels of a number of rows are made when it comes up first.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

import peer
from bough.data.examples import Examples
from bough.data.packing import collate
from bough.inference.precision.answering_layer import answer_in
from bough.model.network import Network, plan_of
from bough.native.precision import resolve
from bough.training.states.frozen_states import States
from bough.training.step import Stepper
from train_speed import NUMBERS, Steps, bough_stepper, setting

WARMUP = 30


def median_ratio(times: dict[str, list[float]], name: str, base: str) -> float:
    return statistics.median(t / b for t, b in zip(times[name], times[base], strict=True))


def many_tasks(tasks, examples, chosen, count: int):
    """The same examples dealt to `count` tasks: copies of the three, each with a share of them."""
    kinds = list(tasks)
    names = [f"{kinds[i % 3]}{i // 3}" for i in range(count)]
    shares = {kind: [n for n in names if n.startswith(kind)] for kind in kinds}
    new_tasks = {name: tasks[kind] for kind in kinds for name in shares[kind]}
    # A table for each: the tasks of one table would be drawn together.
    new_examples = {
        name: replace(examples[kind], sequences=copy(examples[kind].sequences))
        for kind in kinds
        for name in shares[kind]
    }
    parts = [
        {
            name: part
            for kind in kinds
            for name, part in zip(
                shares[kind], np.array_split(batch[kind], len(shares[kind])), strict=True
            )
            if len(part)
        }
        for batch in chosen
    ]
    return new_tasks, new_examples, parts


def training(args, tasks, examples, pretrained, batches) -> None:
    made = partial(bough_stepper, tasks, examples, pretrained, 0.1, precision=args.precision)
    plans = ("full", "split@3", "separate", "pal:64", "lora:8")
    steppers: dict[str, Stepper] = {plan: made(plan=plan) for plan in plans}
    steppers["full, pcgrad"] = made(combine="pcgrad")
    variants = {name: Steps(one, examples, batches) for name, one in steppers.items()}
    more, more_examples, parts = many_tasks(tasks, examples, batches, 32)
    thirty_two = bough_stepper(more, more_examples, pretrained, 0.1, precision=args.precision)
    variants["full, 32 tasks"] = Steps(thirty_two, more_examples, parts)
    ones = {name: [1.0] * len(batches) for name in variants}
    times = peer.interleave(variants, ones, args.rounds, WARMUP)
    print("\ntraining step, times that of `full` on the same batch")
    for name in variants:
        print(f"  {name:16}{median_ratio(times, name, 'full'):6.2f}")


def answering(args, tasks, examples, pretrained) -> None:
    """All tasks on the same sequences: pairs of STS, which every task is asked about."""
    joint = dict.fromkeys(tasks, tasks["sts" if "sts" in tasks else "similarity"])
    pairs = examples["sts" if "sts" in tasks else "similarity"]
    batch = collate({"x": pairs}, {"x": np.arange(256)})
    sequence_index = dict.fromkeys(joint, batch.index["x"])

    def network(plan: str, names) -> Network:
        chosen = {n: joint[n] for n in names}
        made = Network.pretrained(plan_of(plan, chosen, pretrained.shape), chosen, pretrained, 0)
        answer_in(made, args.precision, torch.device("cpu"))
        return made

    together = {plan: network(plan, joint) for plan in ("full", "split@3", "separate")}
    alone = {name: network("full", [name]) for name in joint}

    @torch.inference_mode()
    def three(i: int) -> None:
        for name, model in alone.items():
            model(batch.pack, {name: sequence_index[name]})

    @torch.inference_mode()
    def one(model: Network) -> None:
        model(batch.pack, sequence_index)

    variants = {"three models": three} | {p: (lambda i, m=m: one(m)) for p, m in together.items()}
    ones = {name: [1.0] * (args.rounds + 2) for name in variants}
    times = peer.interleave(variants, ones, args.rounds)
    print("\nall three tasks answered, times as fast as three models of bough's own")
    for name in variants:
        print(f"  {name:16}{peer.ratio(times, 'three models', name):6.2f}")


def kept_states(args, tasks, examples, pretrained) -> None:
    """An epoch of a frozen probe over 1,000 rows of each task, with and without kept states."""
    few = {
        n: Examples(e.sequences, e.index[:1000], e.targets[:1000], 0) for n, e in examples.items()
    }
    made = partial(bough_stepper, plan="frozen", precision=args.precision, lr=1e-3)
    plain = made(tasks, few, pretrained, 0.1)
    with tempfile.TemporaryDirectory() as folder:
        states = States(plain.network, Path(folder))
        kept = {n: states.of(n, e) for n, e in few.items()}
    probe = made(tasks, kept, pretrained, 0.1)
    order = np.random.default_rng(0).permutation(1000)
    epoch = [dict.fromkeys(few, order[i : i + 32]) for i in range(0, 1000, 32)]

    sides = {"without": Steps(plain, few, epoch), "kept": Steps(probe, kept, epoch)}

    def run(side: str) -> None:
        for i in range(len(epoch)):
            sides[side](i)

    variants = {side: (lambda i, side=side: run(side)) for side in sides}
    times = peer.interleave(variants, {n: [1.0] * 4 for n in variants}, rounds=2, warmup=1)
    faster = peer.ratio(times, "without", "kept")
    print(f"\nepoch of a frozen probe on kept states: {faster:.0f} x as fast")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--encoder", default="minilm", help="a folder, a hub id, or minilm")
    parser.add_argument("--precision", choices=["auto", *NUMBERS], default="auto")
    args = parser.parse_args()
    args.precision = resolve(args.precision, torch.device("cpu"))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    tasks, train, pretrained, examples = setting(args)
    batches = peer.draw(train, args.rounds + WARMUP, args.batch, 0)
    answering(args, tasks, examples, pretrained)
    kept_states(args, tasks, examples, pretrained)
    training(args, tasks, examples, pretrained, batches)


if __name__ == "__main__":
    main()
