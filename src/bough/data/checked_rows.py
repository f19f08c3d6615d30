"""A table and a task become checked splits, texts and labels, and tokens where they are asked for.

Every bad row is known by file, line, column and value. The recipe's `rows` says what happens to it:
`error` stops with the first and counts the rest, `skip` leaves them out and names them.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bough.data.label_cells import NO_CLASS
from bough.data.prepared.columns import Column, Ints
from bough.data.prepared.part import GOOD, UNLABELLED, Faults, Reading, Use, hashes
from bough.data.prepared.streams import Stream, stream
from bough.data.prepared.table import PreparedTable, prepare
from bough.data.prepared.task_tables import TaskTables, wanted_by
from bough.data.tables import Skipped, Table
from bough.errors import UserError, listed, nearest
from bough.recipe.sources import Source
from bough.recipe.tasks import SPLITS, Split, Task

Policy = Literal["error", "skip"]
USES: dict[Split, Use] = {"train": "needed", "dev": "needed", "test": "optional"}
# Rows whose label is no class, and their share of all, from which on it is no slip of the pen.
MISNAMED, MISNAMED_SHARE = 10, 0.1
SET_ASIDE = "; `bough init FILE` sets some of a file's rows aside for it"
MANY = 500_000  # rows, of which not every text is looked at again to know them


@dataclass(frozen=True)
class WaysOut:
    """What a message on bad rows advises: that depends on who reads them, and what for."""

    skip: str = "set `rows: skip` to go on without"
    classes: str = "the train rows"  # what knows the classes that labels are held against


FROM_A_RECIPE = WaysOut()


class MissingColumnError(UserError):
    """A table has not the column that a task names."""

    def __init__(self, sentence: str, column: str):
        super().__init__(sentence)
        self.column = column


@dataclass(frozen=True)
class Rows:
    """One split of a task: what is read, what is right, and where each row was found."""

    texts: Sequence[tuple[str, ...]]
    labels: Sequence[Any] | None  # as `label_cells` reads them; None where there are none
    ids: Sequence[str]  # the column `id`, else the line
    source: str
    lines: Sequence[int]
    skipped: tuple[Skipped, ...] = ()  # the first of them
    notes: tuple[str, ...] = ()  # what was assumed about the file
    unit: str = "line"  # what `lines` counts: lines of a file or rows of a set
    unused: int = 0  # good rows that a limit leaves out
    gaps: int = 0  # good rows whose label cell is empty: nothing is learned from them
    left_out: int = 0  # rows that cannot be used
    # The table that they are of, and which of its rows they are; None is all.
    table: PreparedTable | None = field(default=None, compare=False, repr=False)
    numbers: Ints | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def hashes(self) -> NDArray[np.uint64]:
        """Of each row's texts."""
        if self.table is None:
            return hashes(self.texts)
        return self.table.hashes if self.numbers is None else self.table.hashes[self.numbers]

    @cached_property
    def turned(self) -> NDArray[np.uint64]:
        """The same of pairs with their texts swapped; none of single texts."""
        if self.table is None:
            return hashes([texts[::-1] for texts in self.texts if len(texts) == 2])
        every = self.table.turned
        return every[self.numbers] if len(every) and self.numbers is not None else every

    @cached_property
    def repeated(self) -> int:
        """Rows whose texts another row had before."""
        ordered = np.sort(self.hashes)  # a tenth of the time that np.unique takes
        return int((ordered[1:] == ordered[:-1]).sum())

    def chosen(self, numbers: Ints) -> Rows:
        """These rows alone."""

        def some(column: Sequence[Any]) -> Sequence[Any]:
            if isinstance(column, Column):
                return column.chosen(numbers)
            return [column[n] for n in numbers]

        before = np.arange(len(self)) if self.numbers is None else self.numbers
        return replace(
            self,
            texts=some(self.texts),
            labels=None if self.labels is None else some(self.labels),
            ids=some(self.ids),
            lines=some(self.lines),
            numbers=before[numbers],
        )

    def report(self, most: int = 5) -> str:
        """One sentence on what was skipped, or nothing."""
        if not self.skipped:
            return ""
        first = "; ".join(named(row, self.unit) for row in self.skipped[:most])
        more = f"; and {self.left_out - most:,} more" if self.left_out > most else ""
        total = self.left_out + len(self) + self.unused + self.gaps
        return f"{self.source}: skipped {self.left_out:,} of {total:,} rows: {first}{more}"


