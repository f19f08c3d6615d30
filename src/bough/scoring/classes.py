"""A classify task's answers class by class: what was taken for what, precision, recall and F1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


def confusion(predicted: NDArray[Any], truth: NDArray[Any], classes: int) -> Counts:
    """How many rows of each true class (down) were answered with each class (across)."""
    cell = truth.astype(np.int64) * classes + predicted.astype(np.int64)
    return np.bincount(cell, minlength=classes * classes).reshape(classes, classes)


def commonest_share(truth: NDArray[Any]) -> float:
    """The share of the rows that have the commonest class: what always answering it would have."""
    return float(np.bincount(truth.astype(np.int64)).max() / len(truth))


def shown_above(interval: Sequence[float], commonest: float) -> bool:
    """Whether a score with this interval is shown to be more than always answering one class."""
    return interval[0] > commonest


def per_class(counts: Counts, labels: Sequence[str]) -> dict[str, dict[str, float | int]]:
    """Each class by its name; a class that never was, or never was answered, scores 0."""
    right, answered, there = np.diag(counts), counts.sum(0), counts.sum(1)
    precision = right / np.maximum(answered, 1)
    recall = right / np.maximum(there, 1)
    f1 = 2 * right / np.maximum(answered + there, 1)
    return {
        label: {
            "precision": float(precision[i]),
            "recall": float(recall[i]),
            "f1": float(f1[i]),
            "rows": int(there[i]),
        }
        for i, label in enumerate(labels)
    }


def per_label(
    predicted: NDArray[Any], truth: NDArray[Any], labels: Sequence[str]
) -> dict[str, dict[str, float | int]]:
    """Each label of rows that may have any number of them, `[n, labels]`, by its name."""
    out: dict[str, dict[str, float | int]] = {}
    for place, label in enumerate(labels):
        out[label] = per_class(confusion(predicted[:, place], truth[:, place], 2), ("", label))[
            label
        ]
    return out


def most_confused(
    counts: Counts, labels: Sequence[str], most: int = 10
) -> list[tuple[str, str, int]]:
    """The commonest mistakes: the true class, the answer, and how often."""
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    places = zip(*np.unravel_index(order, counts.shape), strict=True)
    return [(labels[i], labels[j], int(wrong[i, j])) for i, j in places if wrong[i, j]]
