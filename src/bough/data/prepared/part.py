"""A part of a table checked and tokenised: the work that several processes share.

A row is usable if all of its texts are; then each task says whether it has a label there. What a
part becomes is arrays and a few words, so that it is quickly handed from process to process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from bough.data.label_cells import CellError, check_encodable, label_cells
from bough.data.prepared.columns import Ints, joined
from bough.data.prepared.unread_cells import cell_key
from bough.data.tables import Skipped, Table
from bough.data.tokens import tokenise
from bough.errors import shorten
from bough.recipe.tasks import Task
from bough.spans.cells import text_of as joined_words

Use = Literal["needed", "optional", "ignored"]  # what becomes of a split's labels
GOOD, UNLABELLED, BAD = range(3)  # what a task has of a row
NAMED = 1000  # bad rows of a table that are kept by what is wrong with them; others are counted
KINDS: Mapping[str, Any] = {"classify": np.int64, "ordinal": np.int64, "regress": np.float64}


@dataclass(frozen=True)
class Reading:
    """What is to be read of a table."""

    columns: tuple[str, ...]  # of the texts
    tasks: Mapping[str, Task] = field(default_factory=dict)  # that have labels there, by name
    twin: bool = False
    tokenizer: str = ""  # as JSON; without one there are no tokens
    longest: int = 0
    hashes: bool = True  # for who looks for texts that repeat
    gaps: tuple[str, ...] = ()  # tasks whose label may be missing in a row
    marked: bool = False  # labels are spans of the texts, which stay as they are


@dataclass
class Faults:
    """Bad rows: the first of them by what is wrong, all of them by number."""

    named: list[Skipped] = field(default_factory=list)
    count: int = 0

    def add(self, more: Sequence[Skipped]) -> None:
        self.named += more[: NAMED - len(self.named)]
        self.count += len(more)

    @classmethod
    def of(cls, *parts: Faults) -> Faults:
        """All of these, by their lines."""
        rows = sorted((row for part in parts for row in part.named), key=lambda row: row.line)
        return cls(rows[:NAMED], sum(part.count for part in parts))


@dataclass
class Tokens:
    """As `Sequences`, of one part."""

    ids: NDArray[np.int32]
    types: NDArray[np.int8]
    sizes: Ints
    cut: NDArray[np.bool_]


@dataclass
class Labels:
    """One task's labels of a part, in the order of its usable rows."""

    status: NDArray[np.int8]  # of none where they are not read yet
    values: NDArray[Any] | list[str]  # what is not good is 0; as JSON where labels are no numbers
    cells: list[Any] | None = None  # not read yet: `values` are places in it
    faults: list[Skipped] = field(default_factory=list)
    empty: list[Skipped] = field(default_factory=list)  # cells without a label, if they need one


@dataclass
class Part:
    lines: Ints
    texts: NDArray[np.uint8]
    text_sizes: Ints
    ids: list[str] | None
    hashes: NDArray[np.uint64]
    turned: NDArray[np.uint64]  # of pairs with their texts swapped
    faults: list[Skipped]  # of texts
    labels: dict[str, Labels]
    tokens: Tokens | None


