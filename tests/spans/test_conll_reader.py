"""CoNLL files as they are found."""

from __future__ import annotations

import pytest

from bough.spans.conll_reader import Block, ConllFile
from bough.spans.schemes import Span


def read(text: str) -> list[Block]:
    return list(ConllFile(text.splitlines(keepends=True)))


def test_words_and_tags_become_a_text_with_spans():
    blocks = read("Was\tO\nin\tO\nNew\tB-place\nParis\tI-place\n.\tO\n\t\nOk\tO\n")
    assert blocks[0] == Block(1, "Was in New Paris .", (Span(7, 16, "place"),))
    assert blocks[1] == Block(7, "Ok", ())


@pytest.mark.parametrize(
    "text",
    [
        "-DOCSTART- -X- -X- O\n\nU.N. NNP I-NP I-ORG\nofficial NN I-NP O\n",  # CoNLL 2003
        "U.N.\tNNP\tB-ORG\r\nofficial\tNN\tO\r\n\r\n\r\n",
        "# id = 7\nU.N. S-ORG\nofficial O",
        "# text = U.N. official\n# more\nU.N.\tU-ORG\nofficial\tO\n",
    ],
)
def test_the_usual_forms(text):
    (block,) = read(text)
    assert (block.text, block.spans) == ("U.N. official", (Span(0, 4, "ORG"),))


def test_a_hash_may_be_a_word():
    (block,) = read("#\tO\n#paris\tB-place\n")
    assert (block.text, block.spans) == ("# #paris", (Span(2, 8, "place"),))
    (block,) = read("# B-tag\nis O\n")
    assert block.text == "# is"


def test_words_alone_are_texts_without_labels():
    assert read("Was\nin\n\nParis\n") == [Block(1, "Was in", None), Block(4, "Paris", None)]


def test_a_blank_inside_a_word_stays():
    (block,) = read("10\u00a0000 O\nx O\n")
    assert block.text == "10\u00a0000 x"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("Paris\n", "the line has 1 field between tabs; expected 2, as in the first"),
        ("Paris\tB-place\tx\n", "the line has 3 fields between tabs; expected 2"),
        ("\tO\n", "the line has a tag and no word"),
        ("Paris\tplace\n", "the tag is none; expected O, or B-, I-, E- or S- and a label"),
    ],
)
def test_a_broken_line_costs_its_text_and_no_other(bad, why):
    first, broken, last = read(f"a\tO\n\nb\tO\n{bad}\nc\tO\n")
    assert (first.text, last.text) == ("a", "c")
    assert broken.line == 4
    assert broken.why.startswith(why)
    assert str(broken.value) in bad
