"""Spans held against the right ones: precision, recall and F1, together and label by label.

A span is right if its begin, its end and its label are (CoNLL 2002, https://aclanthology.org/W02-2024);
the numbers are those of seqeval. The score of a task is the micro-averaged F1: all spans of all
texts count alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bough.scoring.statistics import Floats
from bough.spans.schemes import Span

Spans = Sequence[Span]
Counts = NDArray[np.int64]  # [texts, 3]: right, answered, there


def counts(predicted: Iterable[Spans], truth: Iterable[Spans]) -> Counts:
    """Of each text, how many spans are right, were answered, and are there."""
    rows = [
        (len(set(said) & set(true)), len(set(said)), len(set(true)))
        for said, true in zip(predicted, truth, strict=True)
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


def score(metric: str, found: Counts) -> float:
    """Precision, recall or F1 over all spans of all texts; 0 where there is nothing to divide."""
    return float(_scores(metric, found.sum(0)[None])[0])


def without_each(metric: str, found: Counts) -> Floats:
    """The same without each text in turn."""
    return _scores(metric, found.sum(0) - found)


def _scores(metric: str, found: Counts) -> Floats:
    right, answered, there = found.T
    match metric:
        case "precision":
            above, below = right, answered
        case "recall":
            above, below = right, there
        case _:
            above, below = 2 * right, answered + there
    return np.asarray(above / np.maximum(below, 1))


def per_label(
    predicted: Sequence[Spans], truth: Sequence[Spans], labels: Sequence[str]
) -> dict[str, dict[str, float | int]]:
    """Each label by its name; one that never was, or never was answered, scores 0."""
    right: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    there: Counter[str] = Counter()
    for said, true in zip(predicted, truth, strict=True):
        right.update(span.label for span in set(said) & set(true))
        answered.update(span.label for span in set(said))
        there.update(span.label for span in set(true))
    return {
        label: {
            "precision": right[label] / max(answered[label], 1),
            "recall": right[label] / max(there[label], 1),
            "f1": 2 * right[label] / max(answered[label] + there[label], 1),
            "spans": there[label],
        }
        for label in labels
    }


def span_confidence(
    predicted: Sequence[Spans], scores: Sequence[Sequence[float]], truth: Sequence[Spans]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Of all spans that were answered, how sure each was, and whether it is right."""
    sure = [score for own in scores for score in own]
    right = [
        span in true for said, true in zip(predicted, map(set, truth), strict=True) for span in said
    ]
    return np.array(sure, np.float64), np.array(right, np.bool_)
