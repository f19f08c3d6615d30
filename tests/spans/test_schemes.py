"""Spans and tags: what any scheme says, held against seqeval, and what a head learns."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from bough.spans.schemes import Scheme, SchemeName, Span, TagError, spans_of_tags

LABELS = ("person", "creative-work")
any_tag = st.sampled_from(["O", *(f"{p}-{label}" for p in "BIES" for label in LABELS)])


@given(st.lists(any_tag, max_size=12))
def test_any_tags_are_read_as_seqeval_reads_them(tags):
    theirs = [Span(start, end + 1, label) for label, start, end in get_entities(tags)]
    assert spans_of_tags(tags) == theirs


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("B-a I-a O", [(0, 2, "a")]),
        ("I-a I-a B-a O I-b", [(0, 2, "a"), (2, 3, "a"), (4, 5, "b")]),  # IOB1
        ("S-a B-a E-a B-b I-b E-b", [(0, 1, "a"), (1, 3, "a"), (3, 6, "b")]),
        ("U-a B-a L-a", [(0, 1, "a"), (1, 3, "a")]),  # BILOU
        ("", []),
    ],
)
def test_every_scheme_is_read(tags, spans):
    assert spans_of_tags(tags.split()) == [Span(*span) for span in spans]


@pytest.mark.parametrize("bad", ["person", "B-", "Q-a", "o", "", "B_a", "(ORG*", None, 3])
def test_a_bad_tag_is_named_by_its_place(bad):
    with pytest.raises(TagError, match="expected O, or B-") as fault:
        spans_of_tags(["O", "B-a", bad])
    assert (fault.value.place, fault.value.tag) == (2, bad)


@st.composite
def written_spans(draw) -> tuple[list[Span], int]:
    words = draw(st.integers(1, 12))
    edges = sorted(draw(st.sets(st.integers(0, words), max_size=6)))
    kept = [
        Span(start, end, draw(st.sampled_from(LABELS)))
        for start, end in itertools.pairwise(edges)
        if draw(st.booleans())
    ]
    return kept, words


@pytest.mark.parametrize("name", ["bio", "bioes"])
@given(case=written_spans())
def test_spans_come_back_from_their_tags(name: SchemeName, case):
    spans, words = case
    scheme = Scheme(name, LABELS)
    path = scheme.of_spans(spans, words)
    assert len(path) == words
    assert scheme.spans(path) == spans
    # And the tags follow each other as the scheme says they may.
    assert scheme.begins[path[0]]
    assert scheme.ends[path[-1]]
    assert all(scheme.follows[a][b] for a, b in itertools.pairwise(path))


@pytest.mark.parametrize(("name", "tags"), [("bio", 5), ("bioes", 9)])
def test_what_may_follow_what(name: SchemeName, tags):
    scheme = Scheme(name, LABELS)
    assert len(scheme) == len(scheme.tags) == tags
    place = {tag: number for number, tag in enumerate(scheme.tags)}

    def may(before: str, after: str) -> bool:
        return scheme.follows[place[before]][place[after]]

    assert may("B-person", "I-person")
    assert not may("O", "I-person")
    assert not may("B-person", "I-creative-work")
    assert may("B-person", "O") == (name == "bio")
    assert may("O", "B-person")
    if name == "bioes":
        assert may("I-person", "E-person")
        assert may("E-person", "S-person")
        assert not may("I-person", "S-person")
        assert not may("E-person", "E-person")
