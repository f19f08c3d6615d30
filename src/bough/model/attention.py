"""The one place where texts look at their own tokens: attention over packed rows.

A batch has no padding: its rows are the tokens of all texts, texts of equal length side by side.
On the CPU a kernel of ours goes from text to text (`bough.native`). Where it is not to be had, such
a *bucket* of equal lengths is attended as one dense batch, bucket after bucket, with a backward of
its own (no copies to cut the rows apart). On CUDA many short ones would each be a kernel launch, so
the rows are padded inside attention alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bough.model.dropout import DropoutGenerator, drop, scale
from bough.model.families.position_bias import distance_bias, position_bias
from bough.native import kernels
from bough.native.linear import RowLinear
from bough.native.norm import wide

Adapt = Callable[[str, Tensor, Tensor], Tensor]
Made = TypeVar("Made")


class Bucket(NamedTuple):
    """`texts` of `length` tokens each, side by side."""

    texts: int
    length: int
    bias: int = 0  # which of the position biases these texts brought with them (MPNet)


@dataclass(frozen=True)
class Layout:
    """Where the texts lie in the packed rows."""

    lengths: tuple[int, ...]
    biases: tuple[Tensor, ...] = ()  # tables of relative positions [distances, heads]
    bias_of: tuple[int, ...] = ()  # per text, which table
    traced: ClassVar[bool] = False  # by a graph's maker, who sees what torch does and no kernel

    @cached_property
    def buckets(self) -> tuple[Bucket, ...]:
        out: list[Bucket] = []
        which = self.bias_of or (0,) * len(self.lengths)
        for length, bias in zip(self.lengths, which, strict=True):
            if out and out[-1][1:] == (length, bias):
                out[-1] = Bucket(out[-1].texts + 1, length, bias)
            else:
                out.append(Bucket(1, length, bias))
        return tuple(out)

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    def on(self, device: torch.device) -> LayoutTensors:
        """The same as tensors there, moved once however many layers ask."""
        if device not in self._tensors:
            self._tensors[device] = LayoutTensors(self.lengths, self.bias_of, device)
        return self._tensors[device]

    @cached_property
    def _tensors(self) -> dict[torch.device, LayoutTensors]:
        return {}


class LayoutTensors:
    """A layout as tensors on one device, each made when it is first asked for.

    It does not point back at the layout, which would keep all of them, masks of long texts too, in
    memory until the next search for garbage.
    """

    def __init__(self, lengths: tuple[int, ...], bias_of: tuple[int, ...], device: torch.device):
        self._lengths = lengths
        self._bias_of = bias_of or (0,) * len(lengths)
        self.device = device
        self._kept: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What a layer makes of this layout, for all layers that want the same."""
        if key not in self._kept:
            self._kept[key] = make()
        made: Made = self._kept[key]
        return made

    @cached_property
    def lengths(self) -> Tensor:
        return torch.tensor(self._lengths, dtype=torch.long, device=self.device)

    @cached_property
    def starts(self) -> Tensor:
        """The row of each text's first token."""
        return self.lengths.cumsum(0) - self.lengths

    @cached_property
    def positions(self) -> Tensor:
        """Each row's place in its text."""
        starts = self.starts.repeat_interleave(self.lengths)
        return torch.arange(len(starts), device=self.device) - starts

    @cached_property
    def inside(self) -> Tensor:
        """True where a text padded to the longest has a token: [texts, longest]."""
        positions = torch.arange(max(self._lengths), device=self.device)
        return positions[None] < self.lengths[:, None]

    @cached_property
    def padded_rows(self) -> Tensor:
        """The row of each token among the texts padded to the longest, one after another."""
        lengths = self._lengths
        starts = range(0, len(lengths) * max(lengths), max(lengths))
        return gather_rows(starts, lengths).to(self.device)

    def shares_before(self, heads: int, single: bool) -> Tensor:
        """How many shares the texts before each have: of every head, query and token."""
        sizes = heads * self.lengths * (1 if single else self.lengths)
        return sizes.cumsum(0) - sizes

    @cached_property
    def bias_of(self) -> Tensor:
        return torch.tensor(self._bias_of, device=self.device)


def unchanged(letters: str, x: Tensor, y: Tensor) -> Tensor:
    """What a layer without adapters makes of the product of `x` and a matrix: the product."""
    return y


def self_attention(
    h: Tensor,
    first: Tensor | None,
    qkv: RowLinear,
    layout: Layout,
    heads: int,
    dropout: DropoutGenerator | None,
    adapt: Adapt = unchanged,
) -> Tensor:
    """Queries, keys and values of the rows, and attention: [tokens, d] -> [tokens, d].

    With `first`, the rows of each text's first token, only these ask: [texts, d]. `adapt` may add
    to a product, given the letters of its matrices and its input.
    """
    if first is None:
        return attend(adapt("qkv", h, qkv(h)), layout, heads, dropout)
    sizes = h.shape[1], 2 * h.shape[1]
    queries = adapt("q", first, qkv.part(first, sizes, 0))
    keys_values = adapt("kv", h, qkv.part(h, sizes, 1))
    return attend(keys_values, layout, heads, dropout, queries)


