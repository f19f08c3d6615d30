"""CoNLL files: a word and its tags per line, a blank line after each text.

The first column is the word and the last one its tag; others (part of speech, chunk) are not read.
One broken line costs its text and no other. A file is walked through text by text and never held
whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bough.spans.schemes import Span, TagError, spans_of_tags

DOCUMENT = "-DOCSTART-"  # opens a document in files of the CoNLL 2003 task; no word
TEXT, SPANS = "text", "spans"  # what the two columns are called once they are read


@dataclass(frozen=True)
class Block:
    """One text of a file, or why it could not be read."""

    line: int  # its first; of a broken one, the line at fault
    text: str
    spans: tuple[Span, ...] | None  # in characters; None where the file has words alone
    why: str = ""  # it is broken
    column: str = ""  # at fault
    value: object = ""  # at fault


def join(words: Iterable[str]) -> tuple[str, list[tuple[int, int]]]:
    """The words as a text, a blank between two, and where each is in it."""
    places, at, kept = [], 0, []
    for word in words:
        places.append((at, at + len(word)))
        kept.append(word)
        at += len(word) + 1
    return " ".join(kept), places


def in_characters(spans: Iterable[Span], places: list[tuple[int, int]]) -> tuple[Span, ...]:
    """Spans of words as spans of the characters that `join` put these words at."""
    return tuple(Span(places[s][0], places[e - 1][1], label) for s, e, label in spans)


class ConllFile:
    """A file's texts, once, as they are asked for."""

    def __init__(self, lines: Iterable[str]):
        self._lines = lines
        self._delimiter = ""  # as in the first line with a word
        self._width = 0

    @property
    def tagged(self) -> bool:
        """Whether its lines have tags, as far as they were read."""
        return self._width != 1

    def __iter__(self) -> Iterator[Block]:
        block: list[tuple[int, str]] = []
        for number, line in enumerate(self._lines, 1):
            line = line.rstrip("\r\n")
            if not line.strip():
                if block:
                    yield self._block(block)
                block = []
            elif not self._is_remark(line, inside=bool(block)):
                block.append((number, line))
        if block:
            yield self._block(block)

    def _is_remark(self, line: str, inside: bool) -> bool:
        """The line that opens a document, and comments above a text; `#` may be a word, too."""
        if line.startswith(DOCUMENT):
            return True
        if inside or not line.startswith("#"):
            return False
        *_, last = line.split("\t") if "\t" in line else line.split(" ")
        try:
            spans_of_tags([last])
        except TagError:
            return True
        return False

    def _block(self, lines: list[tuple[int, str]]) -> Block:
        if not self._width:
            self._delimiter = "\t" if "\t" in lines[0][1] else " "
            self._width = len(self._fields(lines[0][1]))
        words, tags = [], []
        for number, line in lines:
            fields = self._fields(line)
            if len(fields) != self._width:
                return _broken(number, self._misfit(len(fields)), "", line)
            if not fields[0].strip():
                return _broken(number, "the line has a tag and no word; write one", "", line)
            words.append(fields[0])
            tags.append(fields[-1].strip())
        text, places = join(words)
        if not self.tagged:
            return Block(lines[0][0], text, None)
        try:
            spans = spans_of_tags(tags)
        except TagError as fault:
            return _broken(lines[fault.place][0], str(fault), SPANS, fault.tag)
        return Block(lines[0][0], text, in_characters(spans, places))

    def _fields(self, line: str) -> list[str]:
        if self._delimiter == "\t":
            return line.split("\t")
        # A blank of another kind (U+00A0) may be part of a word.
        return [field for field in line.split(" ") if field]

    def _misfit(self, fields: int) -> str:
        what = "1 field" if fields == 1 else f"{fields} fields"
        delimiter = "tabs" if self._delimiter == "\t" else "blanks"
        return f"the line has {what} between {delimiter}; expected {self._width}, as in the first"


def _broken(line: int, why: str, column: str, value: object) -> Block:
    return Block(line, "", None, why, column, value)
