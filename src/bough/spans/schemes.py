"""Spans as tags, one per word, and back.

A file may write spans in any of the usual ways: BIO, where B- begins a span and I- goes on; IOB1,
where B- stands only between two spans that touch; BIOES and BILOU, which also mark a span's end and
one of a single word. One rule reads them all, and broken sequences too: it is conlleval's, and
seqeval's where it is not strict. What a head learns is one `Scheme` of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

OUTSIDE = "O"
NO_WORD = -1  # in place of a tag, where a text has no more words
SchemeName = Literal["bio", "bioes"]
_LIKE = {"L": "E", "U": "S"}  # BILOU's last and unit are BIOES's end and single
_PREFIXES = "BIESLU"


class Span(NamedTuple):
    """A stretch with a label: [start, end) in characters of a text, or in words."""

    start: int
    end: int
    label: str


def is_label(name: object) -> bool:
    """Whether it can name spans: a text with something in it that can be written."""
    if not isinstance(name, str) or not name.strip():
        return False
    return not any("\ud800" <= sign <= "\udfff" for sign in name)  # half a character, or no UTF-8


class TagError(ValueError):
    """A tag that is none, by its place among the others."""

    def __init__(self, place: int, tag: object):
        super().__init__(
            "the tag is none; expected O, or B-, I-, E- or S- and a label, for example B-person"
        )
        self.place = place
        self.tag = tag


def spans_of_tags(tags: Sequence[object]) -> list[Span]:
    """The spans, in words, that tags of any scheme stand for; a `TagError` at the first bad tag.

    A span ends before a tag of another label, before B and S, and after E and S; it begins at B
    and S, and at whatever follows no word of its own label.
    """
    spans: list[Span] = []
    start, label, closed = -1, "", True  # of the span that the word before is in
    for place, tag in enumerate(tags):
        prefix, kind = _parts(place, tag)
        goes_on = not closed and kind == label and prefix in "IE"
        if start >= 0 and not goes_on:
            spans.append(Span(start, place, label))
            start = -1
        if prefix != OUTSIDE and not goes_on:
            start = place
        label, closed = kind, prefix in "OES"
    if start >= 0:
        spans.append(Span(start, len(tags), label))
    return spans


def _parts(place: int, tag: object) -> tuple[str, str]:
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if isinstance(tag, str) and len(tag) > 2 and tag[0] in _PREFIXES and tag[1] == "-":
        label = tag[2:].strip()
        if is_label(label):
            return _LIKE.get(tag[0], tag[0]), label
    raise TagError(place, tag)


@dataclass(frozen=True)
class Scheme:
    """The tags that a head tells apart: O first, then those of each label in turn."""

    name: SchemeName
    labels: tuple[str, ...]

    @property
    def prefixes(self) -> str:
        return "BI" if self.name == "bio" else "BIES"

    @cached_property
    def tags(self) -> tuple[str, ...]:
        return (OUTSIDE, *(f"{p}-{label}" for label in self.labels for p in self.prefixes))

    def __len__(self) -> int:
        return 1 + len(self.prefixes) * len(self.labels)

    @property
    def begins(self) -> list[bool]:
        """Which tags may stand first, or after a tag that ends a span."""
        return [tag[0] in "OBS" for tag in self.tags]

    @property
    def ends(self) -> list[bool]:
        """Which tags may stand last, or before a tag that begins something."""
        return [tag[0] in ("OES" if self.name == "bioes" else "OBI") for tag in self.tags]

    @property
    def follows(self) -> list[list[bool]]:
        """[before][after]: whether `after` may follow `before`: it goes on with its span, or the
        one ends and the other begins."""
        return [
            [
                (after[0] in "IE" and before[0] in "BI" and after[1:] == before[1:])
                or (ended and begun)
                for after, begun in zip(self.tags, self.begins, strict=True)
            ]
            for before, ended in zip(self.tags, self.ends, strict=True)
        ]

    def of_spans(self, spans: Iterable[Span], words: int) -> list[int]:
        """A tag for each word; spans do not overlap."""
        out = [0] * words
        place = {tag: number for number, tag in enumerate(self.tags)}
        for start, end, label in spans:
            last = end - 1
            for word in range(start, end):
                if self.name == "bio":
                    prefix = "B" if word == start else "I"
                elif start == last:
                    prefix = "S"
                else:
                    prefix = "B" if word == start else "E" if word == last else "I"
                out[word] = place[f"{prefix}-{label}"]
        return out

    def spans(self, path: Sequence[int]) -> list[Span]:
        """The spans, in words, of one tag number for each word."""
        return spans_of_tags([self.tags[number] for number in path])
