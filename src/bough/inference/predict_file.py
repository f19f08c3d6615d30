"""Answering files: rows in, one row of answers each out, in the same order.

Answers are written as they come; a file of them takes its place only when it is complete.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from bough.errors import UserError
from bough.files import csv_writer, replacing
from bough.inference.answers import Answer
from bough.inference.columns import cells, names
from bough.inference.folder import unfinished
from bough.inference.input_files import (
    EVERYTHING,
    TABLES,
    Choice,
    Inputs,
    Row,
    as_json,
    finite,
    lines_as_written,
    table,
    text_file,
)
from bough.inference.load import load
from bough.inference.model import Model, Text
from bough.inference.precision.int8_scores import known
from bough.runs.console import progress
from bough.safe_text import sheet_cell, shown
from bough.spans.cells import as_json as spans_as_json
from bough.spans.schemes import Span

C1_CONTROLS = re.compile("[\x7f-\x9f\ud800-\udfff]")
SHOWN = 5  # classes of an answer on a terminal, where somebody reads them


def answer_file(
    source: str | Path,
    file: str,
    out: str | Path | None,
    choice: Choice = EVERYTHING,
    threads: int | None = None,
    precision: str = "auto",
) -> None:
    """Answer a file's texts and write CSV or JSONL, to a file or to standard output."""
    target = None if out is None else _target(Path(out), file)
    model = load(source, threads=threads, precision=precision)
    said = [*unfinished(source), *(map(str, known(model)) if precision == "int8" else ())]
    for sentence in said:
        print(shown(sentence), file=sys.stderr)
    choice.check(model)
    if Path(file).suffix.lower() in TABLES:
        _answer(model, table(model, file, choice), target, choice.abstain)
        return
    for option in ("text", "keep"):
        if getattr(choice, option):
            raise UserError(f"--{option} is for the columns of a table; {file} has lines")
    if file == "-" and target is None:
        _answer(model, lines_as_written(model, choice), None, choice.abstain)
        return
    with text_file(model, file, choice) as rows:
        _answer(model, rows, target, choice.abstain)


def _target(out: Path, file: str) -> Path:
    if out.suffix not in (".csv", ".jsonl"):
        raise UserError(
            f"{out}: answers are written as .csv or .jsonl; choose one of these endings"
        )
    if not out.absolute().parent.is_dir():
        raise UserError(f"{out}: there is no folder {out.parent}; make it first")
    if out.is_dir():
        raise UserError(f"{out} is a folder; give the name of a file")
    if file != "-" and out.exists() and Path(file).exists() and out.samefile(file):
        raise UserError(f"{out} is the file to be answered; write the answers to another")
    return out


def _answer(model: Model, asked: Inputs, target: Path | None, abstain: float) -> None:
    answered: Iterable[tuple[Row, dict[str, Answer]]] = answers(model, asked.rows, abstain)
    if target is not None or _is_a_file(sys.stdout):  # elsewhere a bar would stand between them
        answered = progress(answered, asked.total, "answering")
    if target is None:
        try:
            _, cut = _write(answered, _JSONL(sys.stdout))
        except BrokenPipeError:  # the reader has seen enough, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
    else:
        with replacing(target) as file:
            jsonl = target.suffix == ".jsonl"
            rows, cut = _write(answered, _JSONL(file) if jsonl else _CSV(file, model, asked))
        print(f"{rows:,} {'row' if rows == 1 else 'rows'} answered: {target}", file=sys.stderr)
    if cut:
        print(f"cut after {model.longest:,} tokens: {cut:,} of them", file=sys.stderr)
    for sentence in asked.left_out.told():
        print(sentence, file=sys.stderr)


