"""Words of a text, the tokens that speak for them, and spans between the two."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from bough.spans.schemes import Span
from bough.spans.words import Words, words_of


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in words_of(text).tolist()]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Was in Paris.", ["Was", "in", "Paris", "."]),
        ("@paulwalk It's", ["@", "paulwalk", "It", "'", "s"]),
        ("Coca-Cola\u00a0(U.S.)", ["Coca", "-", "Cola", "(", "U", ".", "S", ".", ")"]),
        ("naive\u0301 हिन्दी", ["naive\u0301", "हिन्दी"]),  # marks belong to their letters
        ("東京へ行く abc", ["東", "京", "へ", "行", "く", "abc"]),
        ("👩\u200d👧 ok", ["👩\u200d", "👧", "ok"]),
        (" \n\t", []),
    ],
)
def test_words(text, words):
    assert cut(text) == words


@given(st.text(max_size=40))
def test_words_are_all_that_is_no_blank_and_in_order(text):
    bounds = words_of(text).tolist()
    covered = {i for start, end in bounds for i in range(start, end)}
    assert covered >= {i for i, sign in enumerate(text) if not sign.isspace()}
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(bounds))
    assert all(text[start:end].strip() for start, end in bounds)


def pieces() -> Tokenizer:
    """Word pieces of a few letters, after BERT's cleaning."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    words = ["[UNK]", *letters, *(f"##{x}" for x in letters), "par", "##is", "new", ".", "@", "'"]
    made = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def metaspace() -> Tokenizer:
    """Pieces that begin with their blank, and some that hold several of our words."""
    scores = [("<unk>", -9.0), ("▁", -3.0), ("▁Paris", -1.0), ("...", -1.0), ("▁in", -1.0)]
    scores += [(chr(c), -6.0) for c in range(33, 127)]
    made = Tokenizer(models.Unigram(scores, unk_id=0))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    return made


def aligned(text: str, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    encoding = tokenizer.encode(text)
    words = Words.of(text, encoding.offsets)
    return [
        (text[start:end], encoding.tokens[token])
        for (start, end), token in zip(words.bounds.tolist(), words.tokens.tolist(), strict=True)
    ]


def test_a_word_is_read_at_its_first_piece():
    found = aligned("New Paris. @pa", pieces())
    assert found == [("New", "new"), ("Paris", "par"), (".", "."), ("@", "@"), ("pa", "p")]


def test_accents_and_signs_that_the_tokenizer_drops_move_nothing():
    assert aligned("a\u0301\x00 \x07 par", pieces()) == [("a\u0301", "a"), ("par", "par")]


def test_a_blank_before_a_piece_is_not_the_word():
    assert aligned("in Paris", metaspace()) == [("in", "▁in"), ("Paris", "▁Paris")]


def test_words_that_share_a_token_are_one():
    assert aligned("Paris...", metaspace()) == [("Paris", "▁Paris"), ("...", "...")]


def test_words_behind_the_cut_have_no_token():
    tokenizer = pieces()
    tokenizer.enable_truncation(3)
    assert [word for word, _ in aligned("new par xyz abc", tokenizer)] == ["new", "par", "xyz"]


def test_no_tokens_or_no_words():
    assert len(Words.of("", [])) == len(Words.of("abc", [(0, 0)])) == 0


@given(st.text(st.characters(max_codepoint=0x2FFF), max_size=30))
def test_words_of_any_text_are_in_order_and_have_tokens_of_their_own(text):
    for tokenizer in (pieces(), metaspace()):
        encoding = tokenizer.encode(text)
        words = Words.of(text, encoding.offsets)
        tokens, bounds = words.tokens.tolist(), words.bounds.tolist()
        assert tokens == sorted(set(tokens))
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(bounds))
        for (start, end), token in zip(bounds, tokens, strict=True):
            first, last = encoding.offsets[token]
            assert max(start, first) < min(end, last)  # they overlap


def test_spans_in_words_and_back():
    text = "Was in New Paris."
    words = Words.of(text, pieces().encode(text).offsets)
    place = Span(7, 16, "place")
    assert words.in_words([place]) == ([Span(2, 4, "place")], 0)
    assert words.in_text(Span(2, 4, "place")) == place


def test_spans_that_no_words_can_give_back_are_counted():
    text = "Was in New Paris."
    words = Words.of(text, pieces().encode(text).offsets)
    part = [Span(7, 9, "x"), Span(9, 10, "y"), Span(11, 13, "z")]  # Ne, w, Pa
    assert words.in_words(part) == ([Span(2, 3, "x"), Span(3, 4, "z")], 3)
    assert words.in_words([Span(40, 50, "x")]) == ([], 1)
