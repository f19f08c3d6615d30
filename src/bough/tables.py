"""Tables: files, hub sets and memory become named columns of cells, each row with its line.

Nothing is judged here but the form: a row that cannot be taken apart becomes a `Skipped`, and rows
decides what that means. A file that is no table at all is the user's `Mistake`.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bough.mistakes import Mistake, nearest
from bough.tasks import Hub, Record, shorten

DELIMITERS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}


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
        return (*self.texts, self.label, "id")


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


def open_table(
    source: str | Hub | tuple[Record, ...], wanted: Wanted, root: Path, said: str
) -> Table:
    """Read what a recipe names as a source; rows in memory have no name but the one `said`."""
    if isinstance(source, str):
        return _file(place(source, root), wanted)
    if isinstance(source, Hub):
        return _hub(source, wanted, root)
    return _memory(source, wanted, said)


def place(path: str, root: Path) -> Path:
    """A path of the recipe, seen from `root`; `~` is the home folder."""
    try:
        return root / Path(path).expanduser()
    except RuntimeError:
        raise Mistake(f"{path}: there is no such home folder; write the path out") from None


def read_bytes(path: Path) -> bytes:
    """The file's bytes, or what is wrong with its name."""
    try:
        if path.is_dir():
            raise Mistake(f"{path} is a folder; name a file in it")
        if not path.exists():
            raise Mistake(f"{path} does not exist{_neighbour(path)}")
        if not path.is_file():
            raise Mistake(f"{path} is no regular file; write its contents to one")
        return path.read_bytes()
    except (OSError, ValueError) as fault:
        why = fault.strerror if isinstance(fault, OSError) and fault.strerror else fault
        raise Mistake(f"{shorten(str(path), 200)} cannot be read: {why}") from None


