"""A table and a task become checked splits, texts and labels, ready to be tokenised.

Every bad row is known by file, line, column and value. The recipe's `rows` says what happens to it:
`error` stops with the first and counts the rest, `skip` leaves them out and names them.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bough.data.tables import Skipped, Table, Wanted, open_table
from bough.errors import UserError, listed, nearest, shorten
from bough.recipe.labels import class_name, in_order, is_missing, number
from bough.recipe.sources import Source
from bough.recipe.tasks import SPLITS, Split, Task

Policy = Literal["error", "skip"]
Use = Literal["needed", "optional", "ignored"]  # what becomes of a split's labels


@dataclass(frozen=True)
class Rows:
    """One split of a task: what is read, what is right, and where each row was found."""

    texts: list[tuple[str, ...]]
    labels: list[int] | list[float] | None  # class index or value; None where there are none
    ids: list[str]  # the column `id`, else the line
    source: str
    lines: list[int]
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()  # what was assumed about the file
    unit: str = "line"  # what `lines` counts: lines of a file or rows of a set
    unused: int = 0  # good rows that a limit leaves out

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def repeated(self) -> int:
        """Rows whose texts another row had before."""
        return len(self.texts) - len(set(self.texts))

    def report(self, most: int = 5) -> str:
        """One sentence on what was skipped, or nothing."""
        if not self.skipped:
            return ""
        first = "; ".join(named(row, self.unit) for row in self.skipped[:most])
        more = f"; and {len(self.skipped) - most:,} more" if len(self.skipped) > most else ""
        total = len(self.skipped) + len(self) + self.unused
        return f"{self.source}: skipped {len(self.skipped):,} of {total:,} rows: {first}{more}"


def load(
    name: str, task: Task, *, root: Path, policy: Policy, splits: Sequence[Split] | None = None
) -> tuple[Task, dict[Split, Rows]]:
    """The task with its classes known, and the splits asked for; left open, all that it has."""
    needed: Sequence[Split] = ("train", "dev") if splits is None else splits
    for split in needed:
        if getattr(task, split) is None:
            raise UserError(
                f"task {name!r} has no {split} rows; set tasks.{name}.{split} to a file, a hub set "
                "or a list of rows"
            )
    asked = [split for split in SPLITS if getattr(task, split) is not None]
    if splits is not None:
        asked = [split for split in asked if split in splits]
    tables = {split: _opened(name, task, split, root) for split in asked}
    if _open_ended(task):
        if task.train is None:
            raise UserError(f"task {name!r} has neither labels nor train rows to find them in")
        train = tables["train"] if "train" in tables else _opened(name, task, "train", root)
        task = _settled(name, task, train)
    use: dict[Split, Use] = {"train": "needed", "dev": "needed", "test": "optional"}
    return task, {
        split: limited(check(name, task, table, policy, use[split]), getattr(task.limit, split))
        for split, table in tables.items()
    }


def limited(rows: Rows, most: int | None) -> Rows:
    """So many of the rows: of the same file always the same, in their order.

    A higher limit adds rows to those of a lower one.
    """
    if most is None or most >= len(rows):
        return rows
    kept = sorted(random.Random(0).sample(range(len(rows)), len(rows))[:most])
    labels: Any = None if rows.labels is None else [rows.labels[i] for i in kept]
    return replace(
        rows,
        texts=[rows.texts[i] for i in kept],
        labels=labels,
        ids=[rows.ids[i] for i in kept],
        lines=[rows.lines[i] for i in kept],
        unused=len(rows) - most,
    )


def read(
    name: str, task: Task, source: Source, *, root: Path, policy: Policy, labels: Use = "optional"
) -> Rows:
    """Rows from anywhere for a task whose classes are known, as `predict` and `eval` need them."""
    if _open_ended(task) and labels != "ignored":
        raise RuntimeError("the classes of this task are not known yet: rows.load finds them")
    table = _table(name, task, source, root, "the rows given")
    return check(name, task, table, policy, labels)


def digest(rows: Rows) -> str:
    """sha256 of the contents, texts and labels, wherever they came from."""
    contents = json.dumps([rows.texts, rows.labels], separators=(",", ":"))
    return hashlib.sha256(contents.encode()).hexdigest()


def _opened(name: str, task: Task, split: Split, root: Path) -> Table:
    return _table(name, task, getattr(task, split), root, f"tasks.{name}.{split}")


def _table(name: str, task: Task, source: Source, root: Path, origin: str) -> Table:
    wanted = Wanted(task.columns, task.label, task.kind == "classify")
    try:
        return open_table(source, wanted, root, origin)
    except UserError as error:
        raise UserError(f"task {name!r}: {error}") from None


def _open_ended(task: Task) -> bool:
    return task.labels is None if task.kind == "classify" else task.range is None


def _column(name: str, table: Table, column: str) -> list[Any]:
    if column in table.columns:
        return table.columns[column]
    if not table.lines and table.broken:  # a table without a single row has no columns either
        raise UserError(_sentence(name, table, list(table.broken)))
    there = [column for column in table.names if column]
    raise UserError(
        f"task {name!r}: {table.source} has no column {column!r}; it has {listed(there) or 'none'}"
        + nearest(column, there)
    )


# --- what the train rows say about the labels --------------------------------------------------


def _settled(name: str, task: Task, table: Table) -> Task:
    """The task with the classes of its train rows; a regress task must know its range by itself."""
    cells = [
        cell for cell in _column(name, table, task.label) if not is_missing(cell, task.labels or ())
    ]
    where = f"task {name!r}: {table.source}, column {task.label!r}"
    if task.kind == "regress":
        values = [value for value in map(number, cells) if value is not None]
        if not values:
            raise UserError(f"{where}: no label is a number; name another column or kind classify")
        low, high = min(values), max(values)
        raise UserError(
            f"{where}: a regress task needs its `range`; the labels here run from {low:g} to "
            f"{high:g}, so set tasks.{name}.range to [{low:g}, {high:g}] or to the whole scale"
        )
    classes = in_order(class_name(cell) for cell in cells if isinstance(cell, str | int | float))
    if table.classes is None:
        _look_like_classes(where, name, classes, len(cells))
    try:
        return task.with_labels(table.classes or classes)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _look_like_classes(where: str, name: str, classes: Sequence[str], rows: int) -> None:
    if len(classes) < 2:
        seen = f"only the class {classes[0]!r}" if classes else "no label at all"
        raise UserError(f"{where}: the train rows hold {seen}; a classify task needs two or more")
    if len(classes) > 20 and any(value != int(value) for value in _finite(classes)):
        raise UserError(
            f"{where}: the labels are numbers such as {listed(classes, 3)}; set tasks.{name}.kind "
            "to regress, or list the classes in `labels` if they are meant"
        )
    if len(classes) > 50 and len(classes) > rows / 2:
        raise UserError(
            f"{where}: {len(classes):,} different labels in {rows:,} rows look like no classes; "
            "name another column, or list them in `labels` if they are meant"
        )


def _finite(names: Sequence[str]) -> list[float]:
    """The names as numbers if all of them are, else nothing."""
    values = [number(name) for name in names]
    return [value for value in values if value is not None] if None not in values else []


# --- row by row ---------------------------------------------------------------------------------


class _CellError(Exception):
    """Why a cell cannot be used."""


def check(name: str, task: Task, table: Table, policy: Policy, use: Use) -> Rows:
    """The table's rows for this task, each good one of them; what becomes of the others is in
    `policy`."""
    bad: dict[int, Skipped] = {}  # by index of the row; its first fault counts

    def convert(column: str, cells: list[Any], turn: Callable[[Any], Any]) -> list[Any]:
        made = []
        for index, cell in enumerate(cells):
            try:
                made.append(turn(cell))
            except _CellError as fault:
                made.append(None)
                line, value = table.lines[index], shorten(cell)
                row = Skipped(table.source, line, column, value, str(fault))
                bad.setdefault(index, row)
        return made

    texts = [convert(column, _column(name, table, column), _text) for column in task.columns]
    labels = None
    if _has_labels(name, task, table, use):
        labels = convert(task.label, _column(name, table, task.label), _label_reader(task))
    ids = _ids(task, table)
    total = len(table.lines) + len(table.broken)
    skipped = sorted((*table.broken, *bad.values()), key=lambda row: row.line)
    if total == 0:
        raise UserError(f"task {name!r}: {table.source} has no rows")
    none = len(skipped) == total and use != "ignored"  # rows to be answered may be a part of all
    if skipped and (policy == "error" or none):
        raise UserError(_sentence(name, table, skipped, use))
    kept = [index for index in range(len(table.lines)) if index not in bad]
    return Rows(
        texts=[tuple(column[index] for column in texts) for index in kept],
        labels=None if labels is None else [labels[index] for index in kept],
        ids=[ids[index] for index in kept],
        source=table.source,
        lines=[table.lines[index] for index in kept],
        skipped=tuple(skipped),
        notes=table.notes,
        unit=table.unit,
    )


def _has_labels(name: str, task: Task, table: Table, use: Use) -> bool:
    if use == "ignored":
        return False
    if use == "needed":
        return True
    cells = table.columns.get(task.label, [])
    return not all(is_missing(cell, task.labels or ()) for cell in cells)


def _ids(task: Task, table: Table) -> list[str]:
    plain = [str(line) for line in table.lines]
    if "id" not in table.columns or "id" in (*task.columns, task.label):
        return plain
    return [
        # An id is written out with the predictions, so it has to be encodable.
        str(cell).strip().encode("utf-8", "replace").decode() or line
        if isinstance(cell, str | int | float)
        else line
        for cell, line in zip(table.columns["id"], plain, strict=True)
    ]


def _text(cell: object) -> str:
    if isinstance(cell, str):
        text = cell.strip()
    elif cell is None or cell != cell:  # NaN, the only value unlike itself
        text = ""
    elif isinstance(cell, int | float) and not isinstance(cell, bool):
        text = str(cell)
    else:
        raise _CellError("expected a text")
    if not text:
        raise _CellError("the text is empty; expected at least one character")
    if not text.isascii():
        _encodable(text)
    return text


def _encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as fault:
        code = ord(text[fault.start])
        # Undecodable bytes were read as U+DC80 to U+DCFF.
        if 0xDC80 <= code <= 0xDCFF:
            raise _CellError(
                f"byte 0x{code - 0xDC00:02x} is not UTF-8; save the file as UTF-8 "
                "(iconv -f latin1 -t utf-8, if it is Latin-1)"
            ) from None
        raise _CellError(f"\\u{code:04x} is half a character; fix the text") from None


def _label_reader(task: Task) -> Callable[[Any], int | float]:
    """What turns a cell into a class index, or into a number within the range."""
    if task.kind == "classify":
        assert task.labels is not None
        names = task.label_values or task.labels
        # A file may write a class by its name, too; what the recipe says of a value goes first.
        index = {name: n for part in (task.labels, names) for n, name in enumerate(part)}

        def read_class(cell: Any) -> int:
            if is_missing(cell, index):
                raise _CellError(f"the label is empty; expected one of {listed(names)}")
            place = index.get(class_name(cell)) if isinstance(cell, str | int | float) else None
            if place is None:
                raise _CellError(
                    f"the label is no class of this task; expected one of {listed(names)}"
                    + nearest(str(cell), names)
                )
            return place

        return read_class

    assert task.range is not None
    low, high = task.range

    def read_value(cell: Any) -> float:
        expected = f"expected a number from {low:g} to {high:g}"
        if is_missing(cell, task.labels or ()):
            raise _CellError(f"the label is empty; {expected}")
        value = number(cell)
        if value is None:
            raise _CellError(f"the label is no number; {expected}")
        if not low <= value <= high:
            raise _CellError(f"the label is outside the range; {expected}")
        return value

    return read_value


def named(row: Skipped, unit: str = "line") -> str:
    """A bad row, where it is and why."""
    column = f", column {row.column!r}" if row.column else ""
    return f"{unit} {row.line}{column}: {row.why} (found {row.value})"


def _sentence(name: str, table: Table, skipped: Sequence[Skipped], use: Use = "needed") -> str:
    """The first bad row in full, the others counted, and the way out."""
    first = f"task {name!r}: {table.source} {named(skipped[0], table.unit)}"
    # Rows to be answered come in parts, and an answer to some of them is none.
    if use == "ignored":
        return f"{first}; fix the file"
    total = len(table.lines) + len(table.broken)
    if len(skipped) == total:
        return f"{first}; none of the {total:,} rows can be used"
    bad = f"{len(skipped):,} of {total:,} rows {'is' if len(skipped) == 1 else 'are'} bad"
    return f"{first}; {bad}: fix the file, or set `rows: skip` to go on without"
