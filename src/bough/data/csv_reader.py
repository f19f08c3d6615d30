"""CSV and TSV as they are found, quoted or not, every row with its real line.

One broken row costs itself and no other: reading goes on with the line below its first. A file is
walked through row by row and never held whole, unless a quote that is not closed makes it one row.
"""

from __future__ import annotations

import csv
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from bough.errors import UserError

DELIMITERS = ("\t", ",", ";", "|")
UNCLOSED = "a quote opens a field and does not close it; double quotes inside a quoted field"
CLOSED_EARLY = "text follows the closing quote of a field; double quotes inside a quoted field"
LOOK = 1000  # rows that tell whether the header lacks a name
MOST = 0.9  # of a column's cells that say what it holds
Telling = dict[int, set[str] | None]  # the values of a column by its place; None: numbers
_LIMIT_LIFTED = threading.Lock()  # one thread at a time puts it back as it was


class Row(NamedTuple):
    """A row taken apart, or why it could not be."""

    line: int  # its first
    cells: list[str]
    text: str = ""  # of a broken one, its first line
    why: str = ""  # it is broken
    bare: bool = False  # quotes were taken as part of the text
    merged: bool = False  # each of its lines would do as a row


class DelimitedFile:
    """A delimited file: the names of its columns at once, its rows once, as they are asked for."""

    def __init__(self, lines: Iterable[str], source: str, wanted: Iterable[str]):
        """Lines keep their ends; `wanted` columns help to tell which delimiter the file uses."""
        self.source = source
        self._lines = _Lines(_without_tail(lines))
        self._bare = 0
        self._merged: list[int] = []  # lines of rows that may be several
        self._telling: Telling = {}
        header = self._lines.next_written()
        if header is None:
            raise UserError(f"{source} is empty; expected a header and rows")
        self._delimiter = _delimiter(header, set(wanted), source)
        self.names = self._header()
        self._index = self._widen()

    def __iter__(self) -> Iterator[Row]:
        for row in self._records(len(self.names)):
            self._bare += row.bare
            if row.merged:
                self._merged.append(row.line)
            yield row
            self._lines.forget()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, of the rows so far."""
        notes = []
        if self._index:
            notes.append(
                f"{self.source}: the header has one name less than the rows have fields; the first "
                "field was taken for an unnamed index"
            )
        if self._bare:
            rows = "1 row holds" if self._bare == 1 else f"{self._bare:,} rows hold"
            notes.append(
                f"{self.source}: {rows} quotes that quote no field; kept as part of the text"
            )
        if self._merged:
            rows = "1 row has" if len(self._merged) == 1 else f"{len(self._merged):,} rows have"
            notes.append(
                f"{self.source}: {rows} a quoted field over several lines, each of which would do "
                f"as a row (first on line {self._merged[0]}); close the quote if one is lost there"
            )
        return tuple(notes)

    def _header(self) -> tuple[str, ...]:
        where = f"{self.source} line {self._lines.number}"
        reader = _reader(self._lines, self._delimiter)
        try:
            names = tuple(name.strip() for name in _fields(reader, self._lines))
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
            raise UserError(f"{self.source} has a header and no rows; expected rows below it")
        if not all(row.why for row in look):
            self._telling = _telling(look)
            return False
        wider = list(islice(self._records(len(self.names) + 1), LOOK))
        self._lines.at = start
        if not wider or any(row.why for row in wider):
            return False
        self._telling = _telling(wider)
        index = any(row.cells[-1].strip() for row in wider)  # else every row ends in a delimiter
        self.names = ("", *self.names) if index else (*self.names, "")
        return index

    def _records(self, width: int) -> Iterator[Row]:
        lines = self._lines
        reader = _reader(lines, self._delimiter)
        while True:
            start, number, merged = lines.at, lines.number, False
            try:
                cells = _fields(reader, lines)
            except StopIteration:
                return
            except csv.Error as error:
                cells, why = [], _reason(error, lines.at - start)
            else:
                if width == 1:  # a blank line is an empty field: rows are not to be miscounted
                    cells = cells or [""]
                elif not cells or (len(cells) == 1 and not cells[0].strip()):
                    continue  # a blank line is no row
                plain = len(cells) == width and lines.at - start == 1
                why = "" if plain else self._fault(cells, start, width)
                merged = not plain and not why and self._are_rows(lines.kept[start : lines.at])
            if not why:
                yield Row(number, cells, merged=merged)
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

    def _are_rows(self, lines: Sequence[str]) -> bool:
        """Whether each of a row's lines would do as one, by the columns that tell."""
        for line in lines:
            pieces = [piece.strip(' "\r\n') for piece in line.split(self._delimiter)]
            if len(pieces) != len(self.names):
                return False
            for place, known in self._telling.items():
                if not (_is_number(pieces[place]) if known is None else pieces[place] in known):
                    return False
        return bool(self._telling)


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


def _reader(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    # A blank before a quote is layout in `a, "b"`; after a tab it belongs to the text.
    return csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=delimiter != "\t")


def _fields(reader: Iterator[list[str]], lines: _Lines) -> list[str]:
    """The next row's fields, of any length: whole documents are longer than csv's limit.

    The limit is all of Python's, so it is lifted for such a row alone.
    """
    start = lines.at
    try:
        return next(reader)
    except csv.Error as error:
        if "field limit" not in str(error):
            raise
    with _LIMIT_LIFTED:
        limit = csv.field_size_limit(2**31 - 1)
        try:
            lines.at = start
            return next(reader)
        finally:
            csv.field_size_limit(limit)


def _delimiter(header: str, wanted: set[str], source: str) -> str:
    """The one that shows most of the wanted columns in the header, then the one with most names."""

    def merit(delimiter: str) -> tuple[int, int]:
        try:
            names = next(_reader([header], delimiter))
        except csv.Error:
            names = header.split(delimiter)
        return len({name.strip() for name in names} & wanted), len(names)

    usual = "," if source.lower().endswith(".csv") else "\t"
    return max((usual, *DELIMITERS), key=merit)


def _reason(error: csv.Error, lines: int) -> str:
    """Why csv could not take a row of so many lines apart."""
    if "unexpected end" in str(error):
        return UNCLOSED
    if "expected after" in str(error):
        # A quote that only a later line's quote has closed was not meant to reach so far.
        return CLOSED_EARLY if lines == 1 else UNCLOSED
    return f"the row cannot be taken apart: {error}"


def _swallowed(lines: Sequence[str], delimiter: str, width: int) -> bool:
    """Whether a field over several lines is rather a lost quote with whole rows behind it."""
    # A written paragraph may by chance have the right number of commas in a line or two.
    if width == 1 or (delimiter != "\t" and len(lines) < 4):
        return False
    return all(line.count(delimiter) == width - 1 for line in lines)


def _telling(rows: Sequence[Row]) -> Telling:
    """The columns whose cells no line of a paragraph is likely to have at that place."""
    columns = zip(*(row.cells for row in rows if not row.why), strict=True)
    telling: Telling = {}
    for place, cells in enumerate(columns):
        counts = Counter(cell.strip() for cell in cells)
        if sum(map(_is_number, counts)) >= MOST * len(counts):
            telling[place] = None
            continue
        known = {cell for cell, times in counts.items() if times > 1 and 0 < len(cell) <= 40}
        if sum(counts[cell] for cell in known) >= MOST * len(cells):
            telling[place] = known
    return telling


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _unquoted(cell: str) -> str:
    inner = cell[1:-1]
    if len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inner.replace('""', ""):
        return inner.replace('""', '"')
    return cell