def attend(
    qkv: Tensor,
    layout: Layout,
    heads: int,
    dropout: DropoutGenerator | None,
    queries: Tensor | None = None,
) -> Tensor:
    """Each token's mixture of its text: [tokens, 3d] -> [tokens, d].

    With `queries` [texts, d], one per text, `qkv` holds keys and values only, [tokens, 2d], and
    only those mixtures are computed: [texts, d].
    """
    if qkv.is_cuda:
        return attend_padded(qkv, layout, heads, dropout, queries)
    keep, rate = None, 0.0
    if dropout is not None and dropout.trunk_rate > 0:
        rate = dropout.trunk_rate
        asking = layout.lengths if queries is None else (1,) * len(layout.lengths)
        pairs = sum(n * m for n, m in zip(asking, layout.lengths, strict=True))
        keep = dropout.keep((heads * pairs,), rate)
    out: Tensor
    if kernels.available(qkv) and not layout.traced:
        reach = max(layout.lengths)
        tables = [distance_bias(table, reach) for table in layout.biases]
        bias = torch.stack(tables).float().contiguous() if tables else None
        out = NativeAttention.apply(qkv.contiguous(), queries, bias, layout, heads, keep, rate)
    else:
        biases = tuple(position_bias(table, max(layout.lengths)) for table in layout.biases)
        out = PackedAttention.apply(qkv, queries, layout, heads, keep, rate, *biases)
    return out


class NativeAttention(torch.autograd.Function):
    """Scaled dot-product attention by the kernel in C, which makes the shares again on its way
    back."""

    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        queries: Tensor | None,
        bias: Tensor | None,
        layout: Layout,
        heads: int,
        keep: Tensor | None,
        rate: float,
    ) -> Tensor:
        if queries is not None:
            queries = queries.contiguous()
        tensors = layout.on(qkv.device)
        single = queries is not None
        texts = kernels.Texts(
            tensors.starts,
            tensors.lengths,
            heads,
            bias,
            tensors.bias_of if bias is not None else None,
            keep,
            tensors.shares_before(heads, single) if keep is not None else None,
            scale(rate) if keep is not None else 1.0,
        )
        out, lse = kernels.attention(texts, qkv, queries)
        ctx.save_for_backward(qkv, queries, lse, bias, keep)
        ctx.texts = texts._replace(bias=None, keep=None)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        qkv, queries, lse, bias, keep = ctx.saved_tensors
        texts = ctx.texts._replace(bias=bias, keep=keep)
        d_out = grads[0].to(qkv.dtype).contiguous()
        d_qkv, d_queries, d_bias = kernels.attention_backward(texts, qkv, queries, lse, d_out)
        return d_qkv, d_queries, d_bias, None, None, None, None


