"""What a training step costs when one table has the labels of two tasks, in turn with one task.

    python benchmarks/one_table.py DIR [--rounds 8]

DIR has `sick_train.tsv` with the columns sentence1, sentence2, relatedness and entailment. Prints
the time of a step on both tasks relative to a step on one of them, over the same 32 rows, with the
tasks' losses summed and with PCGrad; and of steps on two tables of the same rows, which walk
through every text twice. Whole steps, packing included; the median over all batches and rounds, of
the clock and of the processor's time, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from bough.data.checked_rows import load
from bough.data.examples import Examples, examples_of
from bough.data.loader import Loader, row_groups
from bough.model import pretrained
from bough.model.network import Network, plan_of
from bough.recipe.tasks import Task
from bough.recipe.training import Training
from bough.training.step import Stepper

BATCH = 32


def stepper(tasks, examples, encoder, combine: str = "sum") -> Stepper:
    network = Network.pretrained(plan_of("full", tasks, encoder.shape), tasks, encoder, 0)
    training = Training(combine=combine, lr=1e-5)
    return Stepper(network, examples, training, dict.fromkeys(tasks, 1.0), [0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    encoder = pretrained.load("minilm")
    table = {"text": ("sentence1", "sentence2"), "train": "sick_train.tsv", "limit": {"train": 512}}
    drafts = {
        "relatedness": Task(kind="regress", label="relatedness", range=(1, 5), **table),
        "entailment": Task(kind="classify", label="entailment", **table),
    }
    tasks, rows = {}, {}
    for name, task in drafts.items():
        tasks[name], splits = load(name, task, root=args.folder, policy="error", splits=["train"])
        rows[name] = splits["train"]
    tasks = encoder.pooling.resolve(tasks)
    both = examples_of(tasks, rows, encoder.tokenizer, 128)
    apart = {n: Examples.of(tasks[n], rows[n], encoder.tokenizer, 128) for n in tasks}
    one = {"relatedness": both["relatedness"]}
    alone = {"relatedness": tasks["relatedness"]}
    order = np.random.default_rng(0).permutation(len(rows["relatedness"]))
    batches = [order[i * BATCH : (i + 1) * BATCH] for i in range(4)]
    cases = {
        "one task": (stepper(alone, one, encoder), one),
        "two tasks, one table": (stepper(tasks, both, encoder), both),
        "two tasks, one table, pcgrad": (stepper(tasks, both, encoder, "pcgrad"), both),
        "two tasks, two tables": (stepper(tasks, apart, encoder), apart),
        "two tasks, two tables, pcgrad": (stepper(tasks, apart, encoder, "pcgrad"), apart),
    }
    clock: dict[str, list[float]] = {name: [] for name in cases}
    processor: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(args.rounds + 1):  # the first is not counted
        for batch in batches:
            for name, (own, examples) in cases.items():
                chosen = dict.fromkeys(row_groups(examples), batch)
                loader = Loader(examples, lambda chosen=chosen: chosen)
                began = time.perf_counter(), time.process_time()
                own.step(loader, 1e-5)
                if turn:
                    clock[name].append(time.perf_counter() - began[0])
                    processor[name].append(time.process_time() - began[1])
    for name in cases:
        ratios = [
            statistics.median(t / b for t, b in zip(times[name], times["one task"], strict=True))
            for times in (clock, processor)
        ]
        milliseconds = statistics.median(clock[name]) * 1e3
        told = "{:.2f} of one task by the clock, {:.2f} by the processor's time".format(*ratios)
        print(f"{name:32} {milliseconds:7.1f} ms   {told}", flush=True)


if __name__ == "__main__":
    main()
