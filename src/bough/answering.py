"""Answering files: texts in, one row of answers per text out, in the same order.

A plain text file has one text per line, a tab between the two texts of a pair. A table (CSV, TSV,
JSONL, Parquet) has columns, and is answered by every task whose text columns it has. Files are of
any size: they are walked through, once to look at every row and once to answer it, and answers are
written as they come. A file of answers takes its place only when it is complete.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TextIO

from bough import rows
from bough.asking import Answer, Model, Text
from bough.display import progress
from bough.files import replacing
from bough.mistakes import Mistake
from bough.model import load
from bough.tables import READERS, Wanted, parts, place

TABLES = READERS.keys() - {".txt"}  # which has a text per line, and no header
READ = 2**16  # bytes, as many as a pipe holds
Row = tuple[str, dict[str, Text]]  # what names the row; each task's text in it


@dataclass(frozen=True)
class Asked:
    """Rows to be answered, as often as they are walked through."""

    rows: Iterable[Row | None]  # None: what has come so far is to be answered now
    tasks: tuple[str, ...]  # all that some row asks for
    total: int | None  # texts, where that is known beforehand


def answer_file(
    source: str | Path, file: str, tasks: Sequence[str] | None, out: str | Path | None
) -> None:
    """Answer a file's texts and write CSV or JSONL, to a file or to standard output."""
    target = None if out is None else _target(Path(out), file)
    model = load(source)
    for name in tasks or ():
        if name not in model.tasks:
            raise model.unknown(name)
    if Path(file).suffix.lower() in TABLES:
        _answer(model, _table(model, file, tasks), target)
    elif file == "-" and target is None:
        # Nothing has to be known of the lines before the first is answered.
        lines = _lines(model, _as_written(sys.stdin.buffer), "standard input", tasks)
        _answer(model, Asked(lines, (), None), None)
    else:
        with _opened(file) as text:
            _answer(model, _text_file(model, text, file, tasks), target)


def _target(out: Path, file: str) -> Path:
    if out.suffix not in (".csv", ".jsonl"):
        raise Mistake(f"{out}: answers are written as .csv or .jsonl; choose one of these endings")
    if not out.absolute().parent.is_dir():
        raise Mistake(f"{out}: there is no folder {out.parent}; make it first")
    if out.is_dir():
        raise Mistake(f"{out} is a folder; give the name of a file")
    if file != "-" and out.exists() and Path(file).exists() and out.samefile(file):
        raise Mistake(f"{out} is the file to be answered; write the answers to another")
    return out


def _answer(model: Model, asked: Asked, target: Path | None) -> None:
    found = progress(answers(model, asked.rows), asked.total, "answering")
    if target is None:
        try:
            _write(found, _JSONL(sys.stdout))
        except BrokenPipeError:  # the reader has seen enough, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    with replacing(target) as file:
        jsonl = target.suffix == ".jsonl"
        rows = _write(found, _JSONL(file) if jsonl else _CSV(file, model, asked.tasks))
    print(f"{rows:,} {'row' if rows == 1 else 'rows'} answered: {target}", file=sys.stderr)


def _write(found: Iterable[tuple[str, dict[str, Answer]]], writer: _JSONL | _CSV) -> int:
    rows = 0
    for label, answered in found:
        writer.write(label, answered)
        rows += 1
    return rows


def answers(model: Model, asked: Iterable[Row | None]) -> Iterator[tuple[str, dict[str, Answer]]]:
    """Each row's answers; a text that several tasks ask about is encoded once."""
    waiting: deque[Row] = deque()  # rows whose texts the model has taken and not yet answered

    def texts() -> Iterator[tuple[Text, tuple[str, ...]] | None]:
        for row in asked:
            if row is None:
                yield None
                continue
            waiting.append(row)
            for text in dict.fromkeys(row[1].values()):
                yield text, tuple(task for task, own in row[1].items() if own == text)

    found = model.answer(texts())
    for first in found:
        label, wanted = waiting.popleft()
        merged = dict(first)
        for _ in range(len(set(wanted.values())) - 1):
            merged |= next(found)
        yield label, {task: merged[task] for task in wanted}


# --- lines of text -------------------------------------------------------------------------------


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    """The file's bytes, which can be read more than once; a pipe's are put aside for that."""
    if file == "-":
        with _aside(sys.stdin.buffer) as aside:
            yield aside
        return
    try:
        found = open(file, "rb")  # noqa: SIM115
    except OSError as error:
        raise Mistake(f"{file}: cannot be read ({error.strerror})") from None
    with found:
        if found.seekable():
            yield found
            return
        with _aside(found) as aside:  # a pipe that has a name
            yield aside


@contextmanager
def _aside(pipe: IO[bytes]) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as aside:
        shutil.copyfileobj(pipe, aside)
        yield aside


