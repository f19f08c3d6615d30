"""Rows copied to where tasks part."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from bough.model.copied_rows import copied


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_added_in_one_order(dtype: torch.dtype) -> None:
    """Of rows that three tasks share; torch's own backward gives another sum nearly each time."""
    torch.manual_seed(0)
    rows = torch.randn(600, 384).to(dtype).requires_grad_()
    index = torch.cat([torch.randperm(600) for _ in range(3)])
    d_out = torch.randn(1800, 384).to(dtype)
    made = []
    for _ in range(20):
        out = copied(rows, index)
        assert torch.equal(out, rows[index])
        (grad,) = torch.autograd.grad(out, rows, d_out)
        made.append(grad)
    assert all(torch.equal(grad, made[0]) for grad in made)
    exact = torch.zeros(600, 384, dtype=torch.float64).index_add_(0, index, d_out.double())
    torch.testing.assert_close(made[0], exact.to(dtype))


def test_gradients_of_single_rows_and_of_none() -> None:
    rows = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([4, 0, 4, 4, 1])
    assert torch.autograd.gradcheck(lambda x: copied(x, index), rows)
    assert copied(rows, index[:0]).shape == (0, 3)


def test_numbers_of_tokens_are_copied_too() -> None:
    tokens = torch.arange(12).view(4, 3)
    assert torch.equal(copied(tokens, torch.tensor([2, 2, 0])), tokens[[2, 2, 0]])
