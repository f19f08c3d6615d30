"""Delimited: CSV and TSV as they are found, quoted or not, every row with its real line.

One broken row costs itself and no other: reading goes on with the line below its first.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bough.mistakes import Mistake

DELIMITERS = ("\t", ",", ";", "|")


@dataclass(frozen=True)
class Sheet:
    """A delimited file taken apart."""

    names: tuple[str, ...]
    cells: list[list[str]]
    lines: list[int]  # the first line of each row
    broken: list[tuple[int, str, str]]  # rows that could not be taken apart: line, text, why
    notes: tuple[str, ...]  # what was assumed


def split(text: str, said: str, wanted: Iterable[str]) -> Sheet:
    """Take a file's text apart; `wanted` columns help to tell which delimiter it uses."""
    # newline="" keeps line ends as they are, so that quoted ones survive and lines count.
    lines = list(io.StringIO(text.rstrip("\r\n"), newline=""))
    first = next(number for number, line in enumerate(lines) if line.strip())
    with _long_fields():
        delimiter = _delimiter(lines[first], set(wanted), said)
        names, after = _header(lines, first, delimiter, said)
        found = _records(lines, after, delimiter, len(names))
        notes: list[str] = []
        if found.broken and not found.cells:
            wider = _records(lines, after, delimiter, len(names) + 1)
            if wider.cells and not wider.broken:
                found = wider
                names = _widened(names, found, notes, said)
    if found.bare:
        rows = "1 row holds" if found.bare == 1 else f"{found.bare:,} rows hold"
        notes.append(f"{said}: {rows} quotes that quote no field; kept as part of the text")
    if not found.cells and not found.broken:
        raise Mistake(f"{said} has a header and no rows; expected rows below it")
    return Sheet(names, found.cells, found.lines, found.broken, tuple(notes))


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
class _Found:
    """What one pass over the rows found."""

    cells: list[list[str]]
    lines: list[int]
    broken: list[tuple[int, str, str]]
    bare: int = 0  # rows whose quotes were taken as part of the text


@contextmanager
def _long_fields() -> Iterator[None]:
    """Lift csv's limit of 131,072 characters a field: whole documents are longer."""
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _reader(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    # A blank before a quote is layout in `a, "b"`; after a tab it belongs to the text.
    return csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=delimiter != "\t")


def _delimiter(header: str, wanted: set[str], said: str) -> str:
    """The one that shows most of the wanted columns in the header, then the one with most names."""

    def merit(delimiter: str) -> tuple[int, int]:
        try:
            names = next(_reader([header], delimiter))
        except csv.Error:
            names = header.split(delimiter)
        return len({name.strip() for name in names} & wanted), len(names)

    usual = "," if said.lower().endswith(".csv") else "\t"
    return max((usual, *DELIMITERS), key=merit)


def _header(lines: list[str], first: int, delimiter: str, said: str) -> tuple[tuple[str, ...], int]:
    cursor = _Lines(lines, first)
    try:
        names = tuple(name.strip() for name in next(_reader(cursor, delimiter)))
    except csv.Error as fault:
        raise Mistake(
            f"{said} line {first + 1}: the header has broken quoting ({fault}); close every quote"
        ) from None
    if any("\udc80" <= character <= "\udcff" for name in names for character in name):
        raise Mistake(f"{said} line {first + 1}: the header is not UTF-8; save the file as UTF-8")
    return names, cursor.at


def _widened(names: tuple[str, ...], found: _Found, notes: list[str], said: str) -> tuple[str, ...]:
    """Names for rows that all have one field more than the header."""
    if not any(cells[-1].strip() for cells in found.cells):
        return (*names, "")  # every row ends in a delimiter
    notes.append(
        f"{said}: the header has one name less than the rows have fields; the first field was "
        "taken for an unnamed index"
    )
    return ("", *names)


def _records(lines: list[str], first: int, delimiter: str, width: int) -> _Found:
    found = _Found([], [], [])
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
            why = "a quote opens a field and does not close it; double quotes inside a quoted field"
        else:
            if width == 1:  # a blank line is an empty field: rows are not to be miscounted
                cells = cells or [""]
            elif not cells or (len(cells) == 1 and not cells[0].strip()):
                continue  # a blank line is no row
            if len(cells) != width:
                fields = "1 field" if len(cells) == 1 else f"{len(cells)} fields"
                why = f"the row has {fields}; expected {width}, as in the header"
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
            found.broken.append((start + 1, lines[start].rstrip("\r\n"), why))
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
