"""Every token has its word's tag, in any tokenizer, of single texts and of pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from bough.data.tokens import tokenise
from bough.model.pretrained import Encoder
from bough.parts_of_speech.alignment import token_tags
from bough.parts_of_speech.taggers import TAGS, TaggedWord, tagger
from tests import tiny

TEXT = "The unbelievably green trees don't grow."


def test_a_token_has_the_tag_of_the_word_it_ends_in() -> None:
    words = [TaggedWord(0, 3, 6), TaggedWord(4, 8, 8), TaggedWord(8, 9, 13)]
    offsets = np.array([[0, 0], [0, 1], [1, 3], [3, 8], [8, 9], [9, 11], [3, 4]])
    assert token_tags(words, offsets).tolist() == [0, 6, 6, 8, 13, 0, 0]
    assert token_tags([], offsets).tolist() == [0] * 7
    assert token_tags(words, offsets[:0]).tolist() == []


def test_pieces_of_a_word_in_wordpiece(minilm: Encoder) -> None:
    sequences, _ = tokenise([(TEXT,)], minilm.tokenizer, 64, tagger=tagger("pattern"))
    assert sequences.tags is not None
    names = [TAGS[tag] for tag in sequences.tags]
    pieces = minilm.tokenizer.encode(TEXT).tokens
    told = dict(zip(pieces, names, strict=True))
    assert told["[CLS]"] == told["[SEP]"] == ""
    wanted = {"the": "DET", "green": "ADJ", "trees": "NOUN", "grow": "VERB"}
    assert {word: told[word] for word in wanted} == wanted
    goes_on = [i for i, piece in enumerate(pieces) if piece.startswith("##")]
    assert goes_on, "the text has a word of several pieces"
    assert all(names[i] == names[i - 1] for i in goes_on)


def byte_level() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=300, show_progress=False))
    made.post_processor = processors.ByteLevel(trim_offsets=False)  # blanks count to the word
    return made


def metaspace() -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.train_from_iterator(
        [TEXT] * 9, trainers.UnigramTrainer(vocab_size=60, show_progress=False)
    )
    return made


@pytest.mark.parametrize("make", [byte_level, metaspace])
def test_blanks_that_belong_to_a_token_do_not_matter(make: Callable[[], Tokenizer]) -> None:
    made = make()
    sequences, _ = tokenise([(TEXT,)], made, 64, tagger=tagger("pattern"))
    words = tagger("pattern").words(TEXT)
    assert sequences.tags is not None
    for tag, (start, end) in zip(sequences.tags, made.encode(TEXT).offsets, strict=True):
        inside = [w.tag for w in words if w.start < end <= w.end]
        blank = not TEXT[start:end].strip()
        assert tag == (inside[0] if inside and not blank else 0), TEXT[start:end]


def test_pairs_twins_and_cut_texts() -> None:
    words = tiny.tokenizer()
    texts: list[tuple[str, ...]] = [("the old tree", "a leaf does grow"), ("the tree is green",)]
    sequences, cut = tokenise(texts, words, 7, tagger=tagger("pattern"))
    assert cut.tolist() == [True, False]
    names = [[TAGS[t] for t in sequences.tags[a:b]]  # type: ignore[index]
             for a, b in zip(sequences.bounds, sequences.bounds[1:], strict=False)]  # fmt: skip
    assert names[0] == ["", "DET", "ADJ", "", "DET", "NOUN", ""]
    assert names[1] == ["", "DET", "NOUN", "VERB", "ADJ", ""]
    assert sequences.of(np.array([1])).tags.tolist() == sequences.tags[7:].tolist()  # type: ignore[union-attr,index]
    plain, _ = tokenise(texts, words, 7)
    assert plain.tags is None
    assert (plain.ids == sequences.ids).all()
