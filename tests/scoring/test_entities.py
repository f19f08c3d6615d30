"""Entity scores: seqeval's numbers on the same answers, and how they hang on each text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.scheme import IOB2

from bough.scoring.calibration import distance_from_right
from bough.scoring.entities import counts, per_label, score, span_confidence
from bough.scoring.pseudo_values import pseudo_values
from bough.spans.schemes import Scheme, Span, spans_of_tags
from bough.spans.words import as_objects

LABELS = ("a", "b", "c")
TAGS = ("O", *(f"{p}-{label}" for label in LABELS for p in "BI"))


@st.composite
def answered_texts(draw) -> tuple[list[list[str]], list[list[str]]]:
    lengths = draw(st.lists(st.integers(1, 8), min_size=1, max_size=6))
    tags = st.sampled_from(TAGS)
    sides = [[draw(st.lists(tags, min_size=n, max_size=n)) for n in lengths] for _ in range(2)]
    return sides[0], sides[1]


def spans(texts: list[list[str]]) -> list[list[Span]]:
    return [spans_of_tags(tags) for tags in texts]


@given(answered_texts())
def test_scores_are_those_of_seqeval(case):
    truth, said = case
    found = counts(spans(said), spans(truth))
    theirs = {"entity_f1": f1_score, "precision": precision_score, "recall": recall_score}
    for metric, function in theirs.items():
        assert score(metric, found) == pytest.approx(function(truth, said, zero_division=0))
    if not any(tag != "O" for side in case for tags in side for tag in tags):
        return  # seqeval divides by nothing there
    each = classification_report(truth, said, output_dict=True, zero_division=0)
    for label, scores in per_label(spans(said), spans(truth), LABELS).items():
        known = each.get(label, {"precision": 0, "recall": 0, "f1-score": 0, "support": 0})
        assert scores["precision"] == pytest.approx(known["precision"])
        assert scores["recall"] == pytest.approx(known["recall"])
        assert scores["f1"] == pytest.approx(known["f1-score"])
        assert scores["spans"] == known["support"]


@given(answered_texts())
def test_sequences_of_a_scheme_score_the_same_where_seqeval_is_strict(case):
    scheme = Scheme("bio", LABELS)
    truth, said = (
        [[scheme.tags[t] for t in scheme.of_spans(spans_of_tags(tags), len(tags))] for tags in side]
        for side in case
    )
    strict = f1_score(truth, said, mode="strict", scheme=IOB2, zero_division=0)
    assert score("entity_f1", counts(spans(said), spans(truth))) == pytest.approx(strict)


@pytest.mark.parametrize("metric", ["entity_f1", "precision", "recall"])
@given(case=answered_texts())
def test_pseudo_values_are_the_jackknife(metric, case):
    truth, said = map(spans, case)
    value, values = pseudo_values(metric, as_objects(said), as_objects(truth))
    assert value == pytest.approx(score(metric, counts(said, truth)))
    assert values.mean() == pytest.approx(value)
    n = len(truth)
    without = np.array(
        [
            score(metric, counts(said[:i] + said[i + 1 :], truth[:i] + truth[i + 1 :]))
            for i in range(n)
        ]
    )
    assert values == pytest.approx(value + (n - 1) * (without.mean() - without))


def test_how_sure_spans_are_is_held_against_how_often_they_are_right():
    right, wrong = Span(0, 1, "a"), Span(2, 3, "a")
    sure, hits = span_confidence([[right, wrong], []], [[0.9, 0.4], []], [[right], [wrong]])
    assert (sure.tolist(), hits.tolist()) == ([0.9, 0.4], [True, False])
    assert distance_from_right(sure, hits) == pytest.approx((0.1 + 0.4) / 2)
    assert distance_from_right(sure[:0], hits[:0]) == 0
