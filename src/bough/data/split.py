"""Rows set aside to judge by, chosen by a hash of their texts: always the same, whatever the order.

A tenth of the rows, within bounds; no text is on both sides. The labels of several tasks on one
table stay in one table.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bough.data.checked_rows import Rows
from bough.data.label_cells import label_cells
from bough.errors import UserError
from bough.files import csv_writer
from bough.recipe.tasks import Task

SHARE = 0.1  # of the rows, set aside for dev
FEWEST, MOST = 100, 2000  # dev rows, as far as there are rows
LARGEST_SHARE = 0.2  # of few rows: what is learned from more of them is worth more than the judging
NEEDED = 10  # rows, below which there is nothing to split


def split_off(
    rows: Rows, stratum: Callable[[Any], Hashable], shared: int | None = None
) -> tuple[list[int], list[int]]:
    """Numbers of the rows to learn from and to judge by, both in the file's order.

    Each stratum of labels gives its share; equal texts, and pairs turned round, stay together.
    Where several tasks are on one file (`shared` is its rows), each text decides for itself, so
    that none learns from a text that another is judged by, whichever labels are missing.
    """
    if len(rows) < NEEDED:
        raise UserError(
            f"{rows.source} has {len(rows)} usable rows, too few to set some aside for dev; "
            "give a dev file, too"
        )
    assert rows.labels is not None
    together: dict[tuple[str, ...], list[int]] = {}
    for number, texts in enumerate(rows.texts):
        together.setdefault(tuple(sorted(texts)), []).append(number)  # a pair may be turned round
    groups: dict[Hashable, list[tuple[str, ...]]] = {}
    for texts, numbers in together.items():
        groups.setdefault(stratum(rows.labels[numbers[0]]), []).append(texts)
    size = shared or len(rows)
    wanted = min(max(SHARE * size, min(FEWEST, LARGEST_SHARE * size)), MOST) / size
    chosen: set[int] = set()
    for members in groups.values():
        members.sort(key=_hash)
        most = min(max(round(wanted * len(members)), int(len(members) >= 5)), len(members) - 1)
        if shared:
            most = sum(int.from_bytes(_hash(texts)[:8]) < wanted * 2**64 for texts in members)
        chosen.update(number for texts in members[:most] for number in together[texts])
    if not chosen:
        alike = len(together) < NEEDED
        why = (
            "nearly all rows have the same text" if alike else "nearly every row has its own class"
        )
        raise UserError(
            f"{rows.source}: {why}, so none can be set aside for dev; give a dev file, too"
        )
    return [n for n in range(len(rows)) if n not in chosen], sorted(chosen)


def _hash(texts: tuple[str, ...]) -> bytes:
    return hashlib.sha256("\0".join(texts).encode()).digest()


@dataclass(frozen=True)
class Whole:
    """The rows of one table that any of its tasks has a label for, in the file's order."""

    rows: Rows  # the labels are the first task's that has one
    texts: tuple[str, ...]  # names of the columns
    labels: tuple[str, ...]
    cells: Mapping[int, Mapping[str, str]]  # line -> column of a label -> what is in it

    def csv(self, numbers: Sequence[int]) -> str:
        """These rows as CSV, with the id or line they had in the file they are from."""
        text = io.StringIO(newline="")
        table = csv_writer(text)
        with_id = "id" not in (*self.texts, *self.labels)
        table.writerow([*["id"] * with_id, *self.texts, *self.labels])
        for n in numbers:
            cells = self.cells[self.rows.lines[n]]
            written = [cells.get(label, "") for label in self.labels]
            table.writerow([*[self.rows.ids[n]] * with_id, *self.rows.texts[n], *written])
        return text.getvalue()


def joined(tasks: Mapping[str, Task], rows: Mapping[str, Rows]) -> Whole:
    """The rows of several tasks on one table, together."""
    cells: dict[int, dict[str, str]] = {}
    first: dict[int, tuple[tuple[str, ...], Any, str]] = {}  # of each line: texts, label, id
    for name, part in rows.items():
        written = label_cells(tasks[name]).written
        each = zip(part.lines, part.texts, part.labels or (), part.ids, strict=True)
        for line, texts, label, number in each:
            cells.setdefault(line, {})[tasks[name].label_columns[0]] = written(label)
            first.setdefault(line, (texts, label, number))
    lines = sorted(first)
    whole = replace(
        next(iter(rows.values())),
        texts=[first[line][0] for line in lines],
        labels=[first[line][1] for line in lines],
        ids=[first[line][2] for line in lines],
        lines=lines,
    )
    labels = tuple(task.label_columns[0] for task in tasks.values())
    return Whole(whole, next(iter(tasks.values())).columns, labels, cells)
