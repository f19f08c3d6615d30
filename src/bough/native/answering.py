"""Encoder layers as a single call of C, for answering: in fp32, bf16 or int8 products.

The weights are laid out once, as the kernels in answering.h read them. Which precisions there are
is the processor's matter: a kernel that it has no instructions for is not in the library.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import c_float, c_int64, c_void_p
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bough.native.build import library

Precision = Literal["fp32", "bf16", "int8"]
LANES = 16  # numbers in a vector; these are as in the C files
TERMS = 15
DEPTH = 64  # weights that have a scale in common
LINE = 64  # bytes of the caches' lines
CHUNK = 2**25  # bytes of weights that are given room together
TINY = torch.finfo(torch.float32).tiny
BOUND = 5.0  # beyond it, gelu is its argument or nothing, to six digits


class Form(NamedTuple):
    """How a kernel reads its weights: the type, numbers in 32 bits, outputs made together."""

    dtype: torch.dtype
    group: int
    panel: int


FORMS = {
    "fp32": Form(torch.float32, 1, 64),
    "bf16": Form(torch.bfloat16, 2, 64),
    "int8": Form(torch.int8, 4, 32),
}


def available(precision: Precision) -> bool:
    """Whether this processor answers so."""
    return hasattr(library(), f"answering_{precision}")


class _Product(ctypes.Structure):
    _fields_ = (
        ("inputs", c_int64), ("outputs", c_int64), ("weights", c_void_p), ("bias", c_void_p),
        ("scales", c_void_p), ("begin", c_void_p),
    )  # fmt: skip


class _Layer(ctypes.Structure):
    _fields_ = (
        ("width", c_int64), ("heads", c_int64), ("inner", c_int64), ("eps", c_float),
        ("bound", c_float), ("even", c_float * TERMS), ("least", c_float),
        ("queries", _Product), ("keys_values", _Product), ("out", _Product), ("up", _Product),
        ("down", _Product), ("norm1", c_void_p * 2), ("norm2", c_void_p * 2),
    )  # fmt: skip


class _Batch(ctypes.Structure):
    _fields_ = (
        ("lengths", c_void_p), ("bias_of", c_void_p), ("bias", c_void_p), ("texts", c_int64),
        ("reach", c_int64), ("first_only", c_int64), ("threads", c_int64),
    )  # fmt: skip


class _Table(ctypes.Structure):
    _fields_ = (("rows", c_void_p), ("count", c_int64))


class _Embeddings(ctypes.Structure):
    _fields_ = (
        ("width", c_int64), ("eps", c_float), ("tables", _Table * 3), ("norm", c_void_p * 2),
    )  # fmt: skip


class LayerWeights(NamedTuple):
    """A layer's, in fp32: matrices as [outputs, inputs], each with its bias."""

    heads: int
    queries: tuple[Tensor, Tensor]
    keys_values: tuple[Tensor, Tensor]
    out: tuple[Tensor, Tensor]
    up: tuple[Tensor, Tensor]
    down: tuple[Tensor, Tensor]
    norm1: tuple[Tensor, Tensor]
    norm2: tuple[Tensor, Tensor]
    eps: float
    activation: Callable[[Tensor], Tensor]


class Texts(NamedTuple):
    """How the rows are cut into texts; all tensors on the CPU and contiguous."""

    lengths: Tensor  # int64
    bias: Tensor | None = None  # [tables, heads, 2 reach - 1]: fp32, by distance + reach - 1
    bias_of: Tensor | None = None  # of each text, which table


class WeightMemory:
    """Where kernels' weights lie one after another: in large pages where the system has them, for
    in small ones every few lines would wait until the next page is found."""

    def __init__(self) -> None:
        self._room = torch.empty(0, dtype=torch.uint8)

    def put(self, tensor: Tensor) -> Tensor:
        """A copy of the tensor, there."""
        size = tensor.numel() * tensor.element_size()
        if size > len(self._room):
            # Shared memory, the default, would get none: another setting of the system governs it.
            private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            memory = mmap.mmap(-1, max(size, CHUNK), flags=private)
            with suppress(OSError):  # a system that knows no large pages
                memory.madvise(mmap.MADV_HUGEPAGE)
            self._room = torch.frombuffer(memory, dtype=torch.uint8)
        place, self._room = self._room[:size], self._room[size + -size % LINE :]
        return place.view(tensor.dtype).view(tensor.shape).copy_(tensor)


