"""Averages of the weights, in their place and out of it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from bough.recipe.training import Training
from bough.training.weight_average import MovingAverage, TailAverage, averaged


def test_average_by_hand():
    p = nn.Parameter(torch.tensor([0.0]))
    average = MovingAverage([p], 0.5)
    expected = 0.0
    for n in range(30):
        with torch.no_grad():
            p.fill_(float(n))
        keep = min(0.5, (1 + n) / (10 + n))
        expected = keep * expected + (1 - keep) * n
        average.update()
        assert float(average.means[0]) == pytest.approx(expected)
    with average.applied():
        assert p.item() == pytest.approx(expected)
    assert p.item() == 29.0
    assert float(average.means[0]) == pytest.approx(expected)


def test_average_gives_the_weights_back_after_a_fault():
    p = nn.Parameter(torch.tensor([1.0]))
    average = MovingAverage([p], 0.9)
    with torch.no_grad():
        p.fill_(5.0)
    average.steps = 1  # as if it had taken some in
    inside = []

    def judge() -> None:
        with average.applied():
            inside.append(p.item())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        judge()
    assert inside == [1.0]
    assert p.item() == 5.0


def test_average_keeps_the_storage_of_the_weights():
    """Weights that are shared by reference stay shared, and the optimiser's stay the model's."""
    p = nn.Parameter(torch.tensor([1.0]))
    place = p.data_ptr()
    average = MovingAverage([p], 0.9)
    with average.applied():
        assert p.data_ptr() == place
    assert p.data_ptr() == place


def test_average_goes_on_after_a_reload():
    def run(p, average, values):
        for value in values:
            with torch.no_grad():
                p.fill_(value)
            average.update()

    p, q = (nn.Parameter(torch.zeros(2)) for _ in range(2))
    whole, first = MovingAverage([p], 0.99), MovingAverage([q], 0.99)
    run(p, whole, range(10))
    run(q, first, range(5))
    second = MovingAverage([q], 0.99)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    run(q, second, range(5, 10))
    assert torch.equal(whole.means[0], second.means[0])
    assert whole.steps == second.steps


def test_the_mean_of_the_last_part_of_a_run():
    """(n mean + w) / (n + 1), as it is printed; before, the weights are judged as they are."""
    p = nn.Parameter(torch.tensor([0.0]))
    average = TailAverage([p], 0.5)
    for n in range(8):
        with torch.no_grad():
            p.fill_(float(n))
        average.update(n / 8)
        with average.applied():
            expected = n if n < 4 else sum(range(4, n + 1)) / (n - 3)
            assert p.item() == pytest.approx(expected)
    assert average.steps == 4
    assert p.item() == 7.0


def test_which_one_a_recipe_asks_for():
    p = nn.Parameter(torch.tensor([0.0]))
    assert averaged([p], Training()) is None
    assert isinstance(averaged([p], Training(ema=0.9)), MovingAverage)
    assert isinstance(averaged([p], Training(swa=0.2)), TailAverage)
