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

from bough.data.label_cells import CellError, label_cells
from bough.data.tables import Skipped, Table, Wanted, open_table
from bough.errors import UserError, listed, nearest, shorten
from bough.recipe.sources import Source
from bough.recipe.tasks import SPLITS, Split, Task
from bough.spans.cells import text_of as joined_words

Policy = Literal["error", "skip"]
Use = Literal["needed", "optional", "ignored"]  # what becomes of a split's labels


@dataclass(frozen=True)
class Rows:
    """One split of a task: what is read, what is right, and where each row was found."""

    texts: list[tuple[str, ...]]
    labels: list[Any] | None  # as `label_cells` reads them; None where there are none
    ids: list[str]  # the column `id`, else the line
    source: str
    lines: list[int]
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()  # what was assumed about the file
    unit: str = "line"  # what `lines` counts: lines of a file or rows of a set
    unused: int = 0  # good rows that a limit leaves out
    gaps: int = 0  # good rows whose label cell is empty: nothing is learned from them

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
        total = len(self.skipped) + len(self) + self.unused + self.gaps
        return f"{self.source}: skipped {len(self.skipped):,} of {total:,} rows: {first}{more}"


def load(
    name: str,
    task: Task,
    *,
    root: Path,
    policy: Policy,
    splits: Sequence[Split] | None = None,
    gaps: bool = False,
) -> tuple[Task, dict[Split, Rows]]:
    """The task with its classes known, and the splits asked for; left open, all that it has.

    With `gaps` label cells may be empty, as others' labels are in the table, too.
    """
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
    if not task.settled:
        if task.train is None:
            raise UserError(f"task {name!r} has neither labels nor train rows to find them in")
        train = tables["train"] if "train" in tables else _opened(name, task, "train", root)
        task = _settled(name, task, train)
    use: dict[Split, Use] = {"train": "needed", "dev": "needed", "test": "optional"}
    return task, {
        split: limited(
            check(name, task, table, policy, use[split], gaps), getattr(task.limit, split)
        )
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
    name: str,
    task: Task,
    source: Source,
    *,
    root: Path,
    policy: Policy,
    labels: Use = "optional",
    gaps: bool = False,
) -> Rows:
    """Rows from anywhere for a task whose classes are known, as `predict` and `eval` need them."""
    if not task.settled and labels != "ignored":
        raise RuntimeError("the classes of this task are not known yet: rows.load finds them")
    table = _table(name, task, source, root, "the rows given")
    return check(name, task, table, policy, labels, gaps)


def digest(rows: Rows) -> str:
    """sha256 of the contents, texts and labels, wherever they came from."""
    contents = json.dumps([rows.texts, rows.labels], separators=(",", ":"))
    return hashlib.sha256(contents.encode()).hexdigest()


def _opened(name: str, task: Task, split: Split, root: Path) -> Table:
    return _table(name, task, getattr(task, split), root, f"tasks.{name}.{split}")


def _table(name: str, task: Task, source: Source, root: Path, origin: str) -> Table:
    wanted = Wanted((*task.columns, *task.label_columns), "", False)
    if isinstance(task.label, str):
        wanted = Wanted(task.columns, task.label, task.rules.classes)
    try:
        return open_table(source, wanted, root, origin)
    except UserError as error:
        raise UserError(f"task {name!r}: {error}") from None


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


def _label_cells(name: str, task: Task, table: Table) -> list[Any]:
    """The label's cells; where it has several columns, a tuple for each row."""
    if isinstance(task.label, str):
        return _column(name, table, task.label)
    return list(zip(*(_column(name, table, column) for column in task.label), strict=True))


# --- what the train rows say about the labels --------------------------------------------------


def _settled(name: str, task: Task, table: Table) -> Task:
    """The task with what its train rows say about it."""
    cells = label_cells(task)
    given = [cell for cell in _label_cells(name, task, table) if not cells.missing(cell)]
    try:
        return cells.found(name, given, table.classes)
    except UserError as error:
        where = f"task {name!r}: {table.source}, column {task.label!r}"
        raise UserError(f"{where}: {error}") from None


# --- row by row ---------------------------------------------------------------------------------


