"""Texts to tokens, once: segments, cutting, and nothing remembered."""

from __future__ import annotations

import numpy as np
from tokenizers import processors

from bough.data.tokens import tokenise
from tests import tiny

CLS, SEP = 2, 3


def words(count: int) -> str:
    return " ".join((tiny.WORDS * 3)[:count])


def test_texts_and_pairs_with_their_segments() -> None:
    texts: list[tuple[str, ...]] = [("a tree",), ("the leaf", "a root is"), ("who", "what")]
    sequences, cut = tokenise(texts, tiny.tokenizer(), 40)
    ids = {word: i + 4 for i, word in enumerate(tiny.WORDS)}
    assert cut.sum() == 0
    assert sequences.lengths.tolist() == [4, 8, 5]
    first, second, third = np.split(sequences.ids, sequences.bounds[1:-1])
    assert first.tolist() == [CLS, ids["a"], ids["tree"], SEP]
    wanted = [CLS, ids["the"], ids["leaf"], SEP, ids["a"], ids["root"], ids["is"], SEP]
    assert second.tolist() == wanted
    assert third.tolist() == [CLS, ids["who"], SEP, ids["what"], SEP]
    types = np.split(sequences.types, sequences.bounds[1:-1])
    assert [t.tolist() for t in types] == [[0] * 4, [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1]]


def test_families_without_segments_have_none() -> None:
    sequences, _ = tokenise([("a tree", "the leaf")], tiny.tokenizer("roberta"), 40)
    assert len(sequences.ids) == 8  # two separators between the texts
    assert not sequences.types.any()


def test_a_template_may_give_single_texts_segments() -> None:
    tokenizer = tiny.tokenizer()
    special = [("[CLS]", CLS), ("[SEP]", SEP)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:2 $A:1 [SEP]:0", pair="[CLS]:0 $A:0 $B:0 [SEP]:0", special_tokens=special
    )
    for texts in ([("a",), ("a tree",)], [("a",), ("a tree",), ("who", "what")]):
        sequences, _ = tokenise(texts, tokenizer, 40)
        assert sequences.types[:7].tolist() == [2, 1, 0, 2, 1, 1, 0]
        assert not sequences.types[7:].any()
    assert not len(tokenise([], tokenizer, 40)[0])


def test_what_is_too_long_is_cut_and_counted() -> None:
    texts: list[tuple[str, ...]] = [
        (words(30),),
        (words(8),),  # with the special tokens just as long as may be
        (words(9),),
        (words(2), words(20)),
        (words(20), words(20)),
        (words(3), words(4)),
    ]
    sequences, cut = tokenise(texts, tiny.tokenizer(), 10)
    assert cut.sum() == 4
    assert sequences.lengths.tolist() == [10, 10, 10, 10, 10, 10]
    parts = np.split(sequences.types, sequences.bounds[1:-1])
    assert parts[3].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]  # the longer text gives way
    assert abs(parts[4].sum() - 5) <= 1  # two long ones share
    ends = sequences.ids[sequences.bounds[1:] - 1]
    assert ends.tolist() == [SEP] * 6
    again, cut = tokenise(texts, tiny.tokenizer(), 60)  # cutting is not remembered
    assert cut.sum() == 0
    assert again.lengths.max() == 43


def test_one_tokenizer_may_be_asked_for_several_lengths() -> None:
    tokenizer = tiny.tokenizer()
    text: list[tuple[str, ...]] = [(words(20),)]
    assert [tokenise(text, tokenizer, n)[0].lengths[0] for n in (10, 40, 5)] == [10, 22, 5]


def test_nothing_to_tokenise() -> None:
    sequences, cut = tokenise([], tiny.tokenizer(), 10)
    assert len(sequences) == 0
    assert cut.sum() == 0
