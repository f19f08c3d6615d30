"""Kernels for numbers of rows are made once, before a pass, and as few as oneDNN keeps."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bough.machine_limits import KERNELS
from bough.native import row_kernels
from bough.native.linear import RowLinear


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, ...], int]]:
    """What was multiplied, from nothing made on."""
    seen: list[tuple[tuple[int, ...], int]] = []
    monkeypatch.setattr(row_kernels, "_made", type(row_kernels._made)())
    multiply = row_kernels._multiply

    def watched(product: RowLinear, rows: int) -> None:
        seen.append((tuple(product.weight.shape), rows))
        multiply(product, rows)

    monkeypatch.setattr(row_kernels, "_multiply", watched)
    return seen


@pytest.mark.parametrize(("rows", "filled"), [(1, 64), (64, 64), (65, 128), (2600, 2624)])
def test_rows_are_filled_up(rows: int, filled: int) -> None:
    assert row_kernels.filled(rows) == filled


def test_each_number_once(made: list[tuple[tuple[int, ...], int]]) -> None:
    layer = nn.ModuleList([RowLinear(8, 16), RowLinear(16, 8, bias=False), RowLinear(8, 16)])
    row_kernels.make(layer, [64, 128])
    row_kernels.make(layer, [128, 64])
    assert sorted(made) == [((8, 16), 64), ((8, 16), 128), ((16, 8), 64), ((16, 8), 128)]


def test_what_onednn_has_dropped_is_made_again(made: list[tuple[tuple[int, ...], int]]) -> None:
    layer = RowLinear(8, 8)
    kept = KERNELS // 3
    for number in range(kept + 1):
        row_kernels.make(layer, [64 * (number + 1)])
    made.clear()
    row_kernels.make(layer, [64 * (kept + 1)])
    assert not made
    row_kernels.make(layer, [64])
    assert made == [((8, 8), 64)]


def test_a_layer_without_products(made: list[tuple[tuple[int, ...], int]]) -> None:
    row_kernels.make(nn.Linear(4, 4), [64])
    assert not made


def test_weights_still_learn(made: list[tuple[tuple[int, ...], int]]) -> None:
    """The narrow copies that were made for it are those of the pass."""
    product = RowLinear(8, 8)
    row_kernels.make(product, [64])
    product(torch.ones(3, 8, dtype=torch.bfloat16)).float().sum().backward()
    assert product.weight.grad is not None
    assert product.weight.grad.eq(3).all()