def _is_a_file(stream: TextIO) -> bool:
    """Whether what is written there is kept, and not seen: behind many a pipe is a terminal."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:  # it is none of the system's
        return False


def _write(rows: Iterable[tuple[Row, dict[str, Answer]]], writer: _JSONL | _CSV) -> tuple[int, int]:
    """How many rows there were, and in how many a text was cut."""
    count = cut = 0
    for row, answered in rows:
        writer.write(row, answered)
        count += 1
        cut += any(answer.cut for answer in answered.values())
    return count, cut


def answers(
    model: Model, asked: Iterable[Row | None], abstain: float = 0
) -> Iterator[tuple[Row, dict[str, Answer]]]:
    """Each row's answers; a text that several tasks ask about is encoded once."""
    waiting: deque[Row] = deque()  # rows whose texts the model has taken and not yet answered

    def texts() -> Iterator[tuple[Text, tuple[str, ...]] | None]:
        for row in asked:
            if row is None:
                yield None
                continue
            waiting.append(row)
            for text in dict.fromkeys(row.texts.values()):
                yield text, tuple(task for task, other in row.texts.items() if other == text)

    answered = model.answer(texts())
    for first in answered:
        row = waiting.popleft()
        merged = dict(first)
        for _ in range(len(set(row.texts.values())) - 1):
            merged |= next(answered)
        for task, answer in merged.items():
            if not answer.finite:
                sentence = f"task {task!r} answers {answer.number}; train the model again"
                raise UserError(f"{row.where}: {sentence}")
        yield row, {task: merged[task].unless_below(abstain) for task in row.texts}


# --- what is written -----------------------------------------------------------------------------


class _JSONL:
    def __init__(self, file: TextIO):
        self.file = file
        self.live = file is sys.stdout  # someone may be waiting for the next line
        self.most = SHOWN if file.isatty() else None
        # A terminal, or a pipe by the system's language, may not know every character.
        self.ascii = codecs.lookup(file.encoding or "utf-8").name != "utf-8"

    def write(self, row: Row, answered: dict[str, Answer]) -> None:
        answers = {task: _likeliest(answer.plain(), self.most) for task, answer in answered.items()}
        content = {"id": row.label, **finite(dict(row.kept)), **answers}
        written = json.dumps(content, ensure_ascii=self.ascii, default=str, allow_nan=False)
        # JSON leaves some control characters bare; as its own escapes they are read back the same.
        line = C1_CONTROLS.sub(lambda m: f"\\u{ord(m[0]):04x}", written)
        self.file.write(line + "\n")
        if self.live:
            self.file.flush()


def _likeliest(answer: dict[str, Any], most: int | None) -> dict[str, Any]:
    """The answer with so many of its classes, the others as one: `...` is their probability."""
    chances: dict[str, float] = answer.get("probabilities", {})
    if most is None or len(chances) <= most + 1:
        return answer
    order = sorted(chances, key=lambda label: -chances[label])
    rest = round(sum(chances[label] for label in order[most:]), 6)
    kept = {label: chances[label] for label in order[:most]}
    return answer | {"probabilities": {**kept, "...": rest}}


class _CSV:
    """A column per task with the label or value, and one with the label's probability."""

    def __init__(self, file: TextIO, model: Model, asked: Inputs):
        self.kept = asked.kept
        self.columns = [column for task in asked.tasks for column in names(task, model.tasks[task])]
        self.table = csv_writer(file)
        self.table.writerow(["id", *map(sheet_cell, self.kept), *self.columns])

    def write(self, row: Row, answered: dict[str, Answer]) -> None:
        found = cells(answered)
        kept = (_carried(row.kept[name]) for name in self.kept)
        answers = (found.get(column) for column in self.columns)
        self.table.writerow(
            [
                sheet_cell(row.label),
                *map(sheet_cell, kept),
                *map(_written, answers),
            ]
        )


def _carried(cell: object) -> str:
    """A cell of the table in a CSV file: spans, lists and objects as JSON."""
    if isinstance(cell, list | tuple) and cell and all(isinstance(part, Span) for part in cell):
        return spans_as_json(cell)
    if isinstance(cell, list | tuple | dict):
        return as_json(cell)
    return "" if cell is None else str(cell)


def _written(cell: str | float | list[str] | None) -> str:
    """An answer in a CSV file: a number with four digits, labels as a JSON list."""
    if isinstance(cell, list):
        return json.dumps(cell, ensure_ascii=False)
    return f"{cell:.4f}" if isinstance(cell, float) else sheet_cell(cell or "")
