"""The kernels of a whole layer, held against the layer in torch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bough.inference.precision.answering_layer import AnsweringLayer
from bough.model.attention import Layout, attend
from bough.model.transformer import Layer
from bough.native.answering import FORMS, Precision, WeightMemory, available
from tests import tiny

SIZES = {"width": 128, "heads": 4, "inner": 192, "embedding": 128}
LENGTHS = (3, 17, 1, 40, 40, 8, 33)
TOLERANCE = {"fp32": 1e-5, "bf16": 0.01, "int8": 2e-3}  # of the rows' size
PRECISIONS = tuple(FORMS)


def layer(family: str = "bert", **changes: object) -> Layer:
    encoder = tiny.encoder(family, **SIZES, **changes)
    made = Layer(encoder.shape)
    made.load_state_dict(encoder.weights("layer 1"))
    return made


def native(plain: Layer, precision: Precision, family: str = "bert") -> AnsweringLayer:
    if not available(precision):
        pytest.skip(f"no kernel for {precision} here")
    return AnsweringLayer(plain, tiny.shape(family, **SIZES), precision, WeightMemory())


def rows(lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> Tensor:
    made = torch.randn(sum(lengths), SIZES["width"], generator=torch.Generator().manual_seed(seed))
    made[:, 5] *= 20  # a feature that dwarfs the others, as encoders have them
    return made


def reference(plain: Layer, precision: Precision, h: Tensor, layout: Layout, first: bool) -> Tensor:
    """The layer in torch; for int8, with the rows and weights of its products so rounded."""
    if precision != "int8":
        out: Tensor = plain(h, layout, None, first)
        return out

    def product(part: torch.nn.Linear, x: Tensor, least: float = 0.0) -> Tensor:
        return F.linear(
            in_steps(x - least, 255 if least else 127) + least,
            in_steps(part.weight, 127),
            part.bias,
        )

    mixed = attend(product(plain.qkv, h), layout, plain.heads, None)
    if first:
        starts = layout.on(h.device).starts
        h, mixed = h[starts], mixed[starts]
    m = plain.norm1(h + product(plain.out, mixed))
    least = float(F.gelu(torch.linspace(-5, 0, 10_000)).min())
    rounded: Tensor = plain.norm2(m + product(plain.down, F.gelu(product(plain.up, m)), least))
    return rounded


def in_steps(x: Tensor, steps: int) -> Tensor:
    """Each 64 numbers of a row as whole parts of their largest."""
    parts = x.reshape(len(x), -1, 64)
    scale = parts.abs().amax(2, keepdim=True) / steps
    return ((parts / scale).round() * scale).view_as(x)


def far(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / a.norm())


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("first_only", [False, True])
def test_a_layer_in_c_is_the_layer_in_torch(precision, first_only):
    plain = layer()
    layout, h = Layout(LENGTHS), rows()
    with torch.inference_mode():
        expected = reference(plain, precision, h, layout, first_only)
        got = native(plain, precision)(h, layout, None, first_only)
    assert got.shape == expected.shape
    assert far(expected, got) < TOLERANCE[precision]


@pytest.mark.parametrize("activation", ["gelu_new", "gelu_pytorch_tanh"])
def test_every_kind_of_gelu(activation):
    plain = layer(activation=activation)
    with torch.inference_mode():
        expected = plain(rows(), Layout(LENGTHS), None)
        got = native(plain, "fp32")(rows(), Layout(LENGTHS), None)
    assert far(expected, got) < TOLERANCE["fp32"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_relative_positions(precision):
    plain = layer("mpnet")
    tables = tuple(torch.randn(32, 4, generator=torch.Generator().manual_seed(n)) for n in (1, 2))
    layout = Layout(LENGTHS, tables, tuple(n % 2 for n in range(len(LENGTHS))))
    with torch.inference_mode():
        for first_only in (False, True):
            expected = reference(plain, precision, rows(), layout, first_only)
            got = native(plain, precision, "mpnet")(rows(), layout, None, first_only)
            assert far(expected, got) < TOLERANCE[precision]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_text_depends_on_what_is_in_the_batch(precision):
    made, h = native(layer(), precision), rows()
    with torch.inference_mode():
        together = made(h, Layout(LENGTHS), None)
        start = 0
        for length in LENGTHS:
            own = slice(start, start + length)
            alone = made(h[own].contiguous(), Layout((length,)), None)
            assert torch.equal(alone, together[own])
            start += length


@pytest.mark.parametrize("precision", PRECISIONS)
def test_threads_change_nothing(precision):
    made, lengths = native(layer(), precision), LENGTHS * 5
    h = rows(lengths)
    with torch.inference_mode():
        alone = made(h, Layout(lengths), None)
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            assert torch.equal(made(h, Layout(lengths), None), alone)
        finally:
            torch.set_num_threads(before)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_no_number_stays_none(precision):
    plain = layer()
    with torch.no_grad():
        plain.qkv.weight[2 * SIZES["width"] + 3, 4] = math.nan  # of one value only
    made = native(plain, precision)
    with torch.inference_mode():
        assert made(rows(), Layout(LENGTHS), None).isnan().all()
