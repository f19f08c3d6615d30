"""Class by class: equal to scikit-learn's report and confusion table."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from bough.scoring.classes import confusion, most_confused, per_class

LABELS = ("a", "b", "c", "d")


@pytest.mark.parametrize("seed", range(5))
def test_classes_equal_scikit_learns(seed: int) -> None:
    """With a class that never occurs, and one that is never answered."""
    rng = np.random.default_rng(seed)
    truth, predicted = rng.integers(0, 3, 200), rng.integers(1, 4, 200)
    counts = confusion(predicted, truth, 4)
    assert np.array_equal(counts, confusion_matrix(truth, predicted, labels=range(4)))
    theirs = precision_recall_fscore_support(
        truth, predicted, labels=range(4), average=None, zero_division=0
    )
    found = per_class(counts, LABELS)
    for key, values in zip(("precision", "recall", "f1", "rows"), theirs, strict=True):
        assert [found[label][key] for label in LABELS] == pytest.approx(values.tolist(), abs=1e-15)


def test_the_commonest_mistakes_come_first() -> None:
    counts = np.array([[9, 0, 2], [5, 0, 0], [1, 0, 3]])
    told = most_confused(counts, LABELS)
    assert told == [("b", "a", 5), ("a", "c", 2), ("c", "a", 1)]
    assert most_confused(counts, LABELS, 1) == told[:1]
    assert most_confused(np.diag([3, 4]), LABELS) == []
