"""Three finished models become one: what `bough graft` loses and saves on real data, over seeds.

    BOUGH_DATA=path/to/cs224n python benchmarks/graft_models.py course -o DIR [--seeds 3]
                              [--threads 1] [--donors bough|transformers] [--plain]

`course` is SST, Quora and STS, `others` customer reviews, AG News and Banking77. For each seed a
MiniLM is fine-tuned on each set alone, by bough and written by `bough export` or by a plain loop of
transformers; all three are folders in transformers' format. `bough graft`, untouched, makes them
one, which is judged on rows that none has learned from. `--plain` trains the same model from the
labels alone, by as many steps.

Prints the sentence of each seed, and each task's difference over all seeds with the interval of
95 % over new seeds and rows. What is done is kept in DIR and not done again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

import default_sets
from bough.data.dataset import Data
from bough.formatting import number
from bough.graft.donors import donors
from bough.graft.judgement import both
from bough.model.pretrained import find
from bough.recipe.recipe import MINILM
from bough.runs.run_dir import Run
from bough.scoring import statistics
from default_sets import SETS, Row

TASKS = {"course": ("sst", "quora", "sts"), "others": ("reviews", "agnews", "banking")}
STEPS = {"sst": 800, "quora": 1500, "sts": 750, "reviews": 300, "agnews": 750, "banking": 1500}
BATCH, RATE = 32, 1e-4
MOST_TEST = 4000  # rows to be judged by: a loss of .01 on all seeds shows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", choices=list(TASKS))
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--donors", choices=["bough", "transformers"], default="bough")
    parser.add_argument("--plain", action="store_true", help="train from labels alone, too")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tasks = TASKS[args.sets]
    rows = {name: default_sets.rows_of(name, MOST_TEST) for name in tasks}
    for name, splits in rows.items():
        for split, some in zip(("train", "dev"), splits, strict=True):
            file = table(args.out, name, split)
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                default_sets.write(file, some)
    folders = []
    for seed in range(args.seeds):
        folder = args.out / args.donors / str(seed)
        for name in tasks:
            if not (folder / name / "config.json").is_file():
                began = time.monotonic()
                donor = by_bough if args.donors == "bough" else by_transformers
                donor(name, rows[name][0], folder, seed, args)
                print(f"seed {seed}, {name}: {time.monotonic() - began:.0f} s", flush=True)
        told = folder / "graft" / "graft.json"
        if not told.is_file():
            grafted(tasks, folder, seed, args)
        print(f"seed {seed}: {json.loads(told.read_text('utf-8'))['sentence']}", flush=True)
        if args.plain and not (folder / "plain" / "predictions").is_dir():
            untaught(folder, args.threads)
        folders.append(folder)
    report(tasks, folders, args)


def table(out: Path, name: str, split: str) -> Path:
    return out / "rows" / f"{name}-{split}.csv"


def files_of(out: Path, tasks: Sequence[str], split: str) -> dict[str, str]:
    return {name: str(table(out, name, split).absolute()) for name in tasks}


def bough(*command: str | Path, check: bool = True) -> None:
    """As a user calls it."""
    called = [sys.executable, "-m", "bough", *map(str, command)]
    done = subprocess.run(called, capture_output=True, text=True)
    if done.returncode and (check or done.returncode != 1):  # 1: grafted, but some task lost more
        sys.exit(f"{' '.join(called)}\n{done.stderr or done.stdout}")


def by_bough(
    name: str, train: Sequence[Row], folder: Path, seed: int, args: argparse.Namespace
) -> None:
    known, pair = SETS[name], len(train[0][0]) == 2
    task = {
        "kind": "regress" if known.regress else "classify",
        "text": ["text1", "text2"] if pair else "text", "label": "label",
        "train": str(table(args.out, name, "train").absolute()),
        "dev": str(table(args.out, name, "dev").absolute()),
        "pooling": "pooler",  # what transformers' own class reads
        **({"range": [0, 5]} if known.regress else {}), **({"pair": "joint"} if pair else {}),
    }  # fmt: skip
    training = {"steps": STEPS[name], "batch": BATCH, "lr": RATE, "seed": seed, "select": "last"}
    recipe = folder / f"{name}.json"
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.write_text(json.dumps({"tasks": {name: task}, "training": training}), encoding="utf-8")
    run = folder / f"{name}-run"
    bough("train", recipe, "-o", run, "--threads", str(args.threads))
    bough("export", run, "--transformers", folder / name, "--task", name)


def by_transformers(
    name: str, train: Sequence[Row], folder: Path, seed: int, args: argparse.Namespace
) -> None:
    """A loop as its guides have it: padded batches, AdamW, a rate that rises and falls."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers import get_linear_schedule_with_warmup as falling

    torch.manual_seed(seed)
    encoder, regress = str(find(MINILM)), SETS[name].regress
    classes = [] if regress else sorted({label for _, label in train})
    named = {"id2label": dict(enumerate(classes))} if classes else {"num_labels": 1}
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = AutoModelForSequenceClassification.from_pretrained(encoder, **named).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = falling(optimiser, STEPS[name] // 10, STEPS[name])
    order = np.random.default_rng(seed)
    for _ in range(STEPS[name]):
        chosen = [train[i] for i in order.choice(len(train), BATCH, replace=False)]
        columns = zip(*(texts for texts, _ in chosen), strict=True)
        inputs = tokenizer(
            *map(list, columns), padding=True, truncation=True, max_length=512, return_tensors="pt"
        )
        labels = [float(label) if regress else classes.index(label) for _, label in chosen]
        with torch.autocast("cpu", torch.bfloat16):
            model(**inputs, labels=torch.tensor(labels)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
    model.eval().save_pretrained(folder / name)
    tokenizer.save_pretrained(folder / name)


def grafted(tasks: Sequence[str], folder: Path, seed: int, args: argparse.Namespace) -> None:
    command: list[str | Path] = ["graft", *(folder / name for name in tasks)]
    for option, split in (("--texts", "train"), ("--held-out", "dev")):
        for name, file in files_of(args.out, tasks, split).items():
            command += [option, f"{name}={file}"]
    command += ["-o", folder / "graft", "--threads", str(args.threads)]
    bough(*command, "--set", f"training.seed={seed}", check=False)


def untaught(folder: Path, threads: int) -> None:
    """The first student's recipe without its teachers."""
    recipe = Run.open(folder / "graft" / "try-1").recipe()
    tasks = {name: task.model_copy(update={"teacher": ()}) for name, task in recipe.tasks.items()}
    training = recipe.training.model_copy(update={"distil": None})
    file = folder / "plain.yaml"
    plain = recipe.model_copy(update={"tasks": tasks, "training": training})
    file.write_text(plain.dump(), encoding="utf-8")
    bough("train", file, "-o", folder / "plain", "--threads", str(threads))


def report(tasks: Sequence[str], folders: Sequence[Path], args: argparse.Namespace) -> None:
    """Each task over all seeds: the teachers, the students, and what lies between."""
    graft = [json.loads((f / "graft" / "graft.json").read_text(encoding="utf-8")) for f in folders]
    plans = ", ".join(each["chosen"]["plan"] for each in graft)
    share = {
        key: max(each["chosen"]["price"][key] / each["before"][key] for each in graft)
        for key in ("bytes", "seconds")
    }
    print(
        f"\n{len(tasks)} models become one, of {share['bytes']:.0%} of their bytes and "
        f"{share['seconds']:.0%} of their time at most; plans: {plans}"
    )
    tables: dict[str, dict[str, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
    for folder, each in zip(folders, graft, strict=True):
        student = Run.open(each["chosen"]["run"])
        data = Data.gather(student.recipe(), ["dev"])
        models = [str(folder / name) for name in tasks]
        files = [files_of(args.out, tasks, split) for split in ("train", "dev")]
        for donor in donors(models, *files, folder / "graft" / "rows"):
            *_, base, mine = both(donor, student, data)
            tables[donor.name]["teachers"].append(base)
            tables[donor.name]["student"].append(mine)
            if args.plain:
                *_, mine = both(donor, Run.open(folder / "plain"), data)
                tables[donor.name]["labels alone"].append(mine)
    for name, by_side in tables.items():
        sides = {side: np.stack(some) for side, some in by_side.items()}
        means = ", ".join(f"{side} {number(float(some.mean()))}" for side, some in sides.items())
        print(f"{name}: {means}; the student's less the teachers' {apart(sides, 'teachers')}")
        if args.plain:
            print(f"{name}: the student's less that of labels alone {apart(sides, 'labels alone')}")


def apart(sides: Mapping[str, np.ndarray], base: str) -> str:
    seeds = range(len(sides[base]))
    found = statistics.difference([sides["student"]], seeds, [sides[base]], seeds)
    return f"{number(found.value, signed=True)} ± {number(found.half())}"


if __name__ == "__main__":
    main()
