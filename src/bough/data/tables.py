"""Files, hub sets and memory become named columns of cells, each row with its line.

Nothing is judged here but the form: a row that cannot be taken apart becomes a `Skipped`, and rows
decides what that means. A file that is no table at all is a `UserError`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bough.data import csv_reader
from bough.errors import UserError, nearest, shorten
from bough.extras import install_line
from bough.recipe.labels import class_name
from bough.recipe.sources import Hub, Record
from bough.recipe.tasks import Task
from bough.spans.conll_reader import SPANS, TEXT, ConllFile
from bough.user_paths import check_name, place, unreadable

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


def wanted_of(tasks: Iterable[Task]) -> Wanted:
    """All columns that some of the tasks read."""
    names = dict.fromkeys(name for task in tasks for name in (*task.columns, *task.label_columns))
    return Wanted(tuple(names), "", False)


def open_table(
    source: str | Hub | tuple[Record, ...], wanted: Wanted, root: Path, origin: str
) -> Table:
    """Read what a recipe names as a source; rows in memory have no name but `origin`."""
    if isinstance(source, str):
        return _joined(parts(place(source, root), wanted))
    if isinstance(source, Hub):
        return _hub(source, wanted, root)
    return _memory(source, wanted, origin)


def parts(path: Path, wanted: Wanted) -> Iterator[Table]:
    """A file's table in parts of rows that follow each other, so that it may be of any size.

    Where a column may be missing in a row (JSON), a part has every wanted column, and its names are
    those found so far.
    """
    check_name(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(
            f"{path} is of no kind bough reads; its name must end in {', '.join(READERS)}"
        )
    return reader(path, wanted)


def _joined(tables: Iterable[Table]) -> Table:
    every = list(tables)
    last = every[-1]
    return replace(
        last,
        columns={
            name: [cell for part in every for cell in part.columns[name]]
            for name in last.columns
            if name in last.names
        },
        lines=[line for part in every for line in part.lines],
        broken=tuple(row for part in every for row in part.broken),
    )


@contextmanager
def _text(path: Path, newline: str) -> Iterator[Iterable[str]]:
    """The file's lines; bytes that are not UTF-8 stay as lone surrogates for rows to report."""
    try:
        raw = path.open("rb")
    except OSError as fault:
        raise unreadable(path, fault) from None
    with raw:
        if raw.peek(2).startswith((b"\xff\xfe", b"\xfe\xff")):
            raise UserError(f"{path} is UTF-16; save it as UTF-8 (iconv -f utf-16 -t utf-8)")
        yield io.TextIOWrapper(raw, "utf-8-sig", errors="surrogateescape", newline=newline)


def _delimited(path: Path, wanted: Wanted) -> Iterator[Table]:
    with _text(path, newline="") as lines:
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
            )


def _json_lines(path: Path, wanted: Wanted) -> Iterator[Table]:
    names: dict[str, None] = {}
    with _text(path, newline="\n") as lines:
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
            yield Table(str(path), "line", tuple(names), columns, numbers, tuple(broken))


def _object(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as fault:
        raise ValueError(
            f"the line is no JSON ({_first_line(fault)}); write one object per line"
        ) from None
    if not isinstance(row, dict):
        raise ValueError('the line is no JSON object; write {"column": value, ...}')
    return row


def _conll(path: Path, wanted: Wanted) -> Iterator[Table]:
    """A text per block of lines, and the spans that its tags mark."""
    with _text(path, newline="\n") as lines:
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
            )
            some = list(islice(blocks, PART))


def _parquet(path: Path, wanted: Wanted) -> Iterator[Table]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise _needs_hub_extra(f"{path} is a Parquet file") from None
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
                yield Table(str(path), "row", names, columns, lines)
                above += batch.num_rows
    except (pa.ArrowException, OSError, ValueError, KeyError) as fault:
        raise UserError(f"{path} cannot be read as Parquet: {_first_line(fault)}") from None


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