class PartReader:
    """Makes parts of tables."""

    def __init__(self, reading: Reading, tokenizer: Tokenizer | None = None):
        self.reading = reading
        self.tokenizer = None
        if reading.tokenizer:
            self.tokenizer = tokenizer or Tokenizer.from_str(reading.tokenizer)
        self.cells = {name: label_cells(task) for name, task in reading.tasks.items()}

    def __call__(self, table: Table) -> Part:
        faults: dict[int, Skipped] = {}  # by index of the row; its first fault counts
        columns = [self._texts(table, column, faults) for column in self.reading.columns]
        rows = list(zip(*columns, strict=True)) if columns else [()] * len(table.lines)
        usable = np.array([n for n in range(len(rows)) if n not in faults], np.int64)
        if faults:
            rows = [rows[n] for n in usable]
        blob, sizes = joined([text for row in rows for text in row])
        return Part(
            lines=np.array(table.lines, np.int64)[usable],
            texts=blob,
            text_sizes=sizes,
            ids=_ids(self.reading, table, usable),
            hashes=hashes(rows if self.reading.hashes else ()),
            turned=hashes([row[::-1] for row in rows if len(row) == 2 and self.reading.hashes]),
            faults=list(faults.values()),
            labels={
                name: self._labels(name, task, table, usable)
                for name, task in self.reading.tasks.items()
            },
            tokens=self._tokens(rows),
        )

    def _texts(self, table: Table, column: str, faults: dict[int, Skipped]) -> list[Any]:
        cells = table.columns[column]
        if self.reading.marked:
            return _converted(table, column, cells, marked_text, faults)
        return plain_texts(cells) or _converted(table, column, cells, read_text, faults)

    def _labels(self, name: str, task: Task, table: Table, usable: Ints) -> Labels:
        cells = self.cells[name]
        nothing = [None] * len(table.lines)
        columns = [table.columns.get(column, nothing) for column in task.label_columns]
        several = not isinstance(task.label, str)
        given = list(zip(*columns, strict=True)) if several else columns[0]
        if len(usable) < len(given):
            given = [given[n] for n in usable]
        if not task.settled:
            words = set(map(type, given)) <= {str}  # which are their own keys
            keys = given if words else list(map(cell_key, given))
            first = dict(zip(reversed(keys), reversed(given), strict=True))
            places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
            values = np.fromiter(map(places.__getitem__, keys), np.int64, len(keys))
            return Labels(np.zeros(0, np.int8), values, [first[key] for key in places])
        status = np.array([UNLABELLED if cells.missing(c) else GOOD for c in given], np.int8)
        found: dict[int, Skipped] = {}
        lines = [table.lines[n] for n in usable]
        beside = [table.columns[self.reading.columns[0]][n] for n in usable]
        turn = zip(status.tolist(), beside, strict=True)
        gaps = name in self.reading.gaps

        def read(cell: Any) -> Any:
            missing, text = next(turn)
            return None if gaps and missing else cells.read(cell, text)

        made = _converted(table, ", ".join(task.label_columns), given, read, found, lines)
        empty = [fault for n, fault in found.items() if status[n] == UNLABELLED]
        faults = [fault for n, fault in found.items() if status[n] != UNLABELLED]
        status[[n for n in found if status[n] != UNLABELLED]] = BAD
        kind = KINDS.get(task.kind)
        if kind is None:
            return Labels(status, [json.dumps(label or ()) for label in made], None, faults, empty)
        values = np.array([0 if label is None else label for label in made], kind)
        return Labels(status, values, None, faults, empty)

    def _tokens(self, rows: Sequence[tuple[str, ...]]) -> Tokens | None:
        if self.tokenizer is None:
            return None
        if self.reading.twin:
            rows = [(text,) for row in rows for text in row]
        sequences, cut = tokenise(rows, self.tokenizer, self.reading.longest)
        return Tokens(sequences.ids, sequences.types, sequences.lengths, cut)


def _converted(
    table: Table,
    column: str,
    cells: Sequence[Any],
    turn: Callable[[Any], Any],
    faults: dict[int, Skipped],
    lines: Sequence[int] | None = None,
) -> list[Any]:
    made = []
    for index, cell in enumerate(cells):
        try:
            made.append(turn(cell))
        except CellError as fault:
            made.append(None)
            line = (table.lines if lines is None else lines)[index]
            row = Skipped(table.source, line, column, shorten(cell), str(fault))
            faults.setdefault(index, row)
    return made


def plain_texts(cells: Sequence[Any]) -> list[str] | None:
    """The cells as texts, if there is nothing to look at in any of them, as in most tables: then
    all of them take less time than to look at each."""
    if set(map(type, cells)) != {str}:
        return None
    texts = list(map(str.strip, cells))
    return texts if all(texts) and "".join(texts).isascii() else None


def read_text(cell: object) -> str:
    """The text that a cell holds; a CellError says what is wrong with it."""
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
        check_encodable(text)
    return text


def marked_text(cell: object) -> str:
    """As it is: spans count its characters; given as a list of words, these joined."""
    cell = joined_words(cell)
    text = read_text(cell)
    return cell if isinstance(cell, str) else text


def _ids(reading: Reading, table: Table, usable: Ints) -> list[str] | None:
    """What the column `id` says; None where there is none."""
    labels = {column for task in reading.tasks.values() for column in task.label_columns}
    if "id" not in table.columns or "id" in reading.columns or "id" in labels:
        return None
    cells, lines = [table.columns["id"][n] for n in usable], [table.lines[n] for n in usable]
    return plain_texts(cells) or [_id(cell) or str(n) for cell, n in zip(cells, lines, strict=True)]


def _id(cell: object) -> str:
    """An id is written out with the predictions, so it has to be encodable."""
    text = str(cell).strip() if isinstance(cell, str | int | float) else ""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def hashes(rows: Sequence[tuple[str, ...]]) -> NDArray[np.uint64]:
    """Equal rows have equal ones. Others do not, but by chance in three of a million sets of ten
    million rows."""
    digests = [hashlib.blake2b("\0".join(row).encode(), digest_size=8).digest() for row in rows]
    return np.frombuffer(b"".join(digests), np.uint64)
