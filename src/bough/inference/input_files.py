"""Inputs: the rows of a file that are to be answered, each with the tasks that answer it.

A plain text file has one text per line, a tab between the two texts of a pair. A table (CSV, TSV,
JSONL, Parquet) has columns, and is answered by every task whose text columns it has. Files are of
any size: they are walked through to look at every row, and again to answer it. From a pipe to the
terminal lines are answered as they are written.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from bough.data import checked_rows
from bough.data.checked_rows import WaysOut
from bough.data.label_cells import CellError, check_encodable
from bough.data.tables import READERS, Skipped, Table, Wanted, parts
from bough.data.tokens import Text, text_of
from bough.errors import UserError, shorten
from bough.inference.columns import fitting, readers
from bough.inference.columns import names as answer_columns
from bough.inference.model import Model
from bough.recipe.tasks import Task
from bough.user_paths import place

TABLES = READERS.keys() - {".txt"}  # which has a text per line, and no header
SKIP = "leave out what cannot be read with --skip"
BY_OPTION = "or say which to read with --text COLUMN"
READ = 2**16  # bytes, as many as a pipe holds


class Row(NamedTuple):
    label: str  # what names the row in the answers
    texts: dict[str, Text]  # each task's
    where: str = ""  # the file and the line
    kept: Mapping[str, Any] = {}  # the row's other columns, where these are to be carried along


@dataclass(frozen=True)
class Choice:
    """What is asked of a file."""

    tasks: tuple[str, ...] = ()  # none: all that fit
    text: tuple[str, ...] = ()  # a table's column, or two; none: those of the tasks
    skip: bool = False  # leave out what cannot be read
    label: str = ""  # a table's column, to judge by; none: those of the tasks
    abstain: float = 0.0  # a label of a smaller probability is left out
    keep: bool = False  # carry a table's other columns along

    def check(self, model: Model) -> None:
        model.chosen(self.tasks or None)


EVERYTHING = Choice()


@dataclass
class Faults:
    """The first few by what is wrong, the others by number."""

    first: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, fault: str) -> None:
        self.count += 1
        if self.count <= 5:
            self.first.append(fault)

    def __str__(self) -> str:
        more = f"; and {self.count - 5:,} more" if self.count > 5 else ""
        return f"{'; '.join(self.first)}{more}"


@dataclass
class LeftOut:
    """What could not be read: rows, and of others what single tasks read."""

    rows: Faults = field(default_factory=Faults)
    answers: Faults = field(default_factory=Faults)

    def told(self) -> list[str]:
        """A sentence on each, where there are any."""
        out = []
        if many := self.rows.count:
            out.append(f"left out {many:,}: {self.rows}")
        if many := self.answers.count:
            what = "answer of a single task" if many == 1 else "answers of single tasks"
            out.append(f"left out {many:,} {what}: {self.answers}")
        return out


@dataclass(frozen=True)
class Inputs:
    """Rows to be answered, once."""

    rows: Iterable[Row | None]  # None: what has come so far is to be answered now
    left_out: LeftOut  # as far as the rows were walked through
    tasks: tuple[str, ...] = ()  # all that some row asks for; none: not known beforehand
    total: int | None = None
    kept: tuple[str, ...] = ()  # a table's columns that are carried along


# --- lines of text -------------------------------------------------------------------------------


def lines_as_written(model: Model, choice: Choice) -> Inputs:
    """The lines of standard input, of which nothing is known before the first is answered."""
    left_out = LeftOut()
    pipe = _as_written(sys.stdin.buffer)
    return Inputs(_lines(model, pipe, "standard input", choice, left_out), left_out)


@contextmanager
def text_file(model: Model, file: str, choice: Choice) -> Iterator[Inputs]:
    """Every line is looked at before the first is answered: a bad one is said at once."""
    name = "standard input" if file == "-" else file
    with _opened(file) as text:
        tasks: dict[str, None] = {}
        total = 0
        for row in _lines(model, text, name, choice, LeftOut()):
            assert row is not None
            tasks |= dict.fromkeys(row.texts)
            total += 1
        if not total:
            raise UserError(f"{name}: no line of it can be read")
        text.seek(0)
        left_out = LeftOut()
        again = _lines(model, text, name, choice, left_out)
        yield Inputs(again, left_out, tuple(tasks), total)


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    """The file's bytes, which can be read more than once; a pipe's are put aside for that."""
    with ExitStack() as stack:
        try:
            text = sys.stdin.buffer if file == "-" else stack.enter_context(open(file, "rb"))
        except OSError as error:
            raise UserError(f"{file}: cannot be read ({error.strerror})") from None
        if file == "-" or not text.seekable():
            pipe, text = text, stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(pipe, text)
            text.seek(0)
        yield text


def _as_written(pipe: Any) -> Iterator[bytes | None]:
    """The lines of a pipe or a keyboard, and None where the next has yet to be written."""
    rest: list[bytes] = []  # the parts of a line without an end
    while written := pipe.read1(READ):
        *lines, last = written.split(b"\n")
        for line in lines:
            yield b"".join((*rest, line, b"\n"))
            rest.clear()
        rest.append(last)
        if len(written) < READ:
            yield None
    if any(rest):
        yield b"".join(rest)


def _lines(
    model: Model, lines: Iterable[bytes | None], name: str, choice: Choice, left_out: LeftOut
) -> Iterator[Row | None]:
    nothing = True
    for numbered in _without_blank_end(lines):
        if numbered is None:
            yield None
            continue
        nothing = False
        number, raw = numbered
        try:
            yield _line(model, raw, number, choice)._replace(where=f"{name}, line {number}")
        except UserError as error:
            if not choice.skip:
                raise UserError(f"{name}, {error}; fix or remove the line, or {SKIP}") from None
            left_out.rows.add(str(error))
    if nothing:
        raise UserError(f"{name}: there is no text in it")


def _without_blank_end(lines: Iterable[bytes | None]) -> Iterator[tuple[int, bytes] | None]:
    """The lines with their numbers; blank ones only once another line follows them."""
    number = 0
    blank: list[tuple[int, bytes]] = []
    # A binary file's lines end at \n only; to str.splitlines a form feed ends one, too.
    for raw in lines:
        if raw is None:
            yield None
            continue
        number += 1
        blank.append((number, raw))
        if raw.strip():
            yield from blank
            blank.clear()


def _line(model: Model, raw: bytes, number: int, choice: Choice) -> Row:
    try:
        line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"line {number}: byte {error.start + 1} is not UTF-8, as the file has to be"
        ) from None
    cells = tuple(cell.strip() for cell in line.split("\t"))
    if len(cells) > 2 or not all(cells):
        what = "is empty" if not line.strip() else "is not one text, or two with a tab between"
        raise UserError(f"line {number} {what}: {line[:60]!r}")
    try:  # whole texts that are not empty: which tasks they fit is all that is left to ask
        tasks = model.fitting(choice.tasks or None, len(cells) == 2)
    except UserError as error:
        raise UserError(f"line {number}: {error}") from None
    return Row(line.strip(), dict.fromkeys(tasks, text_of(cells)))


# --- tables --------------------------------------------------------------------------------------


def table(model: Model, file: str, choice: Choice) -> Inputs:
    """Every row is looked at before the first is answered, as those of a text file."""
    path = place(file, Path.cwd())
    able = readers(model.tasks, choice.tasks, choice.text)
    columns = tuple(dict.fromkeys(c for task in able.values() for c in task.columns))
    for part in parts(path, Wanted(columns, "", False)):
        there, notes = part.names, part.notes  # all of them with the last part
    for note in notes:
        print(note, file=sys.stderr)
    asked = able if choice.tasks or choice.text else fitting(able, file, there, BY_OPTION)
    wanted = Wanted(tuple(c for c in columns if c in there), "", False)
    kept = _kept(file, there, asked) if choice.keep else ()
    wanted = replace(wanted, texts=tuple(dict.fromkeys((*wanted.texts, *kept))))
    total = sum(1 for _ in _rows(asked, path, there, wanted, choice, LeftOut(), kept))
    if not total:
        raise UserError(f"{file}: no row of it can be read")
    left_out = LeftOut()
    again = _rows(asked, path, there, wanted, choice, left_out, kept)
    return Inputs(again, left_out, tuple(asked), total, kept)


def _kept(file: str, there: Sequence[str], asked: Mapping[str, Task]) -> tuple[str, ...]:
    """The table's columns, if they can be written and no answer's is called the same."""
    for name, task in asked.items():
        for column in answer_columns(name, task):
            if column in there:
                raise UserError(
                    f"{file}: has a column {column!r}, as the answers have; rename it, or leave "
                    "--keep out"
                )
    for column in there:
        try:
            check_encodable(column)
        except CellError as fault:
            raise UserError(f"{file}: the name of column {column!r}: {fault}") from None
    return tuple(name for name in dict.fromkeys(there) if name and name != "id")


def _unwritable(part: Table, kept: Sequence[str]) -> dict[int, Skipped]:
    """By their lines, rows of which a cell that is carried along cannot be written."""
    out: dict[int, Skipped] = {}
    for column in kept:
        for line, cell in zip(part.lines, part.columns[column], strict=True):
            if not isinstance(cell, str | list | tuple | dict):
                continue
            text = cell if isinstance(cell, str) else as_json(cell)
            try:
                check_encodable(text)
            except CellError as fault:
                why = str(fault)
                out.setdefault(line, Skipped(part.source, line, column, shorten(cell), why))
    return out


def as_json(cell: Any) -> str:
    """A list or an object of a cell that is carried along; a number that is none is null."""
    return json.dumps(finite(cell), ensure_ascii=False, default=str, allow_nan=False)


def finite(cell: Any) -> Any:
    """The same with null for numbers that JSON does not have, at any depth."""
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else None
    if isinstance(cell, list | tuple):
        return [finite(part) for part in cell]
    return {key: finite(part) for key, part in cell.items()} if isinstance(cell, dict) else cell


def _rows(
    asked: Mapping[str, Task],
    path: Path,
    there: tuple[str, ...],
    wanted: Wanted,
    choice: Choice,
    left_out: LeftOut,
    kept: Sequence[str] = (),
) -> Iterator[Row]:
    policy: checked_rows.Policy = "skip" if choice.skip else "error"
    for part in parts(path, wanted):
        part = replace(part, names=there)  # a column may come in a later part only
        out: dict[int, Row] = {}
        bad: dict[int, dict[str, str]] = {}  # line -> task -> why it cannot be read
        others = {name: dict(zip(part.lines, part.columns[name], strict=True)) for name in kept}
        for name, task in asked.items():
            checked = checked_rows.check(name, task, part, policy, "ignored", WaysOut(SKIP))
            for skipped in checked.skipped:
                sentence = checked_rows.named(skipped, part.unit)
                bad.setdefault(skipped.line, {})[name] = sentence
            for line, label, texts in zip(checked.lines, checked.ids, checked.texts, strict=True):
                more = {column: cells[line] for column, cells in others.items()}
                row = out.setdefault(line, Row(label, {}, f"{path}, {part.unit} {line}", more))
                row.texts[name] = text_of(texts)
        for line, fault in _unwritable(part, kept).items():
            sentence = checked_rows.named(fault, part.unit)
            if not choice.skip:
                raise UserError(f"{path} {sentence}; fix the file, or {SKIP}")
            if out.pop(line, None) is not None:
                bad[line] = {"": sentence}
        for line in sorted(bad):
            if line not in out:
                left_out.rows.add(next(iter(bad[line].values())))
                continue
            for name, sentence in bad[line].items():
                left_out.answers.add(f"task {name!r}: {sentence}")
        yield from (out[line] for line in sorted(out))
