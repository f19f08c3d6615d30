"""Entity scores: seqeval's numbers on the same answers, and how they hang on each text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.scheme import IOB2

from bough.scoring.entities import counts, entity_metrics, entity_pseudo_values, per_label
from bough.spans.schemes import Scheme, Span, spans_of_tags

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
    ours = entity_metrics(spans(said), spans(truth))
    assert ours["entity_f1"] == pytest.approx(f1_score(truth, said, zero_division=0))
    assert ours["precision"] == pytest.approx(precision_score(truth, said, zero_division=0))
    assert ours["recall"] == pytest.approx(recall_score(truth, said, zero_division=0))
    if not any(tag != "O" for side in case for tags in side for tag in tags):
        return  # seqeval divides by nothing there
    theirs = classification_report(truth, said, output_dict=True, zero_division=0)
    for label, scores in per_label(spans(said), spans(truth), LABELS).items():
        known = theirs.get(label, {"precision": 0, "recall": 0, "f1-score": 0, "support": 0})
        assert scores["precision"] == pytest.approx(known["precision"])
        assert scores["recall"] == pytest.approx(known["recall"])
        assert scores["f1"] == pytest.approx(known["f1-score"])
        assert scores["rows"] == known["support"]


@given(answered_texts())
def test_sequences_of_a_scheme_score_the_same_where_seqeval_is_strict(case):
    scheme = Scheme("bio", LABELS)
    truth, said = (
        [[scheme.tags[t] for t in scheme.of_spans(spans_of_tags(tags), len(tags))] for tags in side]
        for side in case
    )
    strict = f1_score(truth, said, mode="strict", scheme=IOB2, zero_division=0)
    assert entity_metrics(spans(said), spans(truth))["entity_f1"] == pytest.approx(strict)


@given(answered_texts())
def test_pseudo_values_are_the_jackknife_of_f1(case):
    truth, said = map(spans, case)
    found = counts(said, truth)
    score, values = entity_pseudo_values(found)
    assert score == pytest.approx(entity_metrics(said, truth)["entity_f1"])
    assert values.mean() == pytest.approx(score)
    n = len(truth)
    without = np.array(
        [
            entity_metrics(said[:i] + said[i + 1 :], truth[:i] + truth[i + 1 :])["entity_f1"]
            for i in range(n)
        ]
    )
    assert values == pytest.approx(score + (n - 1) * (without.mean() - without))