def load(
    name: str,
    task: Task,
    *,
    root: Path,
    policy: Policy,
    splits: Sequence[Split] | None = None,
    gaps: bool = False,
    tables: TaskTables | None = None,
) -> tuple[Task, dict[Split, Rows]]:
    """The task with its classes known, and the splits asked for; left open, all that it has.

    With `gaps` label cells may be empty, as others' labels are in the table, too; `tables` are
    those of all these tasks.
    """
    check_splits(name, task, splits)
    asked = [split for split in SPLITS if getattr(task, split) is not None]
    if splits is not None:
        asked = [split for split in asked if split in splits]
    tables = tables or TaskTables({name: task}, root, asked, {name} if gaps else ())
    ways = WaysOut(classes=f"tasks.{name}.labels of the recipe") if task.labels else FROM_A_RECIPE
    task = tables.settled(name)
    return task, {
        split: limited(
            rows_of(name, tables.table(name, split), policy, USES[split], ways=ways),
            getattr(task.limit, split),
        )
        for split in asked
    }


def check_splits(name: str, task: Task, splits: Sequence[Split] | None = None) -> None:
    """Refuse a task without the splits asked for; left open, those that training needs."""
    for split in ("train", "dev") if splits is None else splits:
        if getattr(task, split) is None:
            raise UserError(
                f"task {name!r} has no {split} rows; set tasks.{name}.{split} to a file, a hub set "
                f"or a list of rows{SET_ASIDE if split == 'dev' else ''}"
            )


def limited(rows: Rows, most: int | None) -> Rows:
    """So many of the rows: of the same file always the same, in their order.

    A higher limit adds rows to those of a lower one.
    """
    if most is None or most >= len(rows):
        return rows
    kept = sorted(random.Random(0).sample(range(len(rows)), len(rows))[:most])
    return replace(rows.chosen(np.array(kept, np.int64)), unused=len(rows) - most)


def read(
    name: str,
    task: Task,
    source: Source,
    *,
    root: Path,
    policy: Policy,
    labels: Use = "optional",
    gaps: bool = False,
    ways: WaysOut = FROM_A_RECIPE,
) -> Rows:
    """Rows from anywhere for a task whose classes are known, as `predict` and `eval` need them."""
    if not task.settled and labels != "ignored":
        raise RuntimeError("the classes of this task are not known yet: rows.load finds them")
    tasks = {} if labels == "ignored" else {name: task}
    reading = Reading(
        task.columns, tasks, task.twin, gaps=(name,) if gaps else (), marked=task.kind == "tag"
    )
    try:
        table = prepare(stream(source, wanted_by({name: task}), root, "the rows given"), reading)
    except UserError as error:
        raise UserError(f"task {name!r}: {error}") from None
    return rows_of(name, table, policy, labels, task, ways)


def digest(rows: Rows) -> str:
    """sha256 of the contents, texts and labels, wherever they came from.

    Of very many rows the texts are known by their hashes.
    """
    whole = hashlib.sha256()
    if len(rows) > MANY:
        whole.update(np.ascontiguousarray(rows.hashes).data)
        for part in _json(rows.labels or ()):
            whole.update(part.encode())
        return whole.hexdigest()
    whole.update(b"[")
    for part in _json(rows.texts):
        whole.update(part.encode())
    whole.update(b",")
    for part in ["null"] if rows.labels is None else _json(rows.labels):
        whole.update(part.encode())
    whole.update(b"]")
    return whole.hexdigest()


