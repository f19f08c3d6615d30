"""Attention over packed rows equals torch's, text by text; dropout is what it says it is."""

from __future__ import annotations

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
    position_bias,
)
from bough.model.dropout import DropoutGenerator, drop, scale, threshold
from bough.model.transformer import Embeddings, Layer
from tests import tiny

HEADS = 2
WIDTH = 6
LENGTHS = (3, 3, 1, 5, 5, 5, 2)


def chance(seed: int = 0, rate: float = 0.3) -> DropoutGenerator:
    return DropoutGenerator(torch.Generator().manual_seed(seed), rate)


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
@pytest.mark.parametrize("by", [attend, attend_padded])
def test_equals_torch_text_by_text(by: type[attend], tables: int) -> None:
    qkv, biases, layout = inputs(tables)
    wanted = text_by_text(qkv, layout.lengths, biases, layout.bias_of)
    found = by(qkv, layout, HEADS, None)
    torch.testing.assert_close(found, wanted)
    of = [qkv, *biases]
    torch.testing.assert_close(gradients(found, of), gradients(wanted, of))


@pytest.mark.parametrize("tables", [0, 1, 3])
@pytest.mark.parametrize("by", [attend, attend_padded])
def test_queries_give_the_first_rows(by: type[attend], tables: int) -> None:
    qkv, biases, layout = inputs(tables)
    wanted = text_by_text(qkv, layout.lengths, biases, layout.bias_of)[layout.starts]
    queries, rest = qkv[layout.starts, :WIDTH], qkv[:, WIDTH:]
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
    torch.testing.assert_close(attend_padded(qkv, layout, HEADS, None), wanted)


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("tables", [0, 2])
@pytest.mark.parametrize("by", [attend, attend_padded])
def test_gradients_are_those_of_what_was_computed(
    by: type[attend], tables: int, rate: float
) -> None:
    """Numerically; with dropout the same seed gives the same mask in every evaluation."""
    qkv, biases, layout = inputs(tables, (2, 2, 1))

    def whole(rows: Tensor, *tables: Tensor) -> Tensor:
        laid = Layout(layout.lengths, tables, layout.bias_of)
        return by(rows, laid, HEADS, chance(1, rate))

    def firsts(rows: Tensor, *tables: Tensor) -> Tensor:
        laid = Layout(layout.lengths, tables, layout.bias_of)
        queries = rows[laid.starts, :WIDTH]
        return by(rows[:, WIDTH:], laid, HEADS, chance(1, rate), queries)

    assert torch.autograd.gradcheck(whole, (qkv, *biases))
    assert torch.autograd.gradcheck(firsts, (qkv, *biases))


def test_a_second_derivative_is_refused_rather_than_wrong() -> None:
    qkv, _, layout = inputs(0)
    out = attend(qkv, layout, HEADS, None).square().sum()
    (first,) = torch.autograd.grad(out, qkv, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize("by", [attend, attend_padded])
def test_attention_dropout_keeps_the_expectation(by: type[attend]) -> None:
    qkv, _, layout = inputs(0, (4, 4, 2))
    dice = chance(rate=0.25)
    with torch.no_grad():
        mean = torch.stack([by(qkv, layout, HEADS, dice) for _ in range(2000)]).mean(0)
        wanted = by(qkv, layout, HEADS, None)
    torch.testing.assert_close(mean, wanted, atol=0.08, rtol=0)


# --- dropout --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.3, 0.5, 0.9])
def test_dropout_rate_and_expectation(rate: float) -> None:
    x = torch.ones(400, 501)
    y = drop(x, rate, chance())
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
    y = drop(x, 0.4, chance())
    (grad,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(grad * x, y)
    assert torch.autograd.gradcheck(lambda x: drop(x, 0.4, chance()), x)


def test_dropout_comes_from_the_generator_alone() -> None:
    x = torch.ones(50, 50)
    dice = chance(5)
    drop(x, 0.5, dice)
    state = dice.generator.get_state()
    before = torch.random.get_rng_state()
    one, two = drop(x, 0.5, dice), drop(x, 0.5, dice)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not torch.equal(one, two)
    dice.generator.set_state(state)
    assert torch.equal(drop(x, 0.5, dice), one)
    assert torch.equal(drop(x, 0.5, dice), two)


def test_no_dice_no_dropout() -> None:
    x = torch.randn(3, 4)
    assert drop(x, 0.5, None) is x
    assert drop(x, 0.0, chance()) is x
    qkv, _, layout = inputs(0)
    torch.testing.assert_close(
        attend(qkv, layout, HEADS, chance(rate=0.0)), attend(qkv, layout, HEADS, None)
    )


@pytest.mark.parametrize("size", [(0, 3), (1,), (7,), (8,), (3, 5, 7)])
def test_masks_of_any_size(size: tuple[int, ...]) -> None:
    assert chance().keep(size, 0.5).shape == size


def test_a_layer_drops_in_embeddings_attention_and_both_halves() -> None:
    source = tiny.encoder()
    places = tiny.trunk(source)
    layer, embeddings = places["layer 1"], places["embeddings"]
    assert isinstance(layer, Layer)
    assert isinstance(embeddings, Embeddings)
    pack = tiny.pack([4, 4, 6])
    layout = Layout(pack.lengths)
    ids = pack.tokens.unbind(1)
    plain = embeddings(*ids, None)
    assert torch.equal(embeddings(*ids, chance(rate=0.0)), plain)
    assert (embeddings(*ids, chance()) == 0).any()
    whole = layer(plain, layout, None)
    assert not torch.equal(layer(plain, layout, chance()), whole)
    assert torch.equal(layer(plain, layout, chance()), layer(plain, layout, chance()))


def test_bfloat16_runs_forward_and_backward() -> None:
    for family in ("bert", "mpnet"):
        places = tiny.trunk(tiny.encoder(family))
        pack = tiny.pack([4, 4, 6, 9])
        wanted = tiny.walk(places, pack)
        with torch.autocast("cpu", torch.bfloat16):
            found = tiny.walk(places, pack)
            firsts = tiny.walk(places, pack, firsts=True)
        assert (found - wanted).norm() / wanted.norm() < 0.03
        (found.float().square().sum() + firsts.float().square().sum()).backward()
        for name, parameter in places.named_parameters():
            if "pooler" not in name:
                assert parameter.grad is not None, name
                assert parameter.grad.isfinite().all()


# --- where things lie -----------------------------------------------------------------------------


def test_layout() -> None:
    layout = Layout((3, 3, 1, 3), (), ())
    assert layout.stretches == (Bucket(2, 3), Bucket(1, 1), Bucket(1, 3))
    assert layout.starts.tolist() == [0, 3, 6, 7]
    assert layout.tokens == 10
    table = torch.zeros(4, 1)
    two = Layout((3, 3, 3), (table, table), (0, 1, 1))
    assert two.stretches == (Bucket(1, 3, 0), Bucket(2, 3, 1))
    assert Layout(()).starts.tolist() == []
    assert Layout(()).starts.dtype == torch.long


def test_gather_rows() -> None:
    assert gather_rows([5, 0, 9], [2, 3, 1]).tolist() == [5, 6, 0, 1, 2, 9]
    assert gather_rows([], []).tolist() == []
