"""What holds in a phase."""

from __future__ import annotations

from typing import Any

import pytest

from bough.errors import UserError
from bough.recipe.recipe import Recipe
from bough.recipe.training import Phase, Training

TASKS = {"a": {"kind": "classify", "text": "x"}, "b": {"kind": "classify", "text": "x"}}


def test_a_phase_takes_the_rest_from_training() -> None:
    training = Training(steps=None, epochs=7, lr=1.0, phases=[Phase(frozen=True, steps=5, lr=2.0)])
    phase = training.phases[0].over(training)
    assert (phase.steps, phase.lr, phase.phases, phase.batch) == (5, 2.0, (), training.batch)
    longer = Phase(epochs=2).over(training)
    assert (longer.steps, longer.epochs, longer.lr) == (None, 2, 1.0)


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"phases": [{"steps": 1, "tasks": ["c"]}]}, "there is no task 'c', only a, b"),
        ({"phases": [{"steps": 1, "tasks": []}]}, "expected at least one"),
        ({"phases": [{"steps": 1, "tasks": ["a"]}], "weights": {"a": 0}}, "of it has weight 0"),
        ({"ema": 0.9, "swa": 0.2}, "keep one of the two"),
        ({"smart": {"wieght": 1}}, "did you mean 'weight'"),
        ({"r_drop": -1}, "greater than or equal to 0"),
    ],
)
def test_what_does_not_go_together(training: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Recipe.read({"tasks": TASKS, "training": training})
