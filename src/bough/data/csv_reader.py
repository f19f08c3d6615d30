"""Delimited: CSV and TSV as they are found, quoted or not, every row with its real line.

One broken row costs itself and no other: reading goes on with the line below its first. A file is
walked through row by row and never held whole, unless a quote that is not closed makes it one row.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from bough.errors import UserError

DELIMITERS = ("\t", ",", ";", "|")
UNCLOSED = "a quote opens a field and does not close it; double quotes inside a quoted field"
LOOK = 1000  # rows that tell whether the header lacks a name


@dataclass(frozen=True)
class Row:
    """A row taken apart, or why it could not be."""

    line: int  # its first
    cells: list[str]
    text: str = ""  # of a broken one, its first line
    why: str = ""  # it is broken
    bare: bool = False  # quotes were taken as part of the text


class Sheet:
    """A delimited file: the names of its columns at once, its rows once, as they are asked for."""

    def __init__(self, lines: Iterable[str], said: str, wanted: Iterable[str]):
        """Lines keep their ends; `wanted` columns help to tell which delimiter the file uses."""
        self.said = said
        self._lines = _Lines(_without_tail(lines))
        self._bare = 0
        header = self._lines.next_written()
        if header is None:
            raise UserError(f"{said} is empty; expected a header and rows")
        with _long_fields():
            self._delimiter = _delimiter(header, set(wanted), said)
            self.names = self._header()
            self._index = self._widen()

    def __iter__(self) -> Iterator[Row]:
        with _long_fields():
            for row in self._records(len(self.names)):
                self._bare += row.bare
                yield row
                self._lines.forget()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, of the rows so far."""
        notes = []
        if self._index:
            notes.append(
                f"{self.said}: the header has one name less than the rows have fields; the first "
                "field was taken for an unnamed index"
            )
        if self._bare:
            rows = "1 row holds" if self._bare == 1 else f"{self._bare:,} rows hold"
            notes.append(
                f"{self.said}: {rows} quotes that quote no field; kept as part of the text"
            )
        return tuple(notes)

    def _header(self) -> tuple[str, ...]:
        where = f"{self.said} line {self._lines.number}"
        try:
            names = tuple(name.strip() for name in next(_reader(self._lines, self._delimiter)))
        except csv.Error as fault:
            raise UserError(
                f"{where}: the header has broken quoting ({fault}); close every quote"
            ) from None
        if any("\udc80" <= character <= "\udcff" for name in names for character in name):
            raise UserError(f"{where}: the header is not UTF-8; save the file as UTF-8")
        return names

    def _widen(self) -> bool:
        """Name what the header does not, if all rows have one field more; whether as an index."""
        start = self._lines.at
        look = list(islice(self._records(len(self.names)), LOOK))
        self._lines.at = start
        if not look:
            raise UserError(f"{self.said} has a header and no rows; expected rows below it")
        if not all(row.why for row in look):
            return False
        wider = list(islice(self._records(len(self.names) + 1), LOOK))
        self._lines.at = start
        if not wider or any(row.why for row in wider):
            return False
        index = any(row.cells[-1].strip() for row in wider)  # else every row ends in a delimiter
        self.names = ("", *self.names) if index else (*self.names, "")
        return index

    def _records(self, width: int) -> Iterator[Row]:
        lines = self._lines
        reader = _reader(lines, self._delimiter)
        while True:
            start, number = lines.at, lines.number
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error:
                cells, why = [], UNCLOSED
            else:
                if width == 1:  # a blank line is an empty field: rows are not to be miscounted
                    cells = cells or [""]
                elif not cells or (len(cells) == 1 and not cells[0].strip()):
                    continue  # a blank line is no row
                why = self._fault(cells, start, width)
            if not why:
                yield Row(number, cells)
                continue
            first = lines.kept[start].rstrip("\r\n")
            lines.at = start + 1
            bare = first.split("\t")
            if self._delimiter == "\t" and len(bare) == width:
                # A tab separates whatever the quotes do, so a line with the right number of them
                # is a row of a file that was written without quoting.
                yield Row(number, [_unquoted(cell) for cell in bare], bare=True)
            else:
                yield Row(number, [], first, why)

    def _fault(self, cells: Sequence[str], start: int, width: int) -> str:
        """Why these fields, of the lines since `start`, are no row; nothing if they are one."""
        if len(cells) != width:
            fields = "1 field" if len(cells) == 1 else f"{len(cells)} fields"
            return f"the row has {fields}; expected {width}, as in the header"
        lines = self._lines.kept[start : self._lines.at]
        if len(lines) > 1 and _swallowed(lines, self._delimiter, width):
            last = self._lines.number - 1
            return f"a quote opens a field and closes only on line {last}; close it"
        return ""


class _Lines:
    """The physical lines of a file for csv.reader, with a position that can be set back."""

    def __init__(self, source: Iterable[str]) -> None:
        self.kept: list[str] = []
        self.at = 0  # the next, of those that are kept
        self._source = iter(source)
        self._gone = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.at == len(self.kept):
            self.kept.append(next(self._source))
        self.at += 1
        return self.kept[self.at - 1]

    @property
    def number(self) -> int:
        """The next line's, from 1."""
        return self._gone + self.at + 1

    def next_written(self) -> str | None:
        """The next line with something in it, which stays the next; None at the end."""
        for line in self:
            if line.strip():
                self.at -= 1
                return line
        return None

    def forget(self) -> None:
        """Let the lines before the position go: many at once, as those behind it have to move."""
        if self.at > LOOK:
            del self.kept[: self.at]
            self._gone += self.at
            self.at = 0


def _without_tail(lines: Iterable[str]) -> Iterator[str]:
    """Without the empty lines at the end, which are no rows of a single column."""
    empty: list[str] = []
    for line in lines:
        if line.strip("\r\n"):
            yield from empty
            empty.clear()
            yield line
        else:
            empty.append(line)


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
