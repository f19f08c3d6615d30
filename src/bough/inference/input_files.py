"""Inputs: the rows of a file that are to be answered, each with the tasks that answer it.

A plain text file has one text per line, a tab between the two texts of a pair. A table (CSV, TSV,
JSONL, Parquet) has columns, and is answered by every task whose text columns it has. Files are of
any size: they are walked through to look at every row, and again to answer it. From a pipe to the
terminal lines are answered as they are written.
"""

from __future__ import annotations

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
from bough.data.tables import READERS, Wanted, parts
from bough.data.tokens import Text, text_of
from bough.errors import UserError
from bough.inference.columns import fitting
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
        if len(self.text) > 2:
            raise UserError("--text: a row has one text, or two; name at most two columns")


EVERYTHING = Choice()


@dataclass
class LeftOut:
    """Rows that could not be read: the first few by their fault, the others by number."""

    first: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, fault: str) -> None:
        self.count += 1
        if self.count <= 5:
            self.first.append(fault)

    def __str__(self) -> str:
        more = f"; and {self.count - 5:,} more" if self.count > 5 else ""
        return f"left out {self.count:,}: {'; '.join(self.first)}{more}"


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
    number = 0
    # A binary file's lines end at \n only; to str.splitlines a form feed ends one, too.
    for raw in lines:
        if raw is None:
            yield None
            continue
        number += 1
        try:
            yield _line(model, raw, number, choice)._replace(where=f"{name}, line {number}")
        except UserError as error:
            if not choice.skip:
                raise UserError(f"{name}, {error}; fix or remove the line, or {SKIP}") from None
            left_out.add(str(error))
    if not number:
        raise UserError(f"{name}: there is no text in it")


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
    able = readers(model, choice)
    columns = tuple(dict.fromkeys(c for task in able.values() for c in task.columns))
    for part in parts(path, Wanted(columns, "", False)):
        there, notes = part.names, part.notes  # all of them with the last part
    for note in notes:
        print(note, file=sys.stderr)
    asked = able if choice.tasks or choice.text else fitting(able, file, there, BY_OPTION)
    wanted = Wanted(tuple(c for c in columns if c in there), "", False)
    kept = _kept(file, there, asked) if choice.keep else ()
    total = sum(1 for _ in _rows(asked, path, there, wanted, choice, LeftOut()))
    if not total:
        raise UserError(f"{file}: no row of it can be read")
    left_out = LeftOut()
    wanted = replace(wanted, texts=tuple(dict.fromkeys((*wanted.texts, *kept))))
    again = _rows(asked, path, there, wanted, choice, left_out, kept)
    return Inputs(again, left_out, tuple(asked), total, kept)


def _kept(file: str, there: Sequence[str], asked: Mapping[str, Task]) -> tuple[str, ...]:
    """The table's columns, if no answer's is called the same."""
    for name, task in asked.items():
        for column in answer_columns(name, task):
            if column in there:
                raise UserError(
                    f"{file}: has a column {column!r}, as the answers have; rename it, or leave "
                    "--keep out"
                )
    return tuple(name for name in dict.fromkeys(there) if name and name != "id")


def readers(model: Model, choice: Choice) -> dict[str, Task]:
    """The tasks that may answer, each with the columns it is to read."""
    chosen = dict.fromkeys(choice.tasks or model.tasks)
    label = {"label": choice.label} if choice.label else {}
    if not choice.text:
        return {name: model.tasks[name].model_copy(update=label) for name in chosen}
    text = choice.text[0] if len(choice.text) == 1 else choice.text
    fit = [name for name in chosen if model.tasks[name].paired == (len(choice.text) == 2)]
    if not fit or (choice.tasks and len(fit) < len(chosen)):
        wrong = next(name for name in chosen if name not in fit)
        what = "a pair: name two columns" if model.tasks[wrong].paired else "one text: name one"
        raise UserError(f"--text {', '.join(choice.text)}: task {wrong!r} judges {what}")
    changed = {"text": text, **label}
    return {name: model.tasks[name].model_copy(update=changed) for name in fit}


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
        faults: dict[int, str] = {}
        others = {name: dict(zip(part.lines, part.columns[name], strict=True)) for name in kept}
        for name, task in asked.items():
            checked = checked_rows.check(name, task, part, policy, "ignored", WaysOut(SKIP))
            for bad in checked.skipped:
                faults.setdefault(bad.line, checked_rows.named(bad, part.unit))
            for line, label, texts in zip(checked.lines, checked.ids, checked.texts, strict=True):
                more = {column: cells[line] for column, cells in others.items()}
                row = out.setdefault(line, Row(label, {}, f"{path}, {part.unit} {line}", more))
                row.texts[name] = text_of(texts)
        for line in sorted(faults.keys() - out.keys()):
            left_out.add(faults[line])
        yield from (out[line] for line in sorted(out))
