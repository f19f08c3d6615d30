"""bough untouched against what people would use instead, on nine data sets at three sizes.

    python benchmarks/defaults.py [--peers PYTHON] [--sets sst,cola] [--sizes 64] [--threads 1]
    python benchmarks/defaults.py --ways bough --try training.lr=1e-4 --sizes 64
    python benchmarks/defaults.py --table
    python benchmarks/defaults.py --page docs/defaults.md

`bough` is what a newcomer does: `bough init train.csv`, which sets rows aside to judge by, and
`bough train`; peers learn from all the rows. `--try` is the same with settings of its own, one way
more. Everyone gets the same encoder (MiniLM), rows and minutes. PYTHON is that of an environment
for the peers (`benchmarks/peers/fine_tune.py` says how to make one). Minutes are of processor time,
shared out to the threads, so that other work on the machine changes nothing.

Cells run one after the other at the lowest priority; each is a line in benchmarks/defaults.jsonl as
soon as it is done, and what is there is not run again: stop it and start it whenever you like, on
any machine that has the data. A line holds no text and no label: only how the score hangs on each
row. Runs of bough are of the defaults at the time, which a line names; when they change, they are
run anew; so is a cell that failed. `--table` prints what is known, `--page` writes it into a page.

The table has, for each cell, the mean over seeds, and the interval of the best (over rows and
seeds, `bough.scoring.statistics`); bough is `best`, `within` that interval, or `below` it.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

import default_sets
from bough.data import split
from bough.formatting import number
from bough.model.pretrained import find
from bough.plan import pair_reading
from bough.recipe.recipe import MINILM
from bough.recipe.tasks import Task
from bough.recipe.training import Training
from bough.scoring import selection, statistics
from bough.scoring.pseudo_values import pseudo_values
from bough.training import head_fit, phase
from default_sets import SEEDS, SETS, SIZES

PEERS = ("vectors", "setfit", "trainer")
MINUTES = {"64": 2.0, "1000": 3.0, "all": 5.0}  # that a run may take
RESULTS = Path(__file__).with_suffix(".jsonl")
SLOWEST = 500  # tokens a second that one thread trains on, at least
TOKENS = 1.5  # of a word, with the marks around a text
FIRST, TIMED = 2, 20  # steps that are timed to see how many fit


# The keys that decide what bough does untouched. A new one that is off by default decides nothing.
DECIDING: dict[type[BaseModel], tuple[str, ...]] = {
    Training: (
        "batch", "lr", "sampling", "combine", "weighting", "warmup", "schedule", "decay", "dropout",
        "clip", "heads", "layer_decay", "head_lr", "select", "evaluate_every", "ema", "swa",
        "length_window",
    ),
    Task: ("pair", "features", "pooling", "head", "loss", "dropout", "norm", "project"),
}  # fmt: skip


def defaults() -> str:
    """A name for all that bough does untouched: a recipe's defaults, and what rows decide."""
    keys = [
        (key, model.model_fields[key].default) for model, own in DECIDING.items() for key in own
    ]
    by_rows = [phase.ENOUGH_STEPS, phase.FEWEST_EPOCHS, phase.MOST_EPOCHS, pair_reading.ENOUGH_ROWS]
    by_rows.append(selection.FEW_ROWS)
    fitted = [head_fit.MOST_ROWS, head_fit.STRENGTH]
    aside = [split.SHARE, split.LARGEST_SHARE, split.FEWEST, split.MOST]
    return hashlib.sha256(f"{keys} {by_rows} {fitted} {aside}".encode()).hexdigest()[:8]


DEFAULTS = defaults()


@dataclass(frozen=True)
class Cell:
    """One way on one data set at one size with one seed."""

    set: str
    size: str
    seed: int
    way: str

    @property
    def key(self) -> tuple[str, ...]:
        mark = DEFAULTS if self.way.startswith("bough") else ""
        return self.set, self.size, str(self.seed), self.way, mark


