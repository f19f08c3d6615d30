"""The C kernels as functions of tensors; `available` says for which tensors there are any.

They compute in fp32 whatever the rows are, and are held equal to torch by tests. None of them knows
of gradients: `bough.model` gives each its backward.
"""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int64, c_uint64, c_void_p
from typing import NamedTuple

import torch
from torch import Tensor

from bough.native.build import library

LANES = 16  # numbers in a vector: rows must be a whole number of them
_KINDS = (torch.float32, torch.bfloat16)


def available(*rows: Tensor) -> bool:
    """Whether kernels exist here for these rows, which are all of one kind."""
    return (
        all(x.device.type == "cpu" and x.dtype == rows[0].dtype for x in rows)
        and rows[0].dtype in _KINDS
        and present()
    )


def present() -> bool:
    """Whether there are kernels at all."""
    return not torch.compiler.is_exporting() and library() is not None


class _Attention(ctypes.Structure):
    """As in attention.c."""

    _fields_ = (
        ("q", c_void_p), ("k", c_void_p), ("v", c_void_p),
        ("q_stride", c_int64), ("kv_stride", c_int64),
        ("starts", c_void_p), ("lengths", c_void_p),
        ("texts", c_int64), ("heads", c_int64), ("width", c_int64),
        ("single", c_int64), ("bf16", c_int64), ("scale", c_float),
        ("bias", c_void_p), ("bias_of", c_void_p), ("reach", c_int64),
        ("keep", c_void_p), ("keep_at", c_void_p), ("keep_scale", c_float),
    )  # fmt: skip


class Texts(NamedTuple):
    """Where the texts' rows are, and how they attend; all tensors on the CPU and contiguous."""

    starts: Tensor  # of each text, its first row
    lengths: Tensor
    heads: int
    bias: Tensor | None = None  # [tables, heads, 2 reach - 1]: fp32, by distance + reach - 1
    bias_of: Tensor | None = None  # of each text, which table
    keep: Tensor | None = None  # bytes, of each text [heads, queries, length]
    keep_at: Tensor | None = None  # where each text's begin
    keep_scale: float = 1.0


def _described(
    texts: Texts, qkv: Tensor, queries: Tensor | None
) -> tuple[_Attention, tuple[int, int, int]]:
    """The call's description, and the columns of `qkv` at which q, k and v begin."""
    single = queries is not None
    parts = 2 if single else 3
    width = qkv.shape[1] // parts
    offsets = (0, 0, width) if single else (0, width, 2 * width)
    q = queries if queries is not None else qkv
    at = [offset * qkv.element_size() for offset in offsets]
    bias, keep = texts.bias, texts.keep
    head = width // texts.heads
    description = _Attention(
        q.data_ptr() + at[0], qkv.data_ptr() + at[1], qkv.data_ptr() + at[2],
        q.stride(0), qkv.stride(0),
        texts.starts.data_ptr(), texts.lengths.data_ptr(),
        len(texts.lengths), texts.heads, head,
        single, qkv.dtype == torch.bfloat16, head**-0.5,
        None if bias is None else bias.data_ptr(),
        None if texts.bias_of is None else texts.bias_of.data_ptr(),
        0 if bias is None else (bias.shape[2] + 1) // 2,
        None if keep is None else keep.data_ptr(),
        None if texts.keep_at is None else texts.keep_at.data_ptr(),
        texts.keep_scale,
    )  # fmt: skip
    return description, offsets


def attention(texts: Texts, qkv: Tensor, queries: Tensor | None) -> tuple[Tensor, Tensor]:
    """Each row's mixture of its text, and what the backward needs: the logarithms of the sums.

    `qkv` is [rows, 3d]; with `queries` [texts, d], keys and values only, [rows, 2d]. Rows beyond
    the last text's come out as zeros.
    """
    d = qkv.shape[1] // (2 if queries is not None else 3)
    rows = len(qkv) if queries is None else len(queries)
    description, _ = _described(texts, qkv, queries)
    out = qkv.new_empty(rows, d)
    if queries is None:
        out[int(texts.lengths.sum()) :] = 0
    lse = torch.empty(texts.heads, rows)
    _call("attention_forward", description, out, c_int64(d), lse, c_int64(rows))
    return out, lse