def _json(cells: Sequence[Any]) -> Iterator[str]:
    """As `json.dumps` writes them, a few at a time."""
    yield "["
    for start in range(0, len(cells), MANY // 100):
        part = json.dumps(list(cells[start : start + MANY // 100]), separators=(",", ":"))
        yield f"{',' if start else ''}{part[1:-1]}"
    yield "]"


# --- what a task has of a table -------------------------------------------------------------------


def check(
    name: str,
    task: Task,
    table: Table,
    policy: Policy,
    use: Use,
    ways: WaysOut = FROM_A_RECIPE,
) -> Rows:
    """A table's rows for this task, each good one of them."""
    tasks = {} if use == "ignored" else {name: task}
    reading = Reading(task.columns, tasks, task.twin, hashes=False, marked=task.kind == "tag")
    source = Stream(table.source, 0, lambda: iter([table]), lambda cache: None)
    return rows_of(name, prepare(source, reading), policy, use, task, ways)


def rows_of(
    name: str,
    table: PreparedTable,
    policy: Policy,
    use: Use,
    task: Task | None = None,
    ways: WaysOut = FROM_A_RECIPE,
) -> Rows:
    """A prepared table's rows for one of its tasks; what becomes of bad ones is in `policy`."""
    mine = table.labels.get(name)
    task = task or (mine.task if mine else None)
    assert task is not None
    if not table.names and table.faults.count:  # a table without a row has no columns either
        raise UserError(_sentence(name, table, table.faults, "needed", FROM_A_RECIPE))
    columns = (*task.columns, *(task.label_columns if use == "needed" else ()))
    check_columns(name, table.source, table.names, columns)
    status = np.zeros(len(table.lines), np.int8) if mine is None else mine.status
    labelled = mine is not None and (use == "needed" or bool((status != UNLABELLED).any()))
    faults = table.faults
    if mine and labelled:
        faults = Faults.of(faults, mine.faults, mine.empty)
    if table.total == 0:
        raise UserError(f"task {name!r}: {table.source} has no rows")
    none = faults.count == table.total and use != "ignored"  # those answered may be a part of all
    if faults.count and (policy == "error" or none):
        raise UserError(_sentence(name, table, faults, use, ways))
    gaps = int((status == UNLABELLED).sum()) - mine.empty.count if mine and labelled else 0
    if gaps and not (status == GOOD).any():
        raise UserError(
            f"task {name!r}: {table.source}: no row has a label in column {task.label!r}"
        )
    rows = Rows(
        texts=table.texts,
        labels=mine.column if mine and labelled else None,
        ids=table.ids,
        source=table.source,
        lines=table.lines,
        skipped=tuple(faults.named),
        notes=table.notes,
        unit=table.unit,
        gaps=gaps,
        left_out=faults.count,
        table=table,
    )
    if labelled and bool((status != GOOD).any()):
        rows = rows.chosen(np.flatnonzero(status == GOOD))
    return rows


def check_columns(name: str, source: str, there: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse a table without one of these columns."""
    for column in columns:
        if column not in there:
            known = [column for column in there if column]
            raise MissingColumnError(
                f"task {name!r}: {source} has no column {column!r}; it has "
                f"{listed(known) or 'none'}" + nearest(column, known),
                column,
            )


def named(row: Skipped, unit: str = "line") -> str:
    """A bad row, where it is and why."""
    column = f", column {row.column!r}" if row.column else ""
    return f"{unit} {row.line}{column}: {row.why} (found {row.value})"


def _sentence(name: str, table: PreparedTable, faults: Faults, use: Use, ways: WaysOut) -> str:
    """The first bad row in full, the others counted, and the way out."""
    first = f"task {name!r}: {table.source} {named(faults.named[0], table.unit)}"
    # Rows to be answered come in parts, and an answer to some of them is none.
    if use == "ignored":
        return f"{first}; fix the file, or {ways.skip}"
    if strange := _strange_labels(table, faults):
        number = "none" if faults.count == table.total else f"{table.total - faults.count:,}"
        return (
            f"{first}; not in {ways.classes}, but in the file: {listed(strange)}; {number} "
            f"of the {table.total:,} rows can be used: name the classes as the file does"
        )
    if faults.count == table.total:
        return f"{first}; none of the {table.total:,} rows can be used"
    bad = f"{faults.count:,} of {table.total:,} rows {'is' if faults.count == 1 else 'are'} bad"
    return f"{first}; {bad}: fix the file, or {ways.skip}"


def _strange_labels(table: PreparedTable, faults: Faults) -> list[str]:
    """Labels that no class is called by, if so many rows have one that the classes are wrong."""
    strange = [row.value for row in faults.named if row.why.startswith(NO_CLASS)]
    rows = faults.count * len(strange) / len(faults.named)
    many = rows >= max(MISNAMED, MISNAMED_SHARE * table.total)
    return list(dict.fromkeys(strange)) if many else []
