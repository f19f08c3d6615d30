"""Spans as cells: every form that is read, and the sentence for every one that is not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.spans.cells import SpanError, as_json, spans_of, text_of
from bough.spans.schemes import Span

TEXT = "Was in Paris."
PLACE = Span(7, 12, "place")


@pytest.mark.parametrize(
    "cell",
    [
        [{"start": 7, "end": 12, "label": "place", "score": 0.5}],
        [[7, 12, "place"]],
        [(7, 12, " place ")],
        {"entities": [[7, 12, "place"]]},
        '[{"start": 7, "end": 12, "label": "place"}]',
        [[6, 12, "place"]],  # a blank belongs to no word
    ],
)
def test_every_form_is_read(cell):
    assert spans_of(cell, TEXT) == (PLACE,)


def test_none_and_several_in_order():
    assert spans_of([], TEXT) == spans_of("[]", TEXT) == ()
    assert spans_of([[7, 12, "b"], [0, 3, "a"]], TEXT) == (Span(0, 3, "a"), Span(7, 12, "b"))


def test_words_with_tags():
    words = ["Was", "in", "Paris", "."]
    assert text_of(words) == "Was in Paris ."
    assert text_of("as it is") == "as it is"
    assert spans_of(["O", "O", "B-place", "O"], words) == (PLACE,)


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ("place", "the label is no JSON; expected a list such as"),
        (7, "the label is no list of spans"),
        ([7], "span 1 is 7; expected a list such as"),
        ([[0, 3]], r"span 1 is \[0, 3\]"),
        ([[0, 3, "a"], [4, "6", "b"]], "span 2: its end is '6'; expected a whole number"),
        ([[0.0, 3, "a"]], "span 1: its start is 0.0; expected a whole number"),
        ([{"start": 0, "label": "a"}], "span 1: its end is None"),
        ([[True, 3, "a"]], "span 1: its start is True"),
        ([[0, 3, ""]], "span 1: its label is ''; expected a name"),
        ([[0, 3, 5]], "span 1: its label is 5"),
        ([[7, 14, "a"]], r"span 1: \[7, 14\) is not within the text's 13 characters"),
        ([[3, 3, "a"]], r"span 1: \[3, 3\) is not within"),
        ([[-2, 3, "a"]], r"span 1: \[-2, 3\) is not within"),
        ([[3, 4, "a"]], r"span 1: \[3, 4\) holds nothing but blanks"),
        ([[0, 6, "a"], [4, 12, "b"]], r"the spans \[0, 6\) 'a' and \[4, 12\) 'b' overlap"),
    ],
)
def test_what_is_no_span_is_said(cell, sentence):
    with pytest.raises(SpanError, match=sentence):
        spans_of(cell, TEXT)


def test_tags_that_do_not_fit_their_words():
    with pytest.raises(SpanError, match="there are 1 tags for 2 words"):
        spans_of(["O"], ["a", "b"])
    with pytest.raises(SpanError, match="tag 2 is 'x': the tag is none"):
        spans_of(["O", "x"], ["a", "b"])


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 13), st.sampled_from("ab"))))
def test_what_is_written_is_read_again(items):
    try:
        spans = spans_of(list(items), TEXT)
    except SpanError:
        return
    assert spans_of(as_json(spans), TEXT) == spans
    scored = json.loads(as_json(spans, [0.25] * len(spans)))
    assert all(item["score"] == 0.25 for item in scored)
