"""Each kernel equals what torch computes of the same rows, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bough.model.attention import Layout, NativeAttention, PackedAttention
from bough.model.dropout import DropoutGenerator, scale
from bough.model.families.position_bias import distance_bias, position_bias
from bough.native import kernels as native

pytestmark = pytest.mark.usefixtures("kernels")
BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
LENGTHS = (1, 3, 3, 16, 17, 33, 70)  # over and under whole vectors and blocks of queries


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def close(found: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    error = 1e-5 if dtype == torch.float32 else 2e-2
    largest = float(wanted.abs().max()) + 1e-6
    torch.testing.assert_close(found.float() / largest, wanted / largest, atol=error, rtol=error)


@BOTH
@pytest.mark.parametrize("width", [4, 32, 40])  # of a head
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.25])
@pytest.mark.parametrize("tables", [0, 2])
def test_attention(dtype: torch.dtype, width: int, single: bool, rate: float, tables: int) -> None:
    """With the same rows, mask and biases as the torch path, which is tried against torch's own."""
    heads, rows, d = 3, sum(LENGTHS), 3 * width
    which = tuple(i % tables for i in range(len(LENGTHS))) if tables else ()
    table = [normal(8, heads, seed=5 + i).requires_grad_() for i in range(tables)]
    layout = Layout(LENGTHS, tuple(table), which)
    qkv = normal(rows, (2 if single else 3) * d, seed=1).to(dtype)
    queries = normal(len(LENGTHS), d, seed=2).to(dtype) if single else None
    shares = heads * sum(n * (1 if single else n) for n in LENGTHS)
    keep = DropoutGenerator(torch.Generator().manual_seed(3), rate).keep((shares,), rate)
    mask = keep if rate else None

    def run(native_one: bool, kind: torch.dtype) -> list[Tensor]:
        inputs = [x.to(kind).requires_grad_() for x in (qkv, queries) if x is not None]
        asking = inputs[1] if single else None
        if native_one:
            bias = torch.stack([distance_bias(t, 70) for t in table]) if table else None
            out = NativeAttention.apply(inputs[0], asking, bias, layout, heads, mask, rate)
        else:
            biases = [position_bias(t, 70) for t in table]
            out = PackedAttention.apply(inputs[0], asking, layout, heads, mask, rate, *biases)
        weight = normal(*out.shape, seed=4).to(kind)
        return [out, *torch.autograd.grad((out * weight).sum(), [*inputs, *table])]

    for found, wanted in zip(run(True, dtype), run(False, torch.float32), strict=True):
        close(found.detach(), wanted.detach(), dtype)


def test_what_is_no_number_stays_none() -> None:
    qkv = normal(20, 96)
    qkv[7, 32 + 3] = float("nan")  # a key, which its whole text looks at
    texts = native.Texts(torch.tensor([0, 5]), torch.tensor([5, 15]), 2)
    out, _ = native.attention(texts, qkv, None)
    assert not out[:5].isnan().any()
    assert out[5:, :16].isnan().all()
    assert native.gelu(torch.full((16,), float("nan"))).isnan().all()
    gain = torch.ones(96)
    normed = native.norm(qkv, qkv, None, 1.0, gain, gain, 1e-12).out
    assert normed[7].isnan().all()
    assert not normed[6].isnan().any()


@BOTH
@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_norm(dtype: torch.dtype, rate: float) -> None:
    shape, eps = (37, 48), 1e-12
    generator = DropoutGenerator(torch.Generator().manual_seed(3), rate)
    keep = generator.keep(shape, rate) if rate else None
    factor = scale(rate) if rate else 1.0
    x, z, d_out = (normal(*shape, seed=i).to(dtype) for i in range(3))
    gain, shift = normal(48, seed=7) + 1, normal(48, seed=8)
    normed = native.norm(x, z, keep, factor, gain, shift, eps)
    found = [normed.out, *native.norm_backward(d_out, normed, keep, factor, gain)]

    inputs = [t.float().requires_grad_() for t in (x, z, gain, shift)]
    total = inputs[0] + inputs[1] * (1 if keep is None else keep * factor)
    out = F.layer_norm(total, (48,), inputs[2], inputs[3], eps)
    wanted = [out, *torch.autograd.grad((out * d_out.float()).sum(), inputs)]
    for one, other in zip(found, wanted, strict=True):
        close(one, other.detach(), dtype)


@BOTH
def test_gelu(dtype: torch.dtype) -> None:
    x = torch.linspace(-12, 12, 16 * 100).to(dtype)
    d_y = normal(1600, seed=1).to(dtype)
    inner = x.float().requires_grad_()
    wanted = F.gelu(inner)
    (d_x,) = torch.autograd.grad((wanted * d_y.float()).sum(), inner)
    close(native.gelu(x), wanted.detach(), dtype)
    found, again = native.gelu_backward(x, d_y)
    close(found, d_x, dtype)
    assert torch.equal(again, native.gelu(x))


@BOTH
def test_column_sums(dtype: torch.dtype) -> None:
    x = normal(301, 32).to(dtype)
    torch.testing.assert_close(native.column_sums(x), x.double().sum(0).float())


def test_rows_that_are_no_whole_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match="whole vectors"):
        native.column_sums(normal(3, 20))


@pytest.fixture
def four_threads() -> Iterator[None]:
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(1)


def everything() -> list[Tensor]:
    """What each kernel makes of more rows than a thread takes at once, sums over rows among it."""
    rows, bias = sum(LENGTHS) * 4, torch.stack([distance_bias(normal(8, 2), 70)]).requires_grad_()
    layout = Layout(LENGTHS * 4, (normal(8, 2),), (0,) * len(LENGTHS) * 4)
    qkv = normal(rows, 192).requires_grad_()
    out = NativeAttention.apply(qkv, None, bias, layout, 2, None, 0.0)
    d_qkv, d_bias = torch.autograd.grad((out * normal(rows, 64, seed=1)).sum(), [qkv, bias])
    x, gain = normal(rows, 64, seed=2), torch.ones(64)
    normed = native.norm(x, x, None, 1.0, gain, gain, 1e-12)
    backward = native.norm_backward(normal(rows, 64, seed=3), normed, None, 1.0, gain)
    wide = normal(rows * 64, seed=4)
    gelus = [native.gelu(wide), *native.gelu_backward(wide, wide)]
    return [out.detach(), d_qkv, d_bias, normed.out, *backward, *gelus, native.column_sums(x)]


def test_the_same_again_to_the_bit(four_threads: None) -> None:
    """Whichever thread comes first: a run that goes on must not differ."""
    first = everything()
    for _ in range(20):
        assert all(torch.equal(one, other) for one, other in zip(first, everything(), strict=True))


def test_threads_divide_the_same_work(four_threads: None) -> None:
    found = everything()
    torch.set_num_threads(1)
    for one, other in zip(found, everything(), strict=True):
        close(one, other, torch.float32)