def check(
    name: str, task: Task, table: Table, policy: Policy, use: Use, gaps: bool = False
) -> Rows:
    """The table's rows for this task, each good one of them; what becomes of the others is in
    `policy`. With `gaps` a row without a label is left out, and no fault."""
    bad: dict[int, Skipped] = {}  # by index of the row; its first fault counts

    def convert(
        column: str, cells: list[Any], turn: Callable[..., Any], *beside: list[Any]
    ) -> list[Any]:
        made = []
        for index, (cell, *others) in enumerate(zip(cells, *beside, strict=True)):
            try:
                made.append(turn(cell, *others))
            except CellError as fault:
                made.append(None)
                line, value = table.lines[index], shorten(cell)
                row = Skipped(table.source, line, column, value, str(fault))
                bad.setdefault(index, row)
        return made

    read_text = _marked_text if task.kind == "tag" else _text
    written = [_column(name, table, column) for column in task.columns]
    texts = [convert(c, given, read_text) for c, given in zip(task.columns, written, strict=True)]
    labels, bare = None, set[int]()
    if _has_labels(name, task, table, use):
        cells, given = label_cells(task), _label_cells(name, task, table)

        def label(cell: Any, text: Any) -> Any:
            return None if gaps and cells.missing(cell) else cells.read(cell, text)

        column = ", ".join(task.label_columns)
        labels = convert(column, given, label, written[0])
        bare = {index for index, read in enumerate(labels) if read is None} - bad.keys()
    ids = _ids(task, table)
    total = len(table.lines) + len(table.broken)
    skipped = sorted((*table.broken, *bad.values()), key=lambda row: row.line)
    if total == 0:
        raise UserError(f"task {name!r}: {table.source} has no rows")
    none = len(skipped) == total and use != "ignored"  # rows to be answered may be a part of all
    if skipped and (policy == "error" or none):
        raise UserError(_sentence(name, table, skipped, use))
    kept = [index for index in range(len(table.lines)) if index not in bad and index not in bare]
    if not kept and bare:
        raise UserError(
            f"task {name!r}: {table.source}: no row has a label in column {task.label!r}"
        )
    return Rows(
        texts=[tuple(column[index] for column in texts) for index in kept],
        labels=None if labels is None else [labels[index] for index in kept],
        ids=[ids[index] for index in kept],
        source=table.source,
        lines=[table.lines[index] for index in kept],
        skipped=tuple(skipped),
        notes=table.notes,
        unit=table.unit,
        gaps=len(bare),
    )


def _has_labels(name: str, task: Task, table: Table, use: Use) -> bool:
    if use == "ignored":
        return False
    if use == "needed":
        return True
    missing = label_cells(task).missing
    if any(column not in table.columns for column in task.label_columns):
        return False
    return not all(missing(cell) for cell in _label_cells(name, task, table))


def _ids(task: Task, table: Table) -> list[str]:
    plain = [str(line) for line in table.lines]
    if "id" not in table.columns or "id" in (*task.columns, *task.label_columns):
        return plain
    return [
        # An id is written out with the predictions, so it has to be encodable.
        str(cell).strip().encode("utf-8", "replace").decode() or line
        if isinstance(cell, str | int | float)
        else line
        for cell, line in zip(table.columns["id"], plain, strict=True)
    ]


def _marked_text(cell: object) -> str:
    """As it is: spans count its characters; given as a list of words, these joined."""
    cell = joined_words(cell)
    text = _text(cell)
    return cell if isinstance(cell, str) else text


def _text(cell: object) -> str:
    if isinstance(cell, str):
        text = cell.strip()
    elif cell is None or cell != cell:  # NaN, the only value unlike itself
        text = ""
    elif isinstance(cell, int | float) and not isinstance(cell, bool):
        text = str(cell)
    else:
        raise CellError("expected a text")
    if not text:
        raise CellError("the text is empty; expected at least one character")
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
            raise CellError(
                f"byte 0x{code - 0xDC00:02x} is not UTF-8; save the file as UTF-8 "
                "(iconv -f latin1 -t utf-8, if it is Latin-1)"
            ) from None
        raise CellError(f"\\u{code:04x} is half a character; fix the text") from None


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
