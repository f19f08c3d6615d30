"""A head's numbers in words, by kind."""

from __future__ import annotations

import pytest
import torch

from bough.inference.answers import Answer, answers_of, in_words
from bough.recipe.tasks import Task

MOOD = Task(kind="classify", text="x", labels=("bad", "good"))
LIKE = Task(kind="regress", text=("x", "y"), range=(0, 5))


def test_a_class_has_its_probabilities() -> None:
    yes, no = answers_of(MOOD, torch.tensor([[2.0], [-1.0]]))
    assert (yes.label, no.label) == ("good", "bad")
    assert yes.score is not None
    assert yes.score == pytest.approx(float(torch.tensor(2.0).sigmoid()))
    assert yes.probabilities == pytest.approx({"bad": 1 - yes.score, "good": yes.score})
    assert yes.unless_below(0.99) == Answer(None, yes.score, yes.probabilities, abstained=True)


def test_a_number_is_in_its_range() -> None:
    low, high = answers_of(LIKE, torch.tensor([[-0.5], [0.5]]))
    assert (low.value, high.value) == (0.0, 2.5)
    assert low.plain() == {"value": 0.0}
    assert low.finite
    assert not Answer(value=float("nan")).finite


def test_tasks_in_words() -> None:
    assert in_words(MOOD) == "2 classes"
    assert in_words(LIKE) == "a pair, a number from 0 to 5"