class PackedAttention(torch.autograd.Function):
    """Scaled dot-product attention, bucket after bucket, written out forward and backward."""

    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        queries: Tensor | None,
        layout: Layout,
        heads: int,
        keep: Tensor | None,
        rate: float,
        *tables: Tensor,
    ) -> Tensor:
        shape = (qkv.shape[0], qkv.shape[1] // 3) if queries is None else queries.shape
        views = _views(qkv, queries, layout, heads)
        out = qkv.new_empty(shape) if len(views) > 1 else None
        kept: list[Tensor] = []
        masks: list[Tensor | None] = []
        drawn = 0
        for bucket, (query, key, value), rows in views:
            scores = torch.matmul(query, key.transpose(-1, -2)).mul_(key.shape[-1] ** -0.5)
            if tables:
                scores += tables[bucket.bias][:, : query.shape[-2], : bucket.length]
            shares = torch.softmax(wide(scores), -1).to(qkv.dtype)
            kept.append(shares)
            if keep is not None:
                mask = keep[drawn : drawn + shares.numel()].view(shares.shape)
                drawn += shares.numel()
                masks.append(mask)
                shares = (shares * mask).mul_(scale(rate))
            else:
                masks.append(None)
            mixed = torch.matmul(shares, value).transpose(1, 2)
            if out is None:  # the only bucket's rows are all rows
                out = mixed.reshape(shape)
            else:
                out[rows].view(mixed.shape).copy_(mixed)
        assert out is not None
        ctx.save_for_backward(qkv, queries, *kept)
        ctx.masks, ctx.layout, ctx.heads, ctx.rate = masks, layout, heads, rate
        ctx.tables = [table.shape for table in tables]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        qkv, queries, *kept = ctx.saved_tensors
        d_out = grads[0].contiguous()
        d_qkv = torch.empty_like(qkv)
        d_queries = None if queries is None else torch.empty_like(queries)
        d_tables = [qkv.new_zeros(shape) for shape in ctx.tables]
        views = _views(qkv, queries, ctx.layout, ctx.heads)
        d_views = _views(d_qkv, d_queries, ctx.layout, ctx.heads)
        for view, d_view, shares, mask in zip(views, d_views, kept, ctx.masks, strict=True):
            bucket, (query, key, value), rows = view
            _, (d_query, d_key, d_value), _ = d_view
            d_mixed = d_out[rows].view(bucket.texts, -1, ctx.heads, key.shape[-1]).transpose(1, 2)
            used = shares if mask is None else (shares * mask).mul_(scale(ctx.rate))
            d_value.copy_(torch.matmul(used.transpose(-1, -2), d_mixed))
            d_shares = torch.matmul(d_mixed, value.transpose(-1, -2))
            if mask is not None:
                d_shares = (d_shares * mask).mul_(scale(ctx.rate))
            d_scores = torch._softmax_backward_data(d_shares, shares, -1, shares.dtype)
            if d_tables:
                d_tables[bucket.bias][:, : query.shape[-2], : bucket.length] += d_scores.sum(0)
            d_scores.mul_(key.shape[-1] ** -0.5)
            d_query.copy_(torch.matmul(d_scores, key))
            d_key.copy_(torch.matmul(d_scores.transpose(-1, -2), query))
        return d_qkv, d_queries, None, None, None, None, *d_tables


def _views(
    qkv: Tensor, queries: Tensor | None, layout: Layout, heads: int
) -> list[tuple[Bucket, tuple[Tensor, Tensor, Tensor], slice]]:
    """Each bucket's query, key and value as [texts, heads, length, width], and its output rows."""
    buckets = layout.buckets
    if len(buckets) == 1:  # nothing to cut: a trace, and a single text, are spared the slices
        return [(buckets[0], _by_head(qkv, buckets[0], queries, heads), slice(None))]
    out = []
    row = text = 0
    for bucket in buckets:
        size = bucket.texts * bucket.length
        rows = slice(row, row + size) if queries is None else slice(text, text + bucket.texts)
        asking = None if queries is None else queries[rows]
        parts = _by_head(qkv[row : row + size], bucket, asking, heads)
        out.append((bucket, parts, rows))
        row, text = row + size, text + bucket.texts
    return out


def _by_head(
    qkv: Tensor, bucket: Bucket, queries: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Views of texts of one length: query, key and value as [texts, heads, length, width]."""
    parts = 3 if queries is None else 2
    width = qkv.shape[1] // (parts * heads)  # all sizes by name: a trace need not solve for any
    blocks = qkv.view(bucket.texts, bucket.length, parts, heads, width)
    *query, key, value = blocks.permute(2, 0, 3, 1, 4)
    if queries is None:
        return query[0], key, value
    return queries.view(bucket.texts, 1, heads, width).transpose(1, 2), key, value


def attend_padded(
    qkv: Tensor,
    layout: Layout,
    heads: int,
    dropout: DropoutGenerator | None,
    queries: Tensor | None,
) -> Tensor:
    """The same in one piece, padded to the longest text inside this function.

    Without dropout through torch's own attention, which may choose a fused kernel; with dropout
    written out, because that cannot draw from a generator of ours.
    """
    tensors = layout.on(qkv.device)
    texts, longest = tensors.inside.shape
    padded = qkv.new_zeros(texts * longest, qkv.shape[1])
    padded = padded.index_copy(0, tensors.padded_rows, qkv)  # by number: a mask would wait for CUDA
    query, key, value = _by_head(padded, Bucket(texts, longest), queries, heads)
    mask = tensors.inside[:, None, None, :]
    if layout.biases:
        tables = torch.stack([position_bias(table, longest) for table in layout.biases])
        bias = tables[tensors.bias_of][:, :, : query.shape[-2]]
        mask = bias.masked_fill(~mask, float("-inf"))
    if dropout is None or dropout.trunk_rate <= 0:
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    else:
        scores = query @ key.transpose(-1, -2) * key.shape[-1] ** -0.5
        scores = scores + mask if layout.biases else scores.masked_fill(~mask, float("-inf"))
        mixed = drop(torch.softmax(wide(scores), -1).to(value.dtype), dropout) @ value
    mixed = mixed.transpose(1, 2).flatten(2)
    return mixed.flatten(0, 1)[tensors.padded_rows] if queries is None else mixed[:, 0]


def gather_rows(starts: Sequence[int], lengths: Sequence[int]) -> Tensor:
    """The row numbers of texts that start at `starts`, in the order given."""
    sizes = np.array(lengths, np.int64)
    ends = sizes.cumsum()
    shift = np.array(starts, np.int64) - ends + sizes
    return torch.from_numpy(np.arange(sizes.sum()) + shift.repeat(sizes))
