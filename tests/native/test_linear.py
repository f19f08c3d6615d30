"""Products in the rows' precision: fp32 exactly as torch's, bf16 near it, weights wide."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bough.native.linear import RowLinear, column_sums, gelu
from bough.training import optimizer

ACTIVATIONS = pytest.mark.parametrize("activation", [None, gelu, F.relu])


def layer() -> RowLinear:
    torch.manual_seed(0)
    return RowLinear(32, 48)


def grads(out: Tensor, *of: Tensor) -> list[Tensor]:
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(9)).to(out.dtype)
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), of)]


@ACTIVATIONS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_torch(activation: object, dtype: torch.dtype) -> None:
    linear, rows = layer(), torch.randn(21, 32).to(dtype)
    one, other = rows.clone().requires_grad_(), rows.float().requires_grad_()
    out = linear(one) if activation is None else linear.after(activation, one)  # type: ignore[arg-type]
    active = other if activation is None else activation(other)  # type: ignore[operator]
    wanted = grads(F.linear(active, linear.weight, linear.bias), other, *linear.parameters())
    found = grads(out, one, *linear.parameters())
    assert found[0].dtype == dtype
    assert all(g.dtype == torch.float32 for g in found[2:])
    error = 1e-5 if dtype == torch.float32 else 3e-2
    for a, b in zip(found, wanted, strict=True):
        largest = b.abs().max()
        torch.testing.assert_close(a.float() / largest, b / largest, atol=error, rtol=error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_some_rows_of_the_weights(dtype: torch.dtype) -> None:
    linear, rows = layer(), torch.randn(5, 32).to(dtype)
    whole = linear(rows)
    for number, part in enumerate(whole.split([16, 32], 1)):
        found = linear.part(rows, [16, 32], number)
        torch.testing.assert_close(found, part, atol=1e-2, rtol=1e-2)


def test_the_copy_follows_the_weights() -> None:
    """However they change: by a step, by loading, by being replaced."""
    linear = layer()
    first = linear.narrow(torch.bfloat16)[0]
    assert linear.narrow(torch.bfloat16)[0] is first
    for name in ("step", "load", "assign", "replace"):
        new = torch.randn(48, 32)
        if name == "step":
            linear.weight.grad = linear.weight.detach() - new
            torch.optim.SGD([linear.weight], lr=1.0).step()
        elif name == "load":
            linear.load_state_dict({"weight": new, "bias": linear.bias.detach()})
        elif name == "assign":
            linear.load_state_dict({"weight": new, "bias": linear.bias.detach()}, assign=True)
        else:
            linear.weight = torch.nn.Parameter(new)
        copy = linear.narrow(torch.bfloat16)[0]
        torch.testing.assert_close(copy, new.bfloat16(), atol=1e-2, rtol=1e-2)
        assert torch.equal(copy, linear.weight.bfloat16()), name


def test_the_copy_follows_our_optimizer() -> None:
    """Which is fused, and would not say that it changed anything."""
    linear = layer()
    linear.narrow(torch.bfloat16)
    moving = optimizer.build([optimizer.Part("head", list(linear.parameters()))], lr=0.1)
    linear(torch.randn(3, 32)).sum().backward()
    moving.step()
    assert torch.equal(linear.narrow(torch.bfloat16)[0], linear.weight.bfloat16())


def test_the_copy_is_not_saved() -> None:
    linear = layer()
    linear(torch.randn(3, 32).bfloat16())
    assert set(linear.state_dict()) == {"weight", "bias"}


def test_column_sums_are_wide() -> None:
    x = torch.full((1000, 17), 1.01).bfloat16()
    torch.testing.assert_close(column_sums(x), x.double().sum(0).float())


def test_copies_made_while_judging_are_learned_with() -> None:
    """A run judges in inference mode between two steps, on the same weights."""
    linear = RowLinear(4, 3)
    rows = torch.randn(5, 4, dtype=torch.bfloat16)
    with torch.inference_mode():
        judged = linear(rows)
    learned = linear(rows.clone().requires_grad_())
    learned.float().sum().backward()
    assert torch.equal(judged, learned)
    assert linear.weight.grad is not None