def _text_file(model: Model, text: IO[bytes], file: str, tasks: Sequence[str] | None) -> Asked:
    """Every line is looked at before the first is answered: a bad one is said at once."""
    name = "standard input" if file == "-" else file
    found: dict[str, None] = {}
    total = 0
    for row in _lines(model, _rewound(text), name, tasks):
        assert row is not None
        found |= dict.fromkeys(row[1])
        total += 1
    return Asked(_lines(model, _rewound(text), name, tasks), tuple(found), total)


def _rewound(text: IO[bytes]) -> Iterator[bytes]:
    text.seek(0)
    yield from text


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
    model: Model, lines: Iterable[bytes | None], name: str, tasks: Sequence[str] | None
) -> Iterator[Row | None]:
    number = 0
    # A binary file's lines end at \n only; to str.splitlines a form feed ends one, too.
    for raw in lines:
        if raw is None:
            yield None
            continue
        number += 1
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise Mistake(
                f"{name}, line {number}: byte {error.start + 1} is not UTF-8; save it as UTF-8"
            ) from None
        parts = tuple(part.strip() for part in line.split("\t"))
        if len(parts) > 2 or not all(parts):
            what = "is empty" if not line.strip() else "is not one text, or two with a tab between"
            raise Mistake(f"{name}, line {number} {what}: {line[:60]!r}; mend or remove the line")
        text: Text = parts[0] if len(parts) == 1 else (parts[0], parts[1])
        try:
            asked = model.asked(text, tasks, number - 1)
        except Mistake as mistake:
            raise Mistake(f"{name}, line {number}: {str(mistake).split(': ', 1)[-1]}") from None
        yield line.strip(), dict.fromkeys(asked, text)
    if not number:
        raise Mistake(f"{name}: there is no text in it")


# --- tables --------------------------------------------------------------------------------------


def _table(model: Model, file: str, tasks: Sequence[str] | None) -> Asked:
    path = place(file, Path.cwd())
    columns = tuple(dict.fromkeys(c for task in model.tasks.values() for c in task.columns))
    for part in parts(path, Wanted(columns, "", False)):
        there, notes = part.names, part.notes  # all of them with the last part
    for note in notes:
        print(note, file=sys.stderr)
    asked = list(dict.fromkeys(tasks)) if tasks else _fitting(model, file, there)
    wanted = Wanted(tuple(c for c in columns if c in there), "", False)
    total = sum(1 for _ in _rows(model, path, wanted, asked))
    return Asked(_rows(model, path, wanted, asked), tuple(asked), total)


def _rows(model: Model, path: Path, wanted: Wanted, asked: Sequence[str]) -> Iterator[Row]:
    for part in parts(path, wanted):
        out: dict[int, Row] = {}
        for name in asked:
            found = rows.check(name, model.tasks[name], part, policy="error", use="ignored")
            for line, label, texts in zip(found.lines, found.ids, found.texts, strict=True):
                text: Text = texts[0] if len(texts) == 1 else (texts[0], texts[1])
                out.setdefault(line, (label, {}))[1][name] = text
        yield from (out[line] for line in sorted(out))


def _fitting(model: Model, file: str, there: Sequence[str]) -> list[str]:
    """The tasks whose text columns the file has."""
    asked = [name for name, task in model.tasks.items() if set(task.columns) <= set(there)]
    if not asked:
        each = "; ".join(f"{n}: {', '.join(t.columns)}" for n, t in model.tasks.items())
        raise Mistake(f"{file}: has the text columns of no task; expected {each}")
    return asked


# --- what is written -----------------------------------------------------------------------------


class _JSONL:
    def __init__(self, file: TextIO):
        self.file = file
        self.live = file is sys.stdout  # someone may be waiting for the next line

    def write(self, label: str, answered: dict[str, Answer]) -> None:
        told = {task: answer.plain() for task, answer in answered.items()}
        self.file.write(json.dumps({"id": label, **told}, ensure_ascii=False) + "\n")
        if self.live:
            self.file.flush()


class _CSV:
    """A column per task with the label or value, and one with the label's probability."""

    def __init__(self, file: TextIO, model: Model, tasks: Iterable[str]):
        self.columns = [
            column
            for task in tasks
            for column in ([task, f"{task}.score"] if model.tasks[task].labels else [task])
        ]
        self.table = csv.writer(file, lineterminator="\n")
        self.table.writerow(["id", *self.columns])

    def write(self, label: str, answered: dict[str, Answer]) -> None:
        cells: dict[str, Any] = {}
        for task, answer in answered.items():
            cells[task] = answer.label if answer.value is None else f"{answer.value:.4f}"
            if answer.score is not None:
                cells[f"{task}.score"] = f"{answer.score:.4f}"
        self.table.writerow([label, *(cells.get(column, "") for column in self.columns)])