class Results:
    """The lines of a file; the last of a cell counts."""

    def __init__(self, file: Path):
        self.file = file
        lines = file.read_text().splitlines() if file.exists() else []
        self.entries = {tuple(entry["key"]): entry for entry in map(json.loads, lines)}

    def add(self, cell: Cell, result: dict[str, Any]) -> None:
        entry = {"key": list(cell.key), **result}
        self.entries[cell.key] = entry
        with self.file.open("a") as stream:
            stream.write(json.dumps(entry) + "\n")

    def ways(self, mark: str) -> dict[tuple[str, str], dict[str, list[dict[str, Any]]]]:
        """The results of these defaults: (set, size) -> way -> one entry per seed."""
        out: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = defaultdict(dict)
        for (name, size, _, way, own), entry in sorted(self.entries.items()):
            if own in ("", mark):
                out[name, size].setdefault(way, []).append(entry)
        return out


def cells(args: argparse.Namespace) -> Iterator[Cell]:
    """Cheap and telling ones first: few rows, then seeds, then sets."""
    ways = [way for way in args.ways.split(",") if way]
    if args.tried:
        ways.append(f"bough {' '.join(args.tried)}")
    for size in args.sizes.split(","):
        for seed in SEEDS[size]:
            for name in args.sets.split(","):
                for way in ways:
                    yield Cell(name, size, seed, way)


def run(cell: Cell, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    known = SETS[cell.set]
    rows, test = default_sets.rows_of(cell.set)
    train = default_sets.drawn(cell.set, rows, cell.size, cell.seed)
    default_sets.write(folder / "train.csv", train)
    default_sets.write(folder / "test.csv", test)
    began = spent()
    try:
        if cell.way.startswith("bough"):
            predicted = by_bough(cell, folder, train, args.threads)
        else:
            predicted = by_peer(cell, folder, args)
    except subprocess.CalledProcessError as error:
        text = (error.stderr or "").strip().splitlines()[-1:]
        return {"score": None, "error": " ".join(text) or str(error), "rows": len(train)}
    score, values = judged(known.metric, predicted, [label for _, label in test])
    seconds = round((spent() - began) / args.threads, 1)
    return {
        "score": round(score, 5), "rows": len(train), "seconds": seconds, "values": packed(values),
    }  # fmt: skip


def spent() -> float:
    """Seconds that processors worked for what was called so far; other processes do not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def packed(values: np.ndarray) -> str | list[float]:
    """How the score hangs on each row, in few bytes: right or wrong as 1 or 0."""
    if np.isin(values, (0, 1)).all():
        return "".join(map(str, values.astype(int)))
    return [round(float(value), 3) for value in values]


def unpacked(values: str | list[float]) -> np.ndarray:
    return np.array([*map(float, values)])


def by_bough(
    cell: Cell, folder: Path, train: Sequence[default_sets.Row], threads: int
) -> list[Any]:
    """`bough init` and `bough train`, judged on the test rows by its own table of answers."""
    bough = [sys.executable, "-m", "bough"]
    call([*bough, "init", "train.csv", "-o", "recipe.yaml"], folder)
    task = next(iter(recipe_tasks(folder)))
    settings = [f"tasks.{task}.test=test.csv", f"training.seed={cell.seed}"]
    settings += cell.way.split()[1:]

    def trained(run: str, *more: str) -> float:
        """Seconds that it took, as if nothing else ran."""
        command = [*bough, "train", "recipe.yaml", "-o", run, "--threads", str(threads)]
        command += [part for setting in (*settings, *more) for part in ("--set", setting)]
        began = spent()
        call(command, folder)
        return (spent() - began) / threads

    steps = steps_that_fit(
        train, MINUTES[cell.size], threads, lambda n: trained(f"pace{n}", f"training.steps={n}")
    )
    trained("run", *([f"training.steps={steps}"] if steps else []))
    with (folder / "run" / "predictions" / f"{task}-test.csv").open(newline="") as stream:
        answers = [row["predicted"] for row in csv.DictReader(stream)]
    return [float(a) for a in answers] if SETS[cell.set].regress else answers


def steps_that_fit(
    train: Sequence[default_sets.Row],
    minutes: float,
    threads: int,
    seconds_of: Callable[[int], float],
) -> int:
    """How many steps the minutes allow, if bough untouched would take more; else none. Where that
    is near, a few steps are timed, as the peers' are."""
    batch = Training().batch
    words = sum(len(text.split()) for texts, _ in train for text in texts)
    epoch = math.ceil(len(train) / batch)
    untouched = epoch * phase.epochs_by_rows(epoch)
    tokens = TOKENS * words / len(train) * batch * untouched
    if tokens < SLOWEST * threads * 60 * minutes:
        return 0
    few, more = seconds_of(FIRST), seconds_of(FIRST + TIMED)
    fit = FIRST + int((60 * minutes - few) * TIMED / max(more - few, 1e-3))
    return max(1, fit) if fit < untouched else 0


def recipe_tasks(folder: Path) -> dict[str, Any]:
    from bough.recipe.recipe import Recipe

    return Recipe.read(folder / "recipe.yaml").tasks


def by_peer(cell: Cell, folder: Path, args: argparse.Namespace) -> list[Any]:
    script = Path(__file__).parent / "peers" / "fine_tune.py"
    command = [
        str(args.peers), str(script), cell.way, "--encoder", str(find(MINILM)),
        "--train", "train.csv", "--test", "test.csv", "--out", "answers.json",
        "--seed", str(cell.seed), "--minutes", str(MINUTES[cell.size]),
        "--threads", str(args.threads),
    ]  # fmt: skip
    call([*command, *(["--regress"] if SETS[cell.set].regress else [])], folder)
    answers: list[Any] = json.loads((folder / "answers.json").read_text())["predictions"]
    return answers


def call(command: Sequence[str], folder: Path) -> None:
    lowest = {"preexec_fn": lambda: os.nice(19)} if os.name == "posix" else {}
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, **lowest)


