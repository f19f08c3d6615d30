"""Write the demo's data: `python -m tools.demo_data` gives the same files byte for byte.

Every sentence was written for bough, by hand or by the grammar in `sources`. Dev shares no
sentence with train and draws on families, words and turns of phrase that train never shows.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from random import Random

from tools.demo_data import questions, sentiment, similarity
from tools.demo_data.grammar import SPLITS, Row, Split

SIZES: dict[Split, int] = {"train": 1000, "dev": 300}
Make = Callable[[Random, Split, int, set[str]], list[Row]]
TASKS: dict[str, tuple[tuple[str, ...], Make]] = {
    "sentiment": (sentiment.FIELDS, sentiment.rows),
    "questions": (questions.FIELDS, questions.rows),
    "similarity": (similarity.FIELDS, similarity.rows),
}


def write(to: Path) -> None:
    """Write the six files into this folder."""
    to.mkdir(parents=True, exist_ok=True)
    for task, (fields, make) in TASKS.items():
        seen: set[str] = set()  # what dev must not repeat
        for split in SPLITS:
            rng = Random(f"{task} {split}")
            rows = make(rng, split, SIZES[split], seen)
            rng.shuffle(rows)
            with (to / f"{task}-{split}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([fields, *rows])
