"""Texts to tokens, once.

A *sequence* is what goes through the encoder in one piece: a text, a joint pair, or one text of a
twin pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from bough.parts_of_speech.alignment import sequence_tags
from bough.parts_of_speech.taggers import Tagger
from bough.spans.words import Words

Ints = NDArray[np.int64]
Text = str | tuple[str, str]


def text_of(parts: Sequence[str]) -> Text:
    """The text, or the pair, that these one or two parts make."""
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])


@dataclass(frozen=True)
class WordIndex:
    """The words of many sequences, end to end: where each is, and its first token."""

    tokens: Ints  # in its own sequence
    edges: Ints  # [words, 2]: begin and end, in characters of the text
    bounds: Ints  # the words of sequence i are [bounds[i], bounds[i + 1])

    @classmethod
    def joined(cls, parts: Sequence[Words]) -> WordIndex:
        sizes = np.fromiter((len(part) for part in parts), np.int64, len(parts))
        return cls(
            np.concatenate([np.zeros(0, np.int64), *(part.tokens for part in parts)]),
            np.concatenate([np.zeros((0, 2), np.int64), *(part.bounds for part in parts)]),
            np.concatenate([np.zeros(1, np.int64), sizes.cumsum()]),
        )

    @property
    def counts(self) -> Ints:
        """Of each sequence."""
        return np.diff(self.bounds)

    def of(self, chosen: Ints) -> WordIndex:
        """Those of the chosen sequences alone."""
        rows, bounds = rows_of(self.bounds, chosen)
        return WordIndex(self.tokens[rows], self.edges[rows], bounds)

    def words(self, sequence: int) -> Words:
        """Those of one sequence."""
        part = slice(self.bounds[sequence], self.bounds[sequence + 1])
        return Words(self.edges[part], self.tokens[part])


@dataclass(frozen=True)
class Sequences:
    """Token ids and segment ids of many sequences, end to end."""

    ids: NDArray[np.int32]
    types: NDArray[np.int8]
    bounds: Ints  # sequence i is ids[bounds[i] : bounds[i + 1]]
    words: WordIndex | None = None  # where some task reads words
    tags: NDArray[np.int8] | None = None  # parts of speech, where the encoder sees them

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def lengths(self) -> Ints:
        return np.diff(self.bounds)

    def of(self, chosen: Ints) -> Sequences:
        """The chosen sequences alone."""
        rows, bounds = rows_of(self.bounds, chosen)
        words = None if self.words is None else self.words.of(chosen)
        tags = None if self.tags is None else self.tags[rows]
        return Sequences(self.ids[rows], self.types[rows], bounds, words, tags)

    def followed_by(self, others: Sequences) -> Sequences:
        """These, then the others."""
        return Sequences(
            np.concatenate([self.ids, others.ids]),
            np.concatenate([self.types, others.types]),
            np.concatenate([self.bounds, others.bounds[1:] + self.bounds[-1]]),
            tags=None
            if self.tags is None or others.tags is None
            else np.concatenate([self.tags, others.tags]),
        )


_none = np.zeros(0, np.int64)
NOTHING = Sequences(_none.astype(np.int32), _none.astype(np.int8), np.zeros(1, np.int64)), _none > 0


def rows_of(bounds: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """The rows of the chosen stretches, one after another, and the bounds they then have."""
    if len(chosen) == 1:  # as below, in less time
        start, end = bounds[chosen[0]], bounds[chosen[0] + 1]
        return np.arange(start, end), np.array([0, end - start])
    sizes = np.diff(bounds)[chosen]
    ends = sizes.cumsum()
    rows = np.arange(sizes.sum(), dtype=np.int64) + np.repeat(
        bounds[chosen] - (ends - sizes), sizes
    )
    return rows, np.concatenate([np.zeros(1, np.int64), ends])


def tokenise(
    texts: Sequence[tuple[str, ...]],
    tokenizer: Tokenizer,
    longest: int,
    words: bool = False,
    tagger: Tagger | None = None,
) -> tuple[Sequences, NDArray[np.bool_]]:
    """Each text, or joint pair, as one sequence; and which were cut to the longest length.

    A pair that is too long loses tokens from the longer text first. With `words` the words of
    single texts are found, too, which takes longer; with a tagger every token's part of speech.
    """
    if not texts and not words and tagger is None:
        return NOTHING
    tokenizer.enable_truncation(longest, strategy="longest_first")
    offsets = words or tagger is not None
    encode = tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast
    if len(texts) == 1:  # a batch of one takes longer
        first, *second = texts[0]
        one = tokenizer.encode(first, second[0] if second else None)
        if not offsets:
            ids, types = np.array(one.ids, np.int32), np.array(one.type_ids, np.int8)
            cut = np.array([bool(one.overflowing)])
            return Sequences(ids, types, np.array([0, len(ids)])), cut
        encodings = [one]
    else:
        encodings = encode([text_of(parts) for parts in texts]) if texts else []
    lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
    bounds = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
    every = chain.from_iterable(encoding.ids for encoding in encodings)
    ids = np.fromiter(every, np.int32, bounds[-1])
    types = np.zeros(bounds[-1], np.int8)
    # A single text's types are those of its template: if the longest has none, no other has.
    longest_one = max(encodings, key=len, default=None)
    if any(len(parts) > 1 for parts in texts) or (longest_one and any(longest_one.type_ids)):
        every = chain.from_iterable(encoding.type_ids for encoding in encodings)
        types = np.fromiter(every, np.int8, bounds[-1])
    cut = lengths == longest  # perhaps; only of those it is worth the time to ask
    cut[cut] = [bool(encodings[n].overflowing) for n in np.flatnonzero(cut)]
    index = None
    if words:
        nothing = Words.of("", ())
        index = WordIndex.joined(
            [
                Words.of(parts[0], encoding.offsets) if len(parts) == 1 else nothing
                for parts, encoding in zip(texts, encodings, strict=True)
            ]
        )
    tags = None
    if tagger is not None:
        tags = np.zeros(bounds[-1], np.int8)
        for parts, encoding, start, end in zip(texts, encodings, bounds, bounds[1:], strict=False):
            found = [tagger.words(text) for text in parts]
            tags[start:end] = sequence_tags(found, encoding.offsets, encoding.sequence_ids)
    return Sequences(ids, types, bounds, index, tags), cut