def judged(metric: str, predicted: Sequence[Any], truth: Sequence[str]) -> tuple[float, np.ndarray]:
    """The score, and how it hangs on each row."""
    if metric == "pearson":
        return pseudo_values(metric, np.array(predicted, float), np.array(truth, float), 0)
    names = {name: i for i, name in enumerate(dict.fromkeys([*truth, *predicted]))}
    numbers = [np.array([names[name] for name in column]) for column in (predicted, truth)]
    return pseudo_values(metric, *numbers, len(names))


def compared(by_way: dict[str, list[dict[str, Any]]]) -> dict[str, np.ndarray]:
    """Each way's values, seed by seed; of bough and its peers the seeds that all of them have."""
    done = {
        way: {entry["key"][2]: entry["values"] for entry in entries if entry["score"] is not None}
        for way, entries in by_way.items()
    }
    rivals = [set(done[way]) for way in ("bough", *PEERS) if done.get(way)]
    common = set.intersection(*rivals) if rivals else set()
    tables = {}
    for way, by_seed in done.items():
        seeds = sorted(by_seed) if way not in ("bough", *PEERS) else sorted(common & set(by_seed))
        if seeds:
            tables[way] = np.stack([unpacked(by_seed[seed]) for seed in seeds])
    return tables


def table(results: Results, mark: str = DEFAULTS, tried: bool = True) -> str:
    """Each cell with its verdict; then how many are best or within, apart for the held-out sets."""
    lines: list[str] = []
    verdicts: dict[bool, list[str]] = {False: [], True: []}
    worst = (0.0, "")
    every = results.ways(mark)
    order = {name: i for i, name in enumerate(SETS)}
    ways = ["bough", *PEERS]
    ways += sorted({w for cell in every.values() for w in cell} - set(ways)) if tried else []
    lines.append("| set | rows | " + " | ".join(ways) + " | interval of the best | bough is |")
    lines.append("|---" * (len(ways) + 4) + "|")
    for (name, size), by_way in sorted(
        every.items(), key=lambda item: (SIZES.index(item[0][1]), order[item[0][0]])
    ):
        metric = SETS[name].metric
        failed = any(entry["score"] is None for entry in by_way.get("bough", []))
        tables = compared(by_way)
        means = {way: float(values.mean()) for way, values in tables.items()}
        rivals = {way: mean for way, mean in means.items() if way == "bough" or way in PEERS}
        shown = [
            f"{number(means[way])} ({len(tables[way])})" if way in means else "-" for way in ways
        ]
        verdict, interval = "-", "-"
        if failed:
            verdict = "failed"
            verdicts[SETS[name].held_out].append(verdict)
        elif rivals:
            best = max(rivals, key=lambda way: rivals[way])
            low, high = statistics.mean([tables[best]]).interval(metric)
            interval = f"{number(low)} to {number(high)}"
            if "bough" in rivals and len(rivals) > 1:
                mean = rivals["bough"]
                verdict = "best" if best == "bough" else "within" if mean >= low else "below"
                verdicts[SETS[name].held_out].append(verdict)
                worst = max(worst, (rivals[best] - mean, f"{name}, {size} rows"))
        rows = next(iter(by_way.values()))[0]["rows"]
        label = f"{name}{' (held out)' if SETS[name].held_out else ''}"
        cells = " | ".join(shown)
        lines.append(f"| {label} | {size} ({rows:,}) | {cells} | {interval} | {verdict} |")
    lines.append("")
    for held_out, said in verdicts.items():
        if said:
            good = sum(verdict in ("best", "within") for verdict in said)
            what = "held out" if held_out else "to choose by"
            of = f"{good} of {len(said)} cells"
            lines.append(f"{what}: best or within the best's interval in {of}  ")
    lines.append(f"worst: {worst[1] or 'none'}, {number(worst[0])} below the best")
    return "\n".join(lines)


