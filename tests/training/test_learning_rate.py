"""The learning rate over the steps."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bough.recipe.recipe import Schedule
from bough.training.learning_rate import factor

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)


def course(kind: Schedule, total: int, warmup: float) -> list[float]:
    return [factor(step, total, warmup, kind) for step in range(total)]


def test_courses_by_hand():
    assert course("constant", 5, 0.4) == [0.5, 1, 1, 1, 1]
    assert course("constant", 3, 0) == [1, 1, 1]
    assert course("linear", 5, 0.2) == [1, 1, 0.75, 0.5, 0.25]
    assert course("linear", 4, 0) == [1, 0.75, 0.5, 0.25]
    assert course("linear", 10, 0.3)[:4] == pytest.approx([1 / 3, 2 / 3, 1, 1])
    assert course("cosine", 4, 0) == pytest.approx([1, (1 + 2**-0.5) / 2, 0.5, (1 - 2**-0.5) / 2])


@pytest.mark.parametrize(("total", "share"), [(100, 0.3), (50, 0.1), (20, 0.5)])
def test_one_cycle_is_torchs(total, share):
    p = nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([p], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, 1.0, total_steps=total, pct_start=share, cycle_momentum=False
    )
    for step in range(total):
        found = factor(step, total, share, "onecycle")
        assert found == pytest.approx(optimiser.param_groups[0]["lr"], abs=1e-9)
        optimiser.step()
        if step < total - 1:
            theirs.step()


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(SCHEDULES), st.integers(1, 300), st.floats(0, 1))
def test_every_course_is_sound(kind, total, warmup):
    rates = course(kind, total, warmup)
    assert all(0 < rate <= 1 + 1e-12 for rate in rates), "no step is wasted at rate 0"
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(1)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert all(a >= b - 1e-12 for a, b in zip(rates[top:], rates[top + 1 :], strict=False))
    assert factor(total + 50, total, warmup, kind) == rates[-1]


def test_schedules_differ():
    """One that is silently another would be the same curve."""
    curves = {kind: tuple(course(kind, 30, 0.2)) for kind in SCHEDULES}
    assert len(set(curves.values())) == len(SCHEDULES)
