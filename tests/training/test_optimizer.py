"""How weights move: AdamW by groups, the rate over the steps, and clipping."""

from __future__ import annotations

import copy
import math
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bough.recipe.training import Schedule
from bough.training.optimizer import Part, build, clip, factor, set_lr

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)


def matrix(*shape: int, seed: int = 0, dtype=torch.float32) -> nn.Parameter:
    generator = torch.Generator().manual_seed(seed)
    return nn.Parameter(torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype))


def scales(optimiser: torch.optim.Optimizer) -> dict[int, tuple[float, float, float]]:
    return {
        id(p): (group["scale"], group["lr"], group["weight_decay"])
        for group in optimiser.param_groups
        for p in group["params"]
    }


def reference(weights, gradients, rates, decay, betas=(0.9, 0.999), eps=1e-8):
    """AdamW as its paper has it, in numpy: decoupled decay, corrected moments."""
    w, m, v = weights.astype(np.float64).copy(), 0.0, 0.0
    for t, (g, lr) in enumerate(zip(gradients, rates, strict=True), 1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        w -= lr * decay * w
        w -= lr * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
    return w


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("decay", [0.0, 0.01, 0.3])
def test_equals_an_independent_computation_over_100_steps(dtype, decay):
    rng = np.random.default_rng(0)
    weight, bias = matrix(7, 5, dtype=dtype), matrix(7, seed=1, dtype=dtype)
    with torch.no_grad():  # the size of an encoder's weights: single precision at 2 is 2e-7
        weight.mul_(0.05)
        bias.mul_(0.05)
    start = [p.detach().numpy().copy() for p in (weight, bias)]
    optimiser = build([Part("trunk", [weight, bias])], lr=1e-3, decay=decay)
    given = [[rng.normal(size=p.shape) for _ in range(100)] for p in (weight, bias)]
    rates = [1e-3 * factor(step, 100, 0.1, "cosine") for step in range(100)]
    for step, rate in enumerate(rates):
        set_lr(optimiser, rate)
        for p, gradients in zip((weight, bias), given, strict=True):
            p.grad = torch.from_numpy(gradients[step]).to(dtype)
        optimiser.step()
    expected = [
        reference(start[0], given[0], rates, decay),
        reference(start[1], given[1], rates, 0.0),  # biases are spared
    ]
    for p, values in zip((weight, bias), expected, strict=True):
        error = np.abs(p.detach().double().numpy() - values).max()
        assert error < (1e-6 if dtype == torch.float32 else 1e-12)


def test_what_decays_and_what_does_not():
    words, norm, linear = nn.Embedding(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)
    net = nn.Sequential(words, norm, linear)
    scalar = nn.Parameter(torch.ones(()))
    optimiser = build([Part("head", [*net.parameters(), scalar])], lr=0.1, decay=0.5)
    found = scales(optimiser)
    for p in (words.weight, linear.weight):
        assert found[id(p)] == (1.0, 0.1, 0.5)
    for p in (norm.weight, norm.bias, linear.bias, scalar):
        assert found[id(p)] == (1.0, 0.1, 0.0)
    before = linear.weight.detach().clone()
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    optimiser.step()
    torch.testing.assert_close(linear.weight.detach(), before * 0.95)


def test_rates_by_depth_and_kind():
    words, low, high, pooler, head, adapter = (matrix(2, 2, seed=i) for i in range(6))
    optimiser = build(
        [
            Part("trunk", [words], 0),
            Part("trunk", [low], 1),
            Part("trunk", [high], 2),
            Part("trunk", [pooler], 3),
            Part("head", [head]),
            Part("adapter", [adapter]),
        ],
        lr=1.0,
        layer_decay=0.5,
        head_lr=10.0,
        adapter_lr=3.0,
    )
    found = scales(optimiser)
    expected = [0.125, 0.25, 0.5, 1.0, 10.0, 3.0]
    for p, scale in zip((words, low, high, pooler, head, adapter), expected, strict=True):
        assert found[id(p)][:2] == (scale, scale)
    set_lr(optimiser, 0.2)
    assert scales(optimiser)[id(words)][:2] == pytest.approx((0.125, 0.025))
    assert scales(optimiser)[id(head)][:2] == pytest.approx((10.0, 2.0))


def test_frozen_parameters_and_second_mentions_are_left_out():
    shared, frozen = matrix(2, 2), matrix(2, 2)
    frozen.requires_grad_(False)
    parts = [Part("trunk", [shared, frozen], 1), Part("trunk", [shared], 2), Part("head", [shared])]
    optimiser = build(parts, lr=1.0, layer_decay=0.5)
    assert scales(optimiser) == {id(shared): (0.5, 0.5, 0.0)}
    with pytest.raises(ValueError, match="nothing here learns"):
        build([Part("trunk", [frozen])], lr=1.0)


def test_a_parameter_without_gradient_stays():
    idle, busy = matrix(3, 3), matrix(3, 3, seed=1)
    optimiser = build([Part("head", [idle, busy])], lr=0.1, decay=0.1)
    before = idle.detach().clone()
    for seed in range(3):
        busy.grad = matrix(3, 3, seed=seed).detach()
        if seed == 0:
            idle.grad = torch.ones(3, 3)
        optimiser.step()
        optimiser.zero_grad()
        if seed == 0:
            before = idle.detach().clone()
        assert torch.equal(idle, before), "neither momentum nor decay moves it"


def test_goes_on_after_a_reload():
    def run(optimiser, p, steps):
        for step in steps:
            set_lr(optimiser, 0.1 * factor(step, 20, 0.1, "linear"))
            p.grad = torch.sin(p.detach() * step)
            optimiser.step()

    whole, first = matrix(4, 4), matrix(4, 4)
    run(build([Part("head", [whole])], lr=0.1, decay=0.1), whole, range(20))
    start = build([Part("head", [first])], lr=0.1, decay=0.1)
    run(start, first, range(9))
    second = nn.Parameter(first.detach().clone())
    again = build([Part("head", [second])], lr=0.1, decay=0.1)
    again.load_state_dict(copy.deepcopy(start.state_dict()))
    run(again, second, range(9, 20))
    assert torch.equal(second, whole)


def test_clipping_is_over_all_gradients_at_once():
    a, b, idle = matrix(3, 3), matrix(4, seed=1), matrix(2)
    a.grad, b.grad = torch.full((3, 3), 2.0), torch.full((4,), -4.0)
    assert clip([a, b, idle], 1.0) == pytest.approx(10.0)
    assert idle.grad is None
    torch.testing.assert_close(a.grad, torch.full((3, 3), 0.2))
    torch.testing.assert_close(b.grad, torch.full((4,), -0.4))
    assert clip([a, b], 1.0) == pytest.approx(1.0)


def test_clipping_equals_torchs():
    ours = [matrix(20, 30, seed=s) for s in range(4)]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    for p, q in zip(ours, theirs, strict=True):
        p.grad, q.grad = p.detach().clone() * 3, p.detach().clone() * 3
    length = nn.utils.clip_grad_norm_(theirs, 1.0)
    assert clip(ours, 1.0) == pytest.approx(float(length))
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p.grad, q.grad)


def test_what_is_short_or_not_to_be_clipped_stays():
    p = matrix(3, 3)
    p.grad = torch.ones(3, 3)
    assert clip([p], None) == pytest.approx(3.0)
    assert clip([p], 3.5) == pytest.approx(3.0)
    assert torch.equal(p.grad, torch.ones(3, 3))
    assert clip([matrix(2)], 1.0) == 0.0


def test_no_number_is_not_hidden():
    for value in (math.nan, math.inf):
        p = matrix(2)
        p.grad = torch.tensor([1.0, value])
        assert not math.isfinite(clip([p], 1.0))
        assert not p.grad.isfinite().all()


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
