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

from bough.scoring.pseudo_values import jackknife
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


def entity_metrics(predicted: Iterable[Spans], truth: Iterable[Spans]) -> dict[str, float]:
    """Precision, recall and F1 over all spans of all texts; 0 where there is nothing to divide."""
    right, answered, there = counts(predicted, truth).sum(0).tolist()
    return {
        "entity_f1": _f1(right, answered, there),
        "precision": right / max(answered, 1),
        "recall": right / max(there, 1),
    }


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
            "f1": _f1(right[label], answered[label], there[label]),
            "rows": there[label],
        }
        for label in labels
    }


def entity_pseudo_values(found: Counts) -> tuple[float, Floats]:
    """The F1, and one number per text with that mean: how it hangs on each."""
    right, answered, there = (found.sum(0) - found).T  # without each text in turn
    below = answered + there
    without = np.divide(2.0 * right, below, out=np.zeros(len(found)), where=below > 0)
    return jackknife(_f1(*found.sum(0).tolist()), without)


def _f1(right: int, answered: int, there: int) -> float:
    return 2 * right / (answered + there) if answered + there else 0.0
