"""Words to word pieces: every token has the tag of the word that its last character is in.

Its last, because some tokenizers count the blank before a word to its first token. Tokens of no
characters, as [CLS], and what is in no word have tag 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bough.parts_of_speech.taggers import TaggedWord

Bytes = NDArray[np.int8]


def token_tags(words: Sequence[TaggedWord], offsets: NDArray[np.int64]) -> Bytes:
    """The tag of each token; `offsets` are its begin and end, [tokens, 2], in characters."""
    tags = np.zeros(len(offsets), np.int8)
    if not len(words) or not len(offsets):
        return tags
    starts, ends, numbers = np.array(words, np.int64).T
    last = offsets[:, 1] - 1
    word = np.searchsorted(starts, last, side="right") - 1
    inside = (offsets[:, 1] > offsets[:, 0]) & (word >= 0) & (last < ends[word])
    tags[inside] = numbers[word[inside]]
    return tags


def sequence_tags(
    parts: Sequence[Sequence[TaggedWord]],
    offsets: Sequence[tuple[int, int]],
    part_of: Sequence[int | None],
) -> Bytes:
    """The tags of a sequence of one or two texts; `part_of` says which text each token is of."""
    tags = np.zeros(len(offsets), np.int8)
    places = np.array(offsets, np.int64).reshape(-1, 2)
    whose = np.array([-1 if part is None else part for part in part_of])
    for number, words in enumerate(parts):
        own = whose == number
        tags[own] = token_tags(words, places[own])
    return tags
