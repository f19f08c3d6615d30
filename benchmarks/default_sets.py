"""The data sets that the defaults are measured on, and the rows of each cell.

SST, STS and Quora lie in the folder that BOUGH_DATA names, the others in its neighbour `extra`. A
cell is a data set at a size (64 rows of each class, 1,000 rows, all) drawn with a seed; whoever is
measured on it gets the same rows to learn from, and is judged on the same 1,000 others at most.
"""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MOST_TEST = 1000  # rows to be judged on: enough for a half-width of about .03
SIZES = ("64", "1000", "all")
SEEDS = {"64": (0, 1, 2), "1000": (0, 1, 2), "all": (0,)}
Row = tuple[tuple[str, ...], str]  # texts, label


@dataclass(frozen=True)
class DataSet:
    """Where a task's rows are, and what they are judged by."""

    train: str
    test: str
    text: tuple[str, ...]
    label: str
    metric: str = "accuracy"
    held_out: bool = False  # not looked at while the defaults were chosen

    @property
    def regress(self) -> bool:
        return self.metric == "pearson"


SETS = {
    "sst": DataSet("ids-sst-train.csv", "ids-sst-dev.csv", ("sentence",), "sentiment"),
    "cola": DataSet("cola_train.tsv", "cola_dev.tsv", ("sentence",), "label"),
    "agnews": DataSet("agnews_dev.tsv", "agnews_test.tsv", ("text",), "label"),
    "banking": DataSet("banking77_train.tsv", "banking77_test.tsv", ("text",), "category"),
    "rte": DataSet("rte_train.tsv", "rte_dev.tsv", ("sentence1", "sentence2"), "label"),
    "sts": DataSet(
        "sts-train.csv", "sts-dev.csv", ("sentence1", "sentence2"), "similarity", "pearson"
    ),
    "sick": DataSet("sick_train.tsv", "sick_dev.tsv", ("sentence1", "sentence2"), "entailment"),
    "reviews": DataSet("custrev_all.tsv", "", ("sentence",), "label", held_out=True),
    "quora": DataSet(
        "quora-train.csv",
        "quora-dev.csv",
        ("sentence1", "sentence2"),
        "is_duplicate",
        held_out=True,
    ),
}


def rows_of(name: str, most: int = MOST_TEST) -> tuple[list[Row], list[Row]]:
    """Rows to learn from and to be judged by; without a test file a third is for the latter."""
    known = SETS[name]
    train = _read(known, known.train)
    if known.test:
        return train, _drawn(_read(known, known.test), most, 0)
    order = np.random.default_rng(0).permutation(len(train))
    cut = min(len(train) // 3, most)
    return [train[i] for i in order[cut:]], [train[i] for i in order[:cut]]


def drawn(name: str, rows: Sequence[Row], size: str, seed: int) -> list[Row]:
    """The rows of a cell: so many of each class (of a number, of each whole grade)."""
    if size == "all":
        return list(rows)
    if size != "64":
        return _drawn(rows, int(size), seed + 1)
    classes: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        classes[str(round(float(row[1]))) if SETS[name].regress else row[1]].append(row)
    return [row for kind in sorted(classes) for row in _drawn(classes[kind], int(size), seed + 1)]


def write(file: Path, rows: Sequence[Row]) -> None:
    """As a CSV file with the columns text (or text1, text2) and label."""
    pair = len(rows[0][0]) == 2
    with file.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow([*(["text1", "text2"] if pair else ["text"]), "label"])
        table.writerows([*texts, label] for texts, label in rows)


def _read(known: DataSet, name: str) -> list[Row]:
    data = Path(os.environ["BOUGH_DATA"])
    file = data / name if (data / name).is_file() else data.parent / "extra" / name
    with file.open(newline="", encoding="utf-8") as stream:
        quoting = csv.QUOTE_NONE if file.suffix == ".tsv" else csv.QUOTE_MINIMAL
        rows = csv.DictReader(stream, delimiter="\t", quoting=quoting)
        # Numbers that stand for classes get a word, so that nobody takes them for grades.
        word = "" if known.regress else "class "
        return [
            (tuple(row[column].strip() for column in known.text), word + row[known.label])
            for row in rows
            if all((row.get(column) or "").strip() for column in (*known.text, known.label))
        ]


def _drawn(rows: Sequence[Row], most: int, seed: int) -> list[Row]:
    order = np.random.default_rng(seed).permutation(len(rows))[:most]
    return [rows[i] for i in sorted(order)]