def check_extra(source: object) -> None:
    """Say that a package is missing before anything is read."""
    if isinstance(source, Hub) and find_spec("datasets") is None:
        raise _needs_hub_extra(f"{source.hub} is a hub set")
    parquet = isinstance(source, str) and source.lower().endswith(".parquet")
    if parquet and find_spec("pyarrow") is None:
        raise _needs_hub_extra(f"{source} is a Parquet file")


def _needs_hub_extra(what: str) -> UserError:
    return UserError(f"{what}, which needs the hub extra: {install_line('hub')}")


def _first_line(fault: BaseException) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]


def _hub(source: Hub, wanted: Wanted, root: Path) -> Table:
    try:
        import datasets
    except ImportError:
        raise _needs_hub_extra(f"{source.hub} is a hub set") from None
    for ours in source.columns:
        if ours not in wanted.names:
            raise UserError(
                f"hub set {source.hub}: `columns` names {ours!r}, which the task does not read "
                f"({', '.join(wanted.names)}){nearest(ours, wanted.names)}"
            )
    folder = place(source.hub, root)
    path = str(folder) if folder.is_dir() else source.hub
    origin = f"hub set {path}{f' ({source.config})' if source.config else ''}, split {source.split}"
    try:
        rows = datasets.load_dataset(path, source.config, split=source.split)
    # The library raises what its loaders, the network and the file system happen to raise.
    except Exception as fault:
        raise UserError(
            f"{origin} cannot be loaded: {_first_line(fault)}; check the name, the split and the "
            "network, or name a local folder"
        ) from None
    theirs = {name: source.columns.get(name, name) for name in wanted.names}
    present = {ours: name for ours, name in theirs.items() if name in rows.column_names}
    for ours in source.columns:
        if ours not in present:
            raise UserError(
                f"{origin}: there is no column {theirs[ours]!r}, only "
                + ", ".join(rows.column_names)
                + nearest(theirs[ours], rows.column_names)
            )
    arrow = rows.select_columns(sorted(set(present.values()))).with_format("arrow")[:]
    columns = {ours: arrow.column(name).to_pylist() for ours, name in present.items()}
    classes = source.labels
    if wanted.classes and wanted.label in columns:
        feature = rows.features[present[wanted.label]]
        if classes is None and isinstance(feature, datasets.ClassLabel):
            classes = tuple(feature.names)
        of_words = getattr(feature, "feature", None)
        if isinstance(of_words, datasets.ClassLabel):  # a list of tags, by their numbers
            columns[wanted.label] = [
                cell and [_class_of(tag, of_words.names) for tag in cell]
                for cell in columns[wanted.label]
            ]
        if classes is not None:
            classes = tuple(map(class_name, classes))
            columns[wanted.label] = [_class_of(cell, classes) for cell in columns[wanted.label]]
    back = {name: ours for ours, name in present.items()}
    names = tuple(back.get(name, name) for name in rows.column_names)
    lines = list(range(1, len(rows) + 1))
    return Table(origin, "row", names, columns, lines, classes=classes)


def _class_of(cell: object, classes: Sequence[str]) -> object:
    """The name of a numbered class; -1 is how hub sets write a hidden label."""
    if not isinstance(cell, int):
        return cell
    if cell == -1:
        return None
    return classes[cell] if 0 <= cell < len(classes) else cell


def _memory(source: tuple[Record, ...], wanted: Wanted, origin: str) -> Table:
    """Rows written out: dicts by name, tuples by place: the texts, then the label."""
    if not source:
        raise UserError(f"{origin}: there are no rows; give at least one")
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    broken: list[Skipped] = []
    fields = (*wanted.texts, wanted.label)
    for number, row in enumerate(source, 1):
        if isinstance(row, dict):
            rows.append(row)
        elif len(row) in (len(fields), len(wanted.texts)):
            rows.append(dict(zip(fields, row, strict=False)))
        else:
            why = f"the row has {len(row)} fields; expected {', '.join(fields)}"
            broken.append(Skipped(origin, number, "", shorten(row), why))
            continue
        lines.append(number)
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in wanted.names if name in names}
    return Table(origin, "row", names, columns, lines, tuple(broken))
