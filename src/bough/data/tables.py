"""Files, hub sets and memory become named columns of cells, each row with its line.

Nothing is judged here but the form: a row that cannot be taken apart becomes a `Skipped`, and rows
decides what that means. A file that is no table at all is a `UserError`.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bough.data import csv_reader
from bough.errors import UserError, shorten
from bough.extras import install_line
from bough.recipe.sources import Hub
from bough.recipe.tasks import Task
from bough.spans.conll_reader import SPANS, TEXT, ConllFile
from bough.user_paths import check_name, unreadable

PART = 1024  # rows of a file that are taken apart at a time


@dataclass(frozen=True)
class Skipped:
    """A row that cannot be used, and why."""

    file: str
    line: int
    column: str
    value: str
    why: str


@dataclass(frozen=True)
class Wanted:
    """The columns a reader is asked for; others are not kept."""

    texts: tuple[str, ...]
    label: str
    classes: bool  # whether the label is a class, so that a set's own class names apply

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (*self.texts, self.label, "id") if name)


@dataclass(frozen=True)
class Table:
    """Columns of equal length, and where each row was found."""

    source: str
    unit: str  # what `lines` counts: "line" of a file or "row" of a set
    names: tuple[str, ...]  # every column there is
    columns: dict[str, list[Any]]  # those that were wanted and are there
    lines: list[int]
    broken: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()  # what was assumed
    classes: tuple[str, ...] | None = None  # class names the source itself declares
    share: float = 1.0  # of the source that is read with this


def wanted_of(tasks: Iterable[Task]) -> Wanted:
    """All columns that some of the tasks read."""
    names = dict.fromkeys(name for task in tasks for name in (*task.columns, *task.label_columns))
    return Wanted(tuple(names), "", False)


def parts(path: Path, wanted: Wanted) -> Iterator[Table]:
    """A file's table part by part."""
    check_name(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(
            f"{path} is of no kind bough reads; its name must end in {', '.join(READERS)}"
        )
    return reader(path, wanted)


@contextmanager
def _text(path: Path, newline: str) -> Iterator[tuple[Iterable[str], Callable[[], float]]]:
    """The file's lines, and how much of it is read; bytes that are not UTF-8 stay as lone
    surrogates for rows to report."""
    try:
        raw = path.open("rb")
    except OSError as fault:
        raise unreadable(path, fault) from None
    with raw:
        if raw.peek(2).startswith((b"\xff\xfe", b"\xfe\xff")):
            raise UserError(f"{path} is UTF-16; save it as UTF-8 (iconv -f utf-16 -t utf-8)")
        size = max(1, os.fstat(raw.fileno()).st_size)
        lines = io.TextIOWrapper(raw, "utf-8-sig", errors="surrogateescape", newline=newline)
        yield lines, lambda: raw.tell() / size


def _delimited(path: Path, wanted: Wanted) -> Iterator[Table]:
    with _text(path, newline="") as (lines, share):
        file = csv_reader.DelimitedFile(lines, str(path), wanted.names)
        for column in wanted.names:
            if file.names.count(column) > 1 and column != "id":
                raise UserError(f"{path} has several columns {column!r}; rename all but one")
        places = {name: file.names.index(name) for name in wanted.names if name in file.names}
        rows = iter(file)
        while some := list(islice(rows, PART)):
            good = [row for row in some if not row.why]
            yield Table(
                str(path),
                "line",
                file.names,
                {name: [row.cells[at] for row in good] for name, at in places.items()},
                [row.line for row in good],
                tuple(
                    Skipped(str(path), row.line, "", shorten(row.text), row.why)
                    for row in some
                    if row.why
                ),
                file.notes,
                share=share(),
            )


def _json_lines(path: Path, wanted: Wanted) -> Iterator[Table]:
    names: dict[str, None] = {}
    with _text(path, newline="\n") as (lines, share):
        written = ((n, line.rstrip("\n")) for n, line in enumerate(lines, 1) if line.strip())
        first = next(written, None)
        if first is None:
            raise UserError(f"{path} is empty; expected a JSON object per line")
        if first[1].lstrip().startswith("["):
            raise UserError(
                f"{path} is one JSON list; write one object per line (jq -c '.[]' does)"
            )
        rest = chain([first], written)
        while some := list(islice(rest, PART)):
            rows: list[dict[str, Any]] = []
            numbers: list[int] = []
            broken: list[Skipped] = []
            for number, line in some:
                try:
                    rows.append(_object(line))
                    numbers.append(number)
                except ValueError as fault:
                    broken.append(Skipped(str(path), number, "", shorten(line), str(fault)))
            names |= dict.fromkeys(name for row in rows for name in row)
            columns = {name: [row.get(name) for row in rows] for name in wanted.names}
            yield Table(
                str(path), "line", tuple(names), columns, numbers, tuple(broken), share=share()
            )


def _object(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as fault:
        raise ValueError(
            f"the line is no JSON ({first_line(fault)}); write one object per line"
        ) from None
    if not isinstance(row, dict):
        raise ValueError('the line is no JSON object; write {"column": value, ...}')
    return row


def _conll(path: Path, wanted: Wanted) -> Iterator[Table]:
    """A text per block of lines, and the spans that its tags mark."""
    with _text(path, newline="\n") as (lines, share):
        file = ConllFile(lines)
        blocks = iter(file)
        some = list(islice(blocks, PART))
        if not some:
            raise UserError(f"{path} is empty; expected a word and its tag per line")
        while some:
            good = [block for block in some if not block.why]
            names = (TEXT, SPANS) if file.tagged else (TEXT,)
            columns: dict[str, list[Any]] = {
                TEXT: [block.text for block in good],
                SPANS: [block.spans for block in good],
            }
            yield Table(
                str(path),
                "line",
                names,
                {name: columns[name] for name in names},
                [block.line for block in good],
                tuple(
                    Skipped(str(path), block.line, block.column, shorten(block.value), block.why)
                    for block in some
                    if block.why
                ),
                share=share(),
            )
            some = list(islice(blocks, PART))


def _parquet(path: Path, wanted: Wanted) -> Iterator[Table]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise needs_hub_extra(f"{path} is a Parquet file") from None
    try:
        with path.open("rb") as raw:
            # Else a whole group of rows is read at once, which may be all of the file.
            file = pq.ParquetFile(raw, pre_buffer=False, buffer_size=2**20)
            names = tuple(file.schema_arrow.names)
            present = [name for name in wanted.names if name in names]
            rows = file.metadata.num_rows
            if not present or not rows:
                columns: dict[str, list[Any]] = {name: [] for name in present}
                yield Table(str(path), "row", names, columns, list(range(1, rows + 1)))
                return
            above = 0
            for batch in file.iter_batches(PART, columns=present):
                columns = {name: batch.column(name).to_pylist() for name in present}
                lines = list(range(above + 1, above + batch.num_rows + 1))
                above += batch.num_rows
                yield Table(str(path), "row", names, columns, lines, share=above / rows)
    except (pa.ArrowException, OSError, ValueError, KeyError) as fault:
        raise UserError(f"{path} cannot be read as Parquet: {first_line(fault)}") from None


READERS: dict[str, Callable[[Path, Wanted], Iterator[Table]]] = {  # by a name's ending
    ".csv": _delimited,
    ".tsv": _delimited,
    ".txt": _delimited,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
    ".parquet": _parquet,
    ".conll": _conll,
    ".bio": _conll,
    ".iob": _conll,
}


def column_names(path: Path, sought: Sequence[str]) -> tuple[str, ...]:
    """A file's columns, by its first rows; of JSON by as many as it takes to see those sought."""
    names: tuple[str, ...] = ()
    for part in parts(path, Wanted(tuple(sought), "", False)):
        names = part.names
        if {*sought} <= {*names} or READERS[path.suffix.lower()] is not _json_lines:
            break
    return names


def check_extra(source: object) -> None:
    """Say that a package is missing before anything is read."""
    if isinstance(source, Hub) and find_spec("datasets") is None:
        raise needs_hub_extra(f"{source.hub} is a hub set")
    parquet = isinstance(source, str) and source.lower().endswith(".parquet")
    if parquet and find_spec("pyarrow") is None:
        raise needs_hub_extra(f"{source} is a Parquet file")


def needs_hub_extra(what: str) -> UserError:
    return UserError(f"{what}, which needs the hub extra: {install_line('hub')}")


def first_line(fault: BaseException) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]
