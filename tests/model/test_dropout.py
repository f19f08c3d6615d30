"""Dropout is what it says it is, and comes from the run's own generator."""

from __future__ import annotations

import pytest
import torch

from bough.model.dropout import drop, scale, splitmix64, threshold
from bough.native import kernels
from tests import tiny


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.3, 0.5, 0.9])
def test_dropout_rate_and_expectation(rate: float) -> None:
    x = torch.ones(400, 501)
    y = drop(x, tiny.dropout(), rate)
    exact = threshold(rate) / 256
    assert abs(exact - rate) <= 1 / 512
    assert (y == 0).float().mean().item() == pytest.approx(exact, abs=0.004)
    assert torch.equal(y[y != 0], torch.full_like(y[y != 0], scale(rate)))
    assert y.mean().item() == pytest.approx(1, abs=0.02)
    rows = (y == 0).float().mean(1)  # no row, column or neighbourhood is spared
    assert 0 < rows.min() < rows.max() < 1
    both = ((y[:, 1:] == 0) & (y[:, :-1] == 0)).float().mean().item()
    assert both == pytest.approx(exact**2, abs=0.006)


def test_dropout_gradient_has_the_mask_of_the_forward_pass() -> None:
    x = torch.randn(37, 11, dtype=torch.float64, requires_grad=True)
    y = drop(x, tiny.dropout(), 0.4)
    (grad,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(grad * x, y)
    assert torch.autograd.gradcheck(lambda x: drop(x, tiny.dropout(), 0.4), x)


def test_dropout_comes_from_the_generator_alone() -> None:
    x = torch.ones(50, 50)
    dropout = tiny.dropout(5)
    drop(x, dropout, 0.5)
    state = dropout.generator.get_state()
    before = torch.random.get_rng_state()
    one, two = drop(x, dropout, 0.5), drop(x, dropout, 0.5)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not torch.equal(one, two)
    dropout.generator.set_state(state)
    assert torch.equal(drop(x, dropout, 0.5), one)
    assert torch.equal(drop(x, dropout, 0.5), two)


def test_the_rate_is_the_trunks_unless_another_is_given() -> None:
    x = torch.ones(50, 50)
    assert torch.equal(drop(x, tiny.dropout(rate=0.5)), drop(x, tiny.dropout(rate=0.1), 0.5))
    assert not torch.equal(drop(x, tiny.dropout(rate=0.5)), drop(x, tiny.dropout(rate=0.1)))


def test_no_generator_no_dropout() -> None:
    x = torch.randn(3, 4)
    assert drop(x, None, 0.5) is x
    assert drop(x, tiny.dropout(), 0.0) is x
    assert drop(x, tiny.dropout(rate=0.0)) is x


@pytest.mark.parametrize("size", [(0, 3), (1,), (7,), (8,), (3, 5, 7)])
def test_masks_of_any_size(size: tuple[int, ...]) -> None:
    assert tiny.dropout().keep(size, 0.5).shape == size


@pytest.mark.parametrize("count", [1, 7, 8, 511, 512, 513, 5000])
def test_the_same_elements_are_dropped_without_the_kernel(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_kernel = tiny.dropout(7).keep((count,), 0.3)
    monkeypatch.setattr(kernels, "present", lambda: False)
    assert torch.equal(tiny.dropout(7).keep((count,), 0.3), with_kernel)


def test_calls_are_independent_of_each_other() -> None:
    dropout = tiny.dropout(3)
    one, two = dropout.keep((400, 500), 0.5), dropout.keep((400, 500), 0.5)
    assert (one == two).float().mean().item() == pytest.approx(0.5, abs=0.01)
    assert (one[:, 1:] == two[:, :-1]).float().mean().item() == pytest.approx(0.5, abs=0.01)


def test_words_are_those_of_splitmix64() -> None:
    """The first ones of seed 1234567, as its authors' program prints them."""
    words = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert splitmix64(1234567, 4).tolist() == words
