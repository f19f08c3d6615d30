"""Answering files: texts in, one row of answers per text out, in the same order.

A plain text file has one text per line, a tab between the two texts of a pair. A table (CSV, TSV,
JSONL, Parquet) has columns; every task whose text columns are there answers.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bough.display import progress
from bough.files import write_atomically
from bough.mistakes import Mistake
from bough.model import Answer, MultiTaskModel, Text, load
from bough.tables import Wanted, open_table

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")


def answer_file(
    source: str | Path, file: str, tasks: Sequence[str] | None, out: str | Path | None
) -> None:
    """Answer a file's texts and write CSV or JSONL, to a file or to standard output."""
    if out is not None and Path(out).suffix not in (".csv", ".jsonl"):
        raise Mistake(f"{out}: answers are written as .csv or .jsonl; choose one of these endings")
    if out is not None and not Path(out).absolute().parent.is_dir():
        raise Mistake(f"{out}: there is no folder {Path(out).parent}; make it first")
    model = load(source)
    table = Path(file).suffix.lower() in TABLES
    rows = _table(model, file, tasks) if table else _lines(model, file, tasks)
    asked = list(dict.fromkeys(t for _, found in rows for t in found))
    form = "csv" if out is not None and Path(out).suffix == ".csv" else "jsonl"
    text = io.StringIO(newline="")
    writer = _CSV(text, model, asked) if form == "csv" else _JSONL(text)
    for (label, _), answers in zip(rows, _answers(model, rows), strict=True):
        writer.write(label, answers)
        if out is None:
            sys.stdout.write(text.getvalue())
            text.seek(0)
            text.truncate()
    if out is not None:
        write_atomically(Path(out), text.getvalue())


Row = tuple[str, dict[str, Text]]  # what names the row; each task's text in it


def _lines(model: MultiTaskModel, file: str, tasks: Sequence[str] | None) -> list[Row]:
    name = "standard input" if file == "-" else file
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        # Not splitlines: to Python a line also ends at a form feed or a Unicode separator.
        lines = content.decode("utf-8-sig").removesuffix("\n").split("\n") if content else []
    except OSError as error:
        raise Mistake(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise Mistake(
            f"{name}: byte {error.start + 1} is not UTF-8; save the file as UTF-8"
        ) from None
    rows: list[Row] = []
    for number, line in enumerate(lines, 1):
        parts = tuple(part.strip() for part in line.split("\t"))
        if len(parts) > 2 or not all(parts):
            what = "is empty" if not line.strip() else "is not one text, or two with a tab between"
            raise Mistake(f"{name}, line {number} {what}: {line[:60]!r}; mend or remove the line")
        text: Text = parts[0] if len(parts) == 1 else (parts[0], parts[1])
        try:
            asked = model.asked(text, tasks, number - 1)
        except Mistake as mistake:
            raise Mistake(f"{name}, line {number}: {str(mistake).split(': ', 1)[-1]}") from None
        rows.append((line.strip(), dict.fromkeys(asked, text)))
    if not rows:
        raise Mistake(f"{name}: there is no text in it")
    return rows


def _table(model: MultiTaskModel, file: str, tasks: Sequence[str] | None) -> list[Row]:
    from bough import rows

    asked = list(tasks) if tasks else [n for n, t in model.tasks.items() if _has(file, t.columns)]
    for name in asked:
        if name not in model.tasks:
            raise model.unknown(name)
    if not asked:
        wanted = "; ".join(f"{n}: {', '.join(t.columns)}" for n, t in model.tasks.items())
        raise Mistake(f"{file}: has the text columns of no task; expected {wanted}")
    out: dict[int, Row] = {}
    for name in asked:
        task = model.tasks[name]
        found = rows.read(name, task, file, root=Path.cwd(), policy="error", labels="ignored")
        for line, label, parts in zip(found.lines, found.ids, found.texts, strict=True):
            text: Text = parts[0] if len(parts) == 1 else (parts[0], parts[1])
            out.setdefault(line, (label, {}))[1][name] = text
    return [out[line] for line in sorted(out)]


def _has(file: str, columns: Sequence[str]) -> bool:
    table = open_table(file, Wanted(tuple(columns), "", False), Path.cwd(), "the file")
    return all(column in table.names for column in columns)


def _answers(model: MultiTaskModel, rows: Sequence[Row]) -> Iterator[dict[str, Answer]]:
    """Each row's answers; a text that several tasks ask about is encoded once."""
    asked = [
        (text, tuple(task for task, own in texts.items() if own == text))
        for _, texts in rows
        for text in dict.fromkeys(texts.values())
    ]
    found = iter(progress(model.answer(asked), len(asked), "answering"))
    for _, texts in rows:
        merged: dict[str, Answer] = {}
        for _ in dict.fromkeys(texts.values()):
            merged |= next(found)
        yield {task: merged[task] for task in texts}


class _JSONL:
    def __init__(self, text: io.StringIO):
        self.text = text

    def write(self, label: str, answers: dict[str, Answer]) -> None:
        told = {task: answer.plain() for task, answer in answers.items()}
        self.text.write(json.dumps({"id": label, **told}, ensure_ascii=False) + "\n")


class _CSV:
    """A column per task with the label or value, and one with the label's probability."""

    def __init__(self, text: io.StringIO, model: MultiTaskModel, tasks: Iterable[str]):
        self.columns = [
            column
            for task in tasks
            for column in ([task, f"{task} score"] if model.tasks[task].labels else [task])
        ]
        self.table = csv.writer(text, lineterminator="\n")
        self.table.writerow(["id", *self.columns])

    def write(self, label: str, answers: dict[str, Answer]) -> None:
        cells: dict[str, Any] = {}
        for task, answer in answers.items():
            cells[task] = answer.label if answer.value is None else f"{answer.value:.4f}"
            if answer.score is not None:
                cells[f"{task} score"] = f"{answer.score:.4f}"
        self.table.writerow([label, *(cells.get(column, "") for column in self.columns)])
