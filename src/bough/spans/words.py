"""The words of a text, and the token that speaks for each.

A span begins and ends where a word does. Words are cut the same way from any text, whoever wrote
it: letters, digits and marks together, every other sign alone, and each character alone in scripts
that put no blanks between words. So what is learned from tokens of a file is what is asked of a
plain text later.

A word's tag is read from its first token: the pieces that follow have no tag of their own to tell,
a word of many pieces would otherwise count as often in the loss, and no answer can then cut a word.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bough.spans.schemes import Span

Ints = NDArray[np.int64]
# Scripts without blanks between words: Thai and Lao, Burmese, Khmer, kana, Han.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"  # inside words of some scripts, and inside emoji


@cache
def _pattern() -> re.Pattern[str]:
    marks = _marks() + _JOINERS
    letter = rf"(?![{_UNSPACED}])\w"
    return re.compile(rf"(?:{letter})(?:{letter}|[{marks}])*|\S[{marks}]*")


def _marks() -> str:
    """Vowel signs, accents and the like, which belong to the letter before, as ranges."""
    ranges: list[str] = []
    start: int | None = None
    for code in range(sys.maxunicode + 2):
        mark = code <= sys.maxunicode and unicodedata.category(chr(code))[0] == "M"
        if mark and start is None:
            start = code
        elif not mark and start is not None:
            ranges.append(f"{chr(start)}-{chr(code - 1)}")
            start = None
    return "".join(ranges)


def as_objects(items: Sequence[Any]) -> NDArray[Any]:
    """An array of as many objects, whatever they hold: numpy would look into lists of spans."""
    out = np.empty(len(items), object)
    for place, item in enumerate(items):
        out[place] = item
    return out


def words_of(text: str) -> Ints:
    """Where each word begins and ends: [words, 2], in characters."""
    found = [word.span() for word in _pattern().finditer(text)]
    return np.array(found, np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class Words:
    """The words of one text that have a token, and which one: words that share one are one."""

    bounds: Ints  # [words, 2]: begin and end, in characters
    tokens: Ints  # [words]: the first token of each

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def of(cls, text: str, offsets: Sequence[tuple[int, int]]) -> Words:
        """`offsets` are the tokens' characters; tokens of no characters are none of the text's."""
        return cls.aligned(words_of(text), np.array(offsets, np.int64).reshape(-1, 2))

    @classmethod
    def aligned(cls, words: Ints, offsets: Ints) -> Words:
        written = np.flatnonzero(offsets[:, 1] > offsets[:, 0])
        if not len(words) or not len(written):
            return cls(np.empty((0, 2), np.int64), np.empty(0, np.int64))
        starts, ends = offsets[written].T
        # The first token that ends behind the word's begin; where it begins behind the word's end,
        # the word has none: it was cut off, or the tokenizer knows none of its characters.
        first = np.searchsorted(np.maximum.accumulate(ends), words[:, 0], side="right")
        inside = np.minimum(first, len(written) - 1)
        has = (first < len(written)) & (starts[inside] < words[:, 1])
        words, tokens = words[has], written[inside[has]]
        new = np.flatnonzero(np.diff(tokens, prepend=-1))
        last = np.append(new[1:], len(tokens)) - 1
        if not len(new):
            return cls(np.empty((0, 2), np.int64), np.empty(0, np.int64))
        return cls(np.stack([words[new, 0], words[last, 1]], 1), tokens[new])

    def in_words(self, spans: Sequence[Span]) -> tuple[list[Span], int]:
        """Spans of characters as spans of words, and how many of them no words can give back.

        A span takes every word that it touches; a word is the first span's.
        """
        found: list[Span] = []
        lost = 0
        free = 0
        for start, end, label in sorted(spans):
            first = max(int(np.searchsorted(self.bounds[:, 1], start, side="right")), free)
            behind = int(np.searchsorted(self.bounds[:, 0], end, side="left"))
            if first >= behind:
                lost += 1
                continue
            edges = int(self.bounds[first, 0]), int(self.bounds[behind - 1, 1])
            lost += edges != (start, end)
            found.append(Span(first, behind, label))
            free = behind
        return found, lost

    def in_text(self, span: Span) -> Span:
        """A span of words as one of characters."""
        return Span(int(self.bounds[span.start, 0]), int(self.bounds[span.end - 1, 1]), span.label)