BLOCK = re.compile(r"<!-- defaults (\w+) -->\n(.*?)\n<!-- end -->", re.DOTALL)


def written(page: str, results: Results) -> str:
    """The page with what is known of today's defaults in it."""
    block = f"<!-- defaults {DEFAULTS} -->\n\n{table(results, tried=False)}\n\n<!-- end -->"
    return BLOCK.sub(lambda _: block, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="the file of all that is known"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--peers", type=Path, help="python of the peers' environment")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--ways", default="bough,vectors,setfit,trainer")
    parser.add_argument("--try", dest="tried", action="append", metavar="KEY=VALUE")
    parser.add_argument("--cells", type=int, help="stop after so many")
    parser.add_argument("--table", action="store_true", help="only print what is known")
    parser.add_argument("--page", type=Path, help="only write what is known into this page")
    args = parser.parse_args()
    results = Results(args.results)
    if args.page is not None:
        args.page.write_text(written(args.page.read_text(), results))
        return
    # SetFit has no regression.
    wanted = [c for c in cells(args) if not (c.way == "setfit" and SETS[c.set].regress)]
    wanted = [c for c in wanted if results.entries.get(c.key, {}).get("score") is None]
    for cell in () if args.table else wanted[: args.cells]:
        if cell.way in PEERS and args.peers is None:
            parser.error(f"{cell.way} needs --peers PYTHON; see benchmarks/peers/fine_tune.py")
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "cell"  # which `bough init` names the task after
            folder.mkdir()
            results.add(cell, run(cell, folder, args))
        entry = results.entries[cell.key]
        said = entry.get("error") or f"{entry['score']:.3f} in {entry['seconds']:.0f} s"
        print(f"{cell.set} {cell.size} seed {cell.seed} {cell.way}: {said}", flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
