"""Attention over packed rows equals torch's, text by text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from bough.model.attention import (
    Bucket,
    Layout,
    attend,
    attend_padded,
    gather_rows,
)
from bough.model.families.position_bias import position_bias
from tests import tiny

HEADS = 2
WIDTH = 6
LENGTHS = (3, 3, 1, 5, 5, 5, 2)
Attend = Callable[..., Tensor]
CPU = torch.device("cpu")


def padded(
    qkv: Tensor, layout: Layout, heads: int, dropout: Any = None, queries: Tensor | None = None
) -> Tensor:
    return attend_padded(qkv, layout, heads, dropout, queries)


both = pytest.mark.parametrize("by", [attend, padded])


def text_by_text(
    qkv: Tensor, lengths: tuple[int, ...], tables: list[Tensor], bias_of: tuple[int, ...]
) -> Tensor:
    """[tokens, 3d] -> [tokens, d] by torch's own attention."""
    out = []
    for i, rows in enumerate(qkv.split(lengths)):
        n = len(rows)
        query, key, value = rows.view(n, 3, HEADS, -1).permute(1, 2, 0, 3)
        bias = position_bias(tables[bias_of[i]], n) if tables else None
        mixed = F.scaled_dot_product_attention(query[None], key[None], value[None], bias)
        out.append(mixed[0].transpose(0, 1).reshape(n, -1))
    return torch.cat(out)


def inputs(tables: int, lengths: tuple[int, ...] = LENGTHS) -> tuple[Tensor, list[Tensor], Layout]:
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        made = torch.randn(size, generator=generator, dtype=torch.float64)
        return made.requires_grad_()

    biases = [normal(8, HEADS) for _ in range(tables)]
    bias_of = tuple(i % tables for i in range(len(lengths))) if tables else ()
    return normal(sum(lengths), 3 * WIDTH), biases, Layout(lengths, tuple(biases), bias_of)


def gradients(out: Tensor, of: list[Tensor]) -> list[Tensor]:
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(9), dtype=out.dtype)
    return list(torch.autograd.grad((out * weight).sum(), of))


@pytest.mark.parametrize("tables", [0, 1, 3])
@both
def test_equals_torch_text_by_text(by: Attend, tables: int) -> None:
    qkv, biases, layout = inputs(tables)
    wanted = text_by_text(qkv, layout.lengths, biases, layout.bias_of)
    found = by(qkv, layout, HEADS, None)
    torch.testing.assert_close(found, wanted)
    of = [qkv, *biases]
    torch.testing.assert_close(gradients(found, of), gradients(wanted, of))


@pytest.mark.parametrize("tables", [0, 1, 3])
@both
def test_queries_give_the_first_rows(by: Attend, tables: int) -> None:
    qkv, biases, layout = inputs(tables)
    wanted = text_by_text(qkv, layout.lengths, biases, layout.bias_of)[layout.on(CPU).starts]
    queries, rest = qkv[layout.on(CPU).starts, :WIDTH], qkv[:, WIDTH:]
    found = by(rest, layout, HEADS, None, queries)
    torch.testing.assert_close(found, wanted)
    of = [qkv, *biases]
    torch.testing.assert_close(gradients(found, of), gradients(wanted, of))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(0, 2))
def test_any_lengths(lengths: list[int], tables: int) -> None:
    qkv, biases, layout = inputs(tables, tuple(lengths))
    wanted = text_by_text(qkv, layout.lengths, biases, layout.bias_of)
    torch.testing.assert_close(attend(qkv, layout, HEADS, None), wanted)
    torch.testing.assert_close(attend_padded(qkv, layout, HEADS, None, None), wanted)


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("tables", [0, 2])
@both
def test_gradients_are_those_of_what_was_computed(by: Attend, tables: int, rate: float) -> None:
    """Numerically; with dropout the same seed gives the same mask in every evaluation."""
    qkv, biases, layout = inputs(tables, (2, 2, 1))

    def whole(rows: Tensor, *tables: Tensor) -> Tensor:
        laid = Layout(layout.lengths, tables, layout.bias_of)
        return by(rows, laid, HEADS, tiny.dropout(1, rate))

    def cls_only(rows: Tensor, *tables: Tensor) -> Tensor:
        laid = Layout(layout.lengths, tables, layout.bias_of)
        queries = rows[laid.on(CPU).starts, :WIDTH]
        return by(rows[:, WIDTH:], laid, HEADS, tiny.dropout(1, rate), queries)

    assert torch.autograd.gradcheck(whole, (qkv, *biases))
    assert torch.autograd.gradcheck(cls_only, (qkv, *biases))


def test_a_second_derivative_is_refused_rather_than_wrong() -> None:
    qkv, _, layout = inputs(0)
    out = attend(qkv, layout, HEADS, None).square().sum()
    (first,) = torch.autograd.grad(out, qkv, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@both
def test_a_rate_of_nothing_drops_nothing(by: Attend) -> None:
    qkv, _, layout = inputs(0)
    found = by(qkv, layout, HEADS, tiny.dropout(rate=0.0))
    assert torch.equal(found, by(qkv, layout, HEADS, None))


@both
def test_attention_dropout_keeps_the_expectation(by: Attend) -> None:
    qkv, _, layout = inputs(0, (4, 4, 2))
    dropout = tiny.dropout(rate=0.25)
    with torch.no_grad():
        mean = torch.stack([by(qkv, layout, HEADS, dropout) for _ in range(2000)]).mean(0)
        wanted = by(qkv, layout, HEADS, None)
    torch.testing.assert_close(mean, wanted, atol=0.08, rtol=0)


def test_layout() -> None:
    layout = Layout((3, 3, 1, 3))
    assert layout.buckets == (Bucket(2, 3), Bucket(1, 1), Bucket(1, 3))
    assert layout.tokens == 10
    table = torch.zeros(4, 1)
    two = Layout((3, 3, 3), (table, table), (0, 1, 1))
    assert two.buckets == (Bucket(1, 3, 0), Bucket(2, 3, 1))
    assert two.on(CPU).bias_of.tolist() == [0, 1, 1]


def test_a_layout_on_a_device() -> None:
    tensors = Layout((3, 1, 2)).on(CPU)
    assert tensors.lengths.tolist() == [3, 1, 2]
    assert tensors.starts.tolist() == [0, 3, 4]
    assert tensors.inside.int().tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
    assert tensors.padded_rows.tolist() == tensors.inside.flatten().nonzero()[:, 0].tolist()
    assert tensors.bias_of.tolist() == [0, 0, 0]
    none = Layout(()).on(CPU).starts
    assert none.tolist() == []
    assert none.dtype == torch.long


def test_what_lies_on_a_device_is_made_once() -> None:
    layout = Layout((3, 1, 2))
    assert layout.on(CPU).starts is layout.on(torch.device("cpu")).starts
    assert layout.on(torch.device("meta")).starts.is_meta
    assert layout == Layout((3, 1, 2))


def test_gather_rows() -> None:
    assert gather_rows([5, 0, 9], [2, 3, 1]).tolist() == [5, 6, 0, 1, 2, 9]
    assert gather_rows([], []).tolist() == []