def _neighbour(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (nor does its folder {path.parent})"
    return nearest(path.name, (other.name for other in path.parent.iterdir()))


def _file(path: Path, wanted: Wanted) -> Table:
    readers: dict[str, Callable[[Path, Wanted], Table]] = {
        ".csv": _delimited,
        ".tsv": _delimited,
        ".txt": _delimited,
        ".jsonl": _json_lines,
        ".ndjson": _json_lines,
        ".json": _json_lines,
        ".parquet": _parquet,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        read_bytes(path)  # a name that leads nowhere is the likelier mistake
        raise Mistake(
            f"{path} is of no kind bough reads; its name must end in {', '.join(readers)}"
        )
    return reader(path, wanted)


def _decoded(path: Path) -> str:
    """The file as text; bytes that are not UTF-8 stay as lone surrogates for rows to report."""
    raw = read_bytes(path)
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Mistake(f"{path} is UTF-16; save it as UTF-8 (iconv -f utf-16 -t utf-8)")
    text = raw.decode("utf-8", errors="surrogateescape").removeprefix("\ufeff")
    if not text.strip():
        raise Mistake(f"{path} is empty; expected a header and rows")
    return text


# --- CSV, TSV ---------------------------------------------------------------------------------


class _Lines:
    """The physical lines of a file for csv.reader, with a position that can be set back."""

    def __init__(self, lines: list[str], at: int) -> None:
        self.lines = lines
        self.at = at

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.at >= len(self.lines):
            raise StopIteration
        self.at += 1
        return self.lines[self.at - 1]


@dataclass
class _Records:
    """What one pass over a delimited file found."""

    cells: list[list[str]]
    lines: list[int]
    broken: list[Skipped]
    bare: int = 0  # rows whose quotes were taken as part of the text


def _delimited(path: Path, wanted: Wanted) -> Table:
    # newline="" keeps \r, \n and \r\n as they are, so that quoted ones survive and lines count.
    lines = list(io.StringIO(_decoded(path), newline=""))
    first = next(number for number, line in enumerate(lines) if line.strip())
    with _long_fields():
        delimiter = _delimiter(lines[first], wanted, path)
        names, after = _header(lines, first, delimiter, path)
        found = _records(lines, after, delimiter, len(names), path)
        notes = []
        if not found.cells and found.broken:
            wider = _records(lines, after, delimiter, len(names) + 1, path)
            if wider.cells and not wider.broken:
                found = wider
                if any(cells[-1].strip() for cells in wider.cells):
                    names = ("", *names)
                    notes.append(
                        f"{path}: the header has one name less than the rows have fields; "
                        "the first field was taken for an unnamed index"
                    )
                else:
                    names = (*names, "")
    if found.bare:
        notes.append(
            f"{path}: {found.bare} row(s) hold quotes that quote no field; kept as part of the text"
        )
    if not found.cells and not found.broken:
        raise Mistake(f"{path} has a header and no rows; expected rows below it")
    columns = {}
    for column in wanted.names:
        if names.count(column) > 1:
            raise Mistake(
                f"{path} has {names.count(column)} columns {column!r}; rename all but one"
            )
        if column in names:
            at = names.index(column)
            columns[column] = [cells[at] for cells in found.cells]
    return Table(str(path), "line", names, columns, found.lines, tuple(found.broken), tuple(notes))


@contextmanager
def _long_fields() -> Iterator[None]:
    """Lift csv's limit of 131,072 characters a field: whole documents are longer."""
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _reader(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    # A blank before a quote is layout in `a, "b"`; after a tab it belongs to the text.
    return csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=delimiter != "\t")


def _delimiter(header: str, wanted: Wanted, path: Path) -> str:
    """The one that shows most of the wanted columns in the header, then the one with most names."""

    def merit(delimiter: str) -> tuple[int, int]:
        try:
            names = next(_reader([header], delimiter))
        except csv.Error:
            names = header.split(delimiter)
        return len({name.strip() for name in names} & set(wanted.names)), len(names)

    usual = "," if path.suffix.lower() == ".csv" else "\t"
    return max((usual, *DELIMITERS), key=merit)


def _header(
    lines: list[str], first: int, delimiter: str, path: Path
) -> tuple[tuple[str, ...], int]:
    cursor = _Lines(lines, first)
    try:
        names = tuple(name.strip() for name in next(_reader(cursor, delimiter)))
    except csv.Error as fault:
        raise Mistake(
            f"{path} line {first + 1}: the header has broken quoting ({fault}); close every quote"
        ) from None
    if any("\udc80" <= character <= "\udcff" for name in names for character in name):
        raise Mistake(f"{path} line {first + 1}: the header is not UTF-8; save the file as UTF-8")
    return names, cursor.at


def _records(lines: list[str], first: int, delimiter: str, width: int, path: Path) -> _Records:
    """Take the lines apart; after a broken row go on with the line below its first."""
    found = _Records([], [], [])
    cursor = _Lines(lines, first)
    reader = _reader(cursor, delimiter)
    while True:
        start = cursor.at
        why = ""
        try:
            cells = next(reader)
        except StopIteration:
            return found
        except csv.Error:
            cells = []
            why = "a quote opens a field and does not close it; double quotes inside a quoted field"
        else:
            if not cells or (len(cells) == 1 and not cells[0].strip() and width > 1):
                continue  # a blank line is no row
            if len(cells) != width:
                why = f"the row has {len(cells)} fields; expected {width}, as in the header"
            elif cursor.at - start > 1 and _swallowed(lines[start : cursor.at], delimiter, width):
                why = f"a quote opens a field and closes only on line {cursor.at}; close it"
        if why and delimiter == "\t":
            # A tab separates whatever the quotes do, so a line with the right number of them
            # is a row of a file that was written without quoting.
            bare = lines[start].rstrip("\r\n").split("\t")
            if len(bare) == width:
                cells, why = [_unquoted(cell) for cell in bare], ""
                found.bare += 1
                cursor.at = start + 1
        if why:
            value = lines[start].rstrip("\r\n")
            found.broken.append(Skipped(str(path), start + 1, "", shorten(value), why))
            cursor.at = start + 1
        else:
            found.cells.append(cells)
            found.lines.append(start + 1)


def _swallowed(lines: Sequence[str], delimiter: str, width: int) -> bool:
    """Whether a field over several lines is rather a lost quote with whole rows behind it."""
    # A written paragraph may by chance have the right number of commas in a line or two.
    if width == 1 or (delimiter != "\t" and len(lines) < 4):
        return False
    return all(line.count(delimiter) == width - 1 for line in lines)


def _unquoted(cell: str) -> str:
    inner = cell[1:-1]
    if len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inner.replace('""', ""):
        return inner.replace('""', '"')
    return cell


# --- JSON lines, Parquet ----------------------------------------------------------------------


def _json_lines(path: Path, wanted: Wanted) -> Table:
    text = _decoded(path)
    if text.lstrip().startswith("["):
        raise Mistake(f"{path} is one JSON list; write one object per line (jq -c '.[]' does)")
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    broken: list[Skipped] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as fault:
            why = f"the line is no JSON ({str(fault).splitlines()[0]}); write one object per line"
            broken.append(Skipped(str(path), number, "", shorten(line), why))
            continue
        if isinstance(row, dict):
            rows.append(row)
            lines.append(number)
        else:
            why = 'the line is no JSON object; write {"column": value, ...}'
            broken.append(Skipped(str(path), number, "", shorten(line), why))
    names, columns = _from_dicts(rows, wanted)
    return Table(str(path), "line", names, columns, lines, tuple(broken))


def _from_dicts(
    rows: Sequence[dict[str, Any]], wanted: Wanted
) -> tuple[tuple[str, ...], dict[str, list[Any]]]:
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    present = [name for name in wanted.names if name in names]
    return names, {name: [row.get(name) for row in rows] for name in present}


def _parquet(path: Path, wanted: Wanted) -> Table:
    raw = read_bytes(path)
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise _needs_hub_extra(f"{path} is a Parquet file") from None
    try:
        file = pq.ParquetFile(pa.BufferReader(raw))
        names = tuple(file.schema_arrow.names)
        present = [name for name in wanted.names if name in names]
        arrow = file.read(columns=present)
        columns = {name: arrow.column(name).to_pylist() for name in present}
    except (pa.ArrowException, OSError, ValueError, KeyError) as fault:
        raise Mistake(f"{path} cannot be read as Parquet: {_first_line(fault)}") from None
    lines = list(range(1, file.metadata.num_rows + 1))
    return Table(str(path), "row", names, columns, lines)


def _needs_hub_extra(what: str) -> Mistake:
    return Mistake(f'{what}, which needs the hub extra: pip install "bough[hub]"')


def _first_line(fault: BaseException) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]


# --- hub, memory ------------------------------------------------------------------------------


def _hub(source: Hub, wanted: Wanted, root: Path) -> Table:
    try:
        import datasets
    except ImportError:
        raise _needs_hub_extra(f"{source.hub} is a hub set") from None
    for ours in source.columns:
        if ours not in wanted.names:
            raise Mistake(
                f"hub set {source.hub}: `columns` names {ours!r}, which the task does not read "
                f"({', '.join(wanted.names)}){nearest(ours, wanted.names)}"
            )
    folder = place(source.hub, root)
    path = str(folder) if folder.is_dir() else source.hub
    said = f"hub set {path}{f' ({source.config})' if source.config else ''}, split {source.split}"
    try:
        rows = datasets.load_dataset(path, source.config, split=source.split)
    # The library raises what its loaders, the network and the file system happen to raise.
    except Exception as fault:
        raise Mistake(
            f"{said} cannot be loaded: {_first_line(fault)}; check the name, the split and the "
            "network, or name a local folder"
        ) from None
    theirs = {name: source.columns.get(name, name) for name in wanted.names}
    present = {ours: name for ours, name in theirs.items() if name in rows.column_names}
    for ours in source.columns:
        if ours not in present:
            raise Mistake(
                f"{said}: there is no column {theirs[ours]!r}, only {', '.join(rows.column_names)}"
                + nearest(theirs[ours], rows.column_names)
            )
    arrow = rows.select_columns(sorted(set(present.values()))).with_format("arrow")[:]
    columns = {ours: arrow.column(name).to_pylist() for ours, name in present.items()}
    classes = source.labels
    if wanted.classes and wanted.label in columns:
        feature = rows.features[present[wanted.label]]
        if classes is None and isinstance(feature, datasets.ClassLabel):
            classes = tuple(feature.names)
        if classes is not None:
            columns[wanted.label] = [_class_of(cell, classes) for cell in columns[wanted.label]]
    back = {name: ours for ours, name in present.items()}
    names = tuple(back.get(name, name) for name in rows.column_names)
    lines = list(range(1, len(rows) + 1))
    return Table(said, "row", names, columns, lines, classes=classes)


def _class_of(cell: object, classes: Sequence[str]) -> object:
    """The name of a numbered class; -1 is how hub sets write a hidden label."""
    if not isinstance(cell, int):
        return cell
    if cell == -1:
        return None
    return classes[cell] if 0 <= cell < len(classes) else cell


def _memory(source: tuple[Record, ...], wanted: Wanted, said: str) -> Table:
    """Rows written out: dicts by name, tuples by place: the texts, then the label."""
    if not source:
        raise Mistake(f"{said}: there are no rows; give at least one")
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
            broken.append(Skipped(said, number, "", shorten(row), why))
            continue
        lines.append(number)
    names, columns = _from_dicts(rows, wanted)
    return Table(said, "row", names, columns, lines, tuple(broken))