class NativeLayer:
    """The layer, ready to be called."""

    def __init__(self, weights: LayerWeights, precision: Precision, memory: WeightMemory):
        self._memory = memory
        self._kernel = getattr(library(), f"answering_{precision}")
        self._kernel.argtypes = (c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_void_p)
        self._kept: list[Tensor] = []  # what the kernel points at
        width, inner = weights.down[0].shape
        least = float(weights.activation(torch.linspace(-BOUND, 0, 10_000)).min())
        products = [
            self._product(product, precision, least if product is weights.down else None)
            for product in weights[1:6]
        ]
        norms = [(c_void_p * 2)(*map(self._place, n)) for n in (weights.norm1, weights.norm2)]
        even = (c_float * TERMS)(*_even_part(weights.activation))
        self._layer = _Layer(
            width, weights.heads, inner, weights.eps, BOUND, even, least, *products, *norms
        )
        self._address = ctypes.addressof(self._layer)

    def __call__(
        self, h: Tensor, texts: Texts, first_only: bool, above: Sequence[NativeLayer] = ()
    ) -> Tensor:
        """[rows, width] -> the same, or each text's first row alone: [texts, width]; through the
        layers `above`, of the same precision, as well."""
        if h.dtype != torch.float32:  # the kernel would write past the end
            raise TypeError(f"rows in {h.dtype}, where the kernel takes float32")
        count = texts.lengths.numel()
        out = h.new_empty(count if first_only else h.shape[0], h.shape[1])
        between = [torch.empty_like(h) for _ in above[:2]]
        batch = _Batch(
            texts.lengths.data_ptr(),
            None if texts.bias_of is None else texts.bias_of.data_ptr(),
            None if texts.bias is None else texts.bias.data_ptr(),
            count,
            0 if texts.bias is None else (texts.bias.shape[2] + 1) // 2,
            first_only,
            torch.get_num_threads(),
        )
        layers = (c_void_p * (1 + len(above)))(self._address, *(one._address for one in above))
        rooms = (c_void_p * 2)(*(rows.data_ptr() for rows in between))
        if self._kernel(
            ctypes.addressof(layers),
            len(layers),
            out.data_ptr(),
            h.data_ptr(),
            ctypes.addressof(rooms),
            ctypes.addressof(batch),
        ):
            raise MemoryError("no memory for a layer's rows")
        return out

    def _product(
        self, product: tuple[Tensor, Tensor], precision: Precision, least: float | None
    ) -> _Product:
        """`least`: what the inputs, if they are activated, never fall below."""
        weight, bias = product
        dtype, group, panel = FORMS[precision]
        rest = -len(weight) % panel
        rows, bias = F.pad(weight, (0, 0, 0, rest)), F.pad(bias, (0, rest))
        outputs, inputs = rows.shape
        scales = begin = None
        if precision == "int8":
            parts = rows.view(outputs, -1, DEPTH)
            scale = parts.abs().amax(2) / 127
            whole = (parts / scale.clamp(min=TINY)[:, :, None]).round()
            rows, sums = whole.view_as(rows), whole.sum(2)
            # Inputs about 0 are bytes about 128; activated ones count from their least value.
            bias = bias if least is None else bias + least * (sums * scale).sum(1)
            first = sums * (-128 if least is None else 0)
            scales, begin = (
                self._place(x.view(-1, panel, inputs // DEPTH).transpose(1, 2).to(kind))
                for x, kind in ((scale, torch.float32), (first, torch.int32))
            )
        panels = rows.to(dtype).view(-1, panel, inputs // group, group).transpose(1, 2)
        places = self._place(panels), self._place(bias)
        return _Product(inputs, len(weight), *places, scales, begin)

    def _place(self, tensor: Tensor) -> int:
        self._kept.append(self._memory.put(tensor.detach()))
        return self._kept[-1].data_ptr()


class NativeEmbeddings:
    """The norm of a sum of rows, one of each table, ready to be called; the tables are not copied.

    Args:
        tables: Two or three, [rows, width]; each with a number that its rows are counted from.
    """

    def __init__(
        self, tables: Sequence[tuple[Tensor, int]], norm: tuple[Tensor, Tensor], eps: float
    ):
        kernels = library()
        assert kernels is not None
        self._kernel = kernels.answering_embeddings
        self._kernel.argtypes = (c_void_p, c_void_p, c_void_p, c_void_p, c_int64)
        self._kept = [table[start:].detach() for table, start in tables], norm
        width = tables[0][0].shape[1]
        places = [_Table(table.data_ptr(), len(table)) for table in self._kept[0]]
        norms = (c_void_p * 2)(*(part.data_ptr() for part in norm))
        self._embeddings = _Embeddings(width, eps, (_Table * 3)(*places), norms)

    def __call__(self, *numbers: Tensor) -> Tensor:
        """The number of each row in each table, [rows] -> [rows, width]."""
        rows = len(numbers[0])
        out = torch.empty(rows, self._embeddings.width)
        if self._kernel(
            ctypes.addressof(self._embeddings),
            out.data_ptr(),
            (c_void_p * 3)(*(one.data_ptr() for one in numbers)),
            (c_int64 * 3)(*(one.stride(0) for one in numbers)),
            rows,
        ):
            raise IndexError("a token's number is beyond the table of its vectors")
        return out


def _even_part(activation: Callable[[Tensor], Tensor]) -> list[Any]:
    """Of f(x) - x/2, which gelu leaves even: a polynomial in 2 (x/BOUND)^2 - 1."""
    from numpy.polynomial import chebyshev

    t = np.cos(np.pi * (np.arange(2000) + 0.5) / 2000)
    x = np.sqrt((t + 1) / 2) * BOUND
    y = activation(torch.from_numpy(x)).numpy() - x / 2
    return chebyshev.cheb2poly(chebyshev.chebfit(t, y, TERMS - 1)).tolist()