def attention_backward(
    texts: Texts, qkv: Tensor, queries: Tensor | None, lse: Tensor, d_out: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The gradients of `qkv`, `queries` and the bias."""
    description, offsets = _described(texts, qkv, queries)
    d_qkv = torch.empty_like(qkv)
    d_qkv[int(texts.lengths.sum()) :] = 0
    d_queries = None if queries is None else torch.empty_like(queries)
    d_bias = None if texts.bias is None else torch.zeros_like(texts.bias)
    size = qkv.element_size()
    places = [d_qkv.data_ptr() + offset * size for offset in offsets]
    if d_queries is not None:
        places[0] = d_queries.data_ptr()
    _call(
        "attention_backward", description, d_out, c_int64(d_out.stride(0)),
        lse, c_int64(lse.shape[1]), *map(c_void_p, places), d_bias,
    )  # fmt: skip
    return d_qkv, d_queries, d_bias


class Normed(NamedTuple):
    """The norm of a sum, and what the backward needs."""

    out: Tensor
    total: Tensor
    mean: Tensor
    rate: Tensor


def norm(
    x: Tensor,
    z: Tensor,
    keep: Tensor | None,
    factor: float,
    gain: Tensor,
    shift: Tensor,
    eps: float,
) -> Normed:
    """norm(x + z * keep * factor) * gain + shift, row by row."""
    rows, width = x.shape
    out, total = torch.empty_like(x), torch.empty_like(x)
    mean, rate = torch.empty(rows), torch.empty(rows)
    _call(
        "norm_forward", x, z, keep, c_float(factor), gain, shift, c_float(eps),
        c_int64(rows), c_int64(width), _narrow(x), total, out, mean, rate,
    )  # fmt: skip
    return Normed(out, total, mean, rate)


def norm_backward(
    d_out: Tensor, normed: Normed, keep: Tensor | None, factor: float, gain: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, z, gain and shift."""
    rows, width = d_out.shape
    d_x = torch.empty_like(d_out)
    d_z = d_x if keep is None else torch.empty_like(d_out)
    d_gain, d_shift = torch.empty_like(gain), torch.empty_like(gain)
    _call(
        "norm_backward", d_out, normed.total, normed.mean, normed.rate, keep, c_float(factor), gain,
        c_int64(rows), c_int64(width), _narrow(d_out), d_x, None if keep is None else d_z,
        d_gain, d_shift,
    )  # fmt: skip
    return d_x, d_z, d_gain, d_shift


def gelu(x: Tensor) -> Tensor:
    """x times the normal distribution's share below it."""
    y = torch.empty_like(x)
    _call("gelu_forward", x, y, c_int64(x.numel()), _narrow(x))
    return y


def gelu_backward(x: Tensor, d_y: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of x; and gelu(x), which is made on the way."""
    d_x, y = torch.empty_like(x), torch.empty_like(x)
    _call("gelu_backward", x, d_y, d_x, y, c_int64(x.numel()), _narrow(x))
    return d_x, y


def column_sums(x: Tensor) -> Tensor:
    """Each column's sum, in fp32."""
    out = torch.empty(x.shape[1])
    _call("column_sums", x, c_int64(len(x)), c_int64(x.shape[1]), _narrow(x), out)
    return out


def keep_mask(seed: int, count: int, least: int) -> Tensor:
    """True where an element stays: where its byte of chance is not below `least`."""
    out = torch.empty(count, dtype=torch.bool)
    _call("keep_mask", c_uint64(seed), c_int64(count), c_int64(least), out)
    return out


def _narrow(rows: Tensor) -> c_int64:
    return c_int64(rows.dtype == torch.bfloat16)


def _call(name: str, *arguments: object) -> None:
    """Call a kernel; tensors are passed by where they lie, and must be contiguous."""
    kernels = library()
    assert kernels is not None
    passed: list[object] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            assert argument.stride(-1) == 1 or argument.numel() < 2
            passed.append(c_void_p(argument.data_ptr()))
        elif isinstance(argument, ctypes.Structure):
            passed.append(ctypes.byref(argument))
        else:
            passed.append(argument)
    if getattr(kernels, name)(*passed):
        raise ValueError(f"{name}: rows must be whole vectors of {LANES} numbers")
