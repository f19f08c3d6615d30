"""The one place where texts look at their own tokens: attention over packed rows.

A batch has no padding: its rows are the tokens of all texts, texts of equal length side by side.
Such a *stretch* is attended as one dense batch without a mask. On the CPU that is a loop over the
stretches with its own backward (no copies to cut the rows apart); on CUDA many short ones would
each be a kernel launch, so the rows are padded inside attention alone, or go through torch's
variable-length kernel where it exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bough.model.dropout import DropoutGenerator, drop, scale


class Bucket(NamedTuple):
    """`texts` of `length` tokens each, side by side."""

    texts: int
    length: int
    bias: int = 0  # which of the position biases these texts brought with them (MPNet)


@dataclass(frozen=True)
class Layout:
    """Where the texts lie in the packed rows."""

    lengths: tuple[int, ...]
    biases: tuple[Tensor, ...] = ()  # tables of relative positions [buckets, heads]
    bias_of: tuple[int, ...] = field(default=())  # per text, which table

    @cached_property
    def stretches(self) -> tuple[Bucket, ...]:
        out: list[Bucket] = []
        which = self.bias_of or (0,) * len(self.lengths)
        for length, bias in zip(self.lengths, which, strict=True):
            if out and out[-1][1:] == (length, bias):
                out[-1] = Bucket(out[-1].texts + 1, length, bias)
            else:
                out.append(Bucket(1, length, bias))
        return tuple(out)

    @cached_property
    def starts(self) -> Tensor:
        """The row of each text's first token."""
        lengths = torch.tensor(self.lengths, dtype=torch.long)
        return lengths.cumsum(0) - lengths

    @property
    def tokens(self) -> int:
        return sum(self.lengths)


def attend(
    qkv: Tensor,
    layout: Layout,
    heads: int,
    dice: DropoutGenerator | None,
    queries: Tensor | None = None,
) -> Tensor:
    """Each token's mixture of its text: [tokens, 3d] -> [tokens, d].

    With `queries` [texts, d], one per text, `qkv` holds keys and values only, [tokens, 2d], and
    only those mixtures are computed: [texts, d].
    """
    if qkv.is_cuda:
        return attend_padded(qkv, layout, heads, dice, queries)
    tables = tuple(position_bias(table, max(layout.lengths)) for table in layout.biases)
    queries = None if queries is None else queries.to(qkv.dtype)
    # Forward and backward are in the precision of the rows, whatever autocast would choose.
    with torch.autocast(qkv.device.type, enabled=False):
        out: Tensor = PackedAttention.apply(qkv, queries, layout, heads, dice, *tables)
    return out


class PackedAttention(torch.autograd.Function):
    """Scaled dot-product attention, one run after another, written out forward and backward."""

    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        queries: Tensor | None,
        layout: Layout,
        heads: int,
        dice: DropoutGenerator | None,
        *tables: Tensor,
    ) -> Tensor:
        rate = dice.trunk if dice is not None else 0.0
        out = (
            qkv.new_empty(qkv.shape[0], qkv.shape[1] // 3)
            if queries is None
            else queries.new_empty(queries.shape)
        )
        kept: list[Tensor] = []
        masks: list[Tensor | None] = []
        for run, (query, key, value), rows in _cut(qkv, queries, layout, heads):
            scores = torch.matmul(query, key.transpose(-1, -2)).mul_(key.shape[-1] ** -0.5)
            if tables:
                scores += tables[run.bias][:, : query.shape[-2], : run.length]
            shares = torch.softmax(scores, -1)
            kept.append(shares)
            if dice is not None and rate > 0:
                mask = dice.keep(shares.shape, rate)
                masks.append(mask)
                shares = (shares * mask).mul_(scale(rate))
            else:
                masks.append(None)
            mixed = torch.matmul(shares, value).transpose(1, 2)
            out[rows].view(mixed.shape).copy_(mixed)
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
        cuts = _cut(qkv, queries, ctx.layout, ctx.heads)
        backs = _cut(d_qkv, d_queries, ctx.layout, ctx.heads)
        for (run, (query, key, value), rows), (
            _,
            (d_query, d_key, d_value),
            _,
        ), shares, mask in zip(cuts, backs, kept, ctx.masks, strict=True):
            d_mixed = d_out[rows].view(run.texts, -1, ctx.heads, key.shape[-1]).transpose(1, 2)
            used = shares if mask is None else (shares * mask).mul_(scale(ctx.rate))
            d_value.copy_(torch.matmul(used.transpose(-1, -2), d_mixed))
            d_shares = torch.matmul(d_mixed, value.transpose(-1, -2))
            if mask is not None:
                d_shares = (d_shares * mask).mul_(scale(ctx.rate))
            d_scores = torch._softmax_backward_data(d_shares, shares, -1, shares.dtype)
            if d_tables:
                d_tables[run.bias][:, : query.shape[-2], : run.length] += d_scores.sum(0)
            d_scores.mul_(key.shape[-1] ** -0.5)
            d_query.copy_(torch.matmul(d_scores, key))
            d_key.copy_(torch.matmul(d_scores.transpose(-1, -2), query))
        return d_qkv, d_queries, None, None, None, *d_tables


def _cut(
    qkv: Tensor, queries: Tensor | None, layout: Layout, heads: int
) -> list[tuple[Bucket, tuple[Tensor, Tensor, Tensor], slice]]:
    """Views of each stretch: query, key, value as [texts, heads, length, width]; its out rows."""
    out = []
    row = text = 0
    parts = 3 if queries is None else 2
    for run in layout.stretches:
        size = run.texts * run.length
        block = qkv[row : row + size].view(run.texts, run.length, parts, heads, -1)
        *own, key, value = block.permute(2, 0, 3, 1, 4)
        if queries is None:
            query, rows = own[0], slice(row, row + size)
        else:
            rows = slice(text, text + run.texts)
            query = queries[rows].view(run.texts, 1, heads, -1).transpose(1, 2)
        out.append((run, (query, key, value), rows))
        row, text = row + size, text + run.texts
    return out


def attend_padded(
    qkv: Tensor,
    layout: Layout,
    heads: int,
    dice: DropoutGenerator | None,
    queries: Tensor | None = None,
) -> Tensor:
    """The same through torch's fused kernel, padded to the longest text inside this function."""
    lengths = torch.tensor(layout.lengths, device=qkv.device)
    longest, texts = max(layout.lengths), len(layout.lengths)
    at = torch.arange(longest, device=qkv.device)
    inside = at[None] < lengths[:, None]  # [texts, longest]
    parts = 3 if queries is None else 2
    width = qkv.shape[1] // parts
    padded = qkv.new_zeros(texts, longest, parts * width)
    padded[inside] = qkv
    *own, key, value = padded.view(texts, longest, parts, heads, -1).permute(2, 0, 3, 1, 4)
    query = own[0] if queries is None else queries.view(texts, 1, heads, -1).transpose(1, 2)
    mask = inside[:, None, None, :]
    if layout.biases:
        tables = torch.stack([position_bias(table, longest) for table in layout.biases])
        which = torch.tensor(layout.bias_of or (0,) * texts, device=qkv.device)
        bias = tables[which][:, :, : query.shape[-2]]
        mask = bias.masked_fill(~mask, float("-inf"))
    if dice is None or dice.trunk <= 0:
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    else:
        scores = query @ key.transpose(-1, -2) * key.shape[-1] ** -0.5
        scores = scores + mask if layout.biases else scores.masked_fill(~mask, float("-inf"))
        mixed = drop(torch.softmax(scores, -1), dice.trunk, dice) @ value
    mixed = mixed.transpose(1, 2).reshape(texts, -1, width)
    return mixed[inside] if queries is None else mixed[:, 0]


def position_bias(table: Tensor, length: int) -> Tensor:
    """MPNet's bias by distance: [buckets, heads] -> [heads, length, length]."""
    at = torch.arange(length, device=table.device)
    distance = at[:, None] - at[None, :]
    return table[bucket(distance, table.shape[0])].permute(2, 0, 1)


def bucket(distance: Tensor, buckets: int, furthest: int = 128) -> Tensor:
    """T5's buckets: half for each direction, exact when near, logarithmic when far."""
    half = buckets // 2
    exact = half // 2
    far = distance.abs().clamp(min=1).float()
    log = torch.log(far / exact) / torch.log(torch.tensor(furthest / exact)) * (half - exact)
    near = distance.abs()
    which = torch.where(near < exact, near, (exact + log.long()).clamp(max=half - 1))
    return which + half * (distance < 0)


def gather_rows(starts: Sequence[int], lengths: Sequence[int]) -> Tensor:
    """The row numbers of texts that start at `starts`, in the order given."""
    sizes = torch.tensor(lengths, dtype=torch.long)
    shift = torch.tensor(starts, dtype=torch.long) - (sizes.cumsum(0) - sizes)
    return torch.arange(int(sizes.sum())) + shift.repeat_interleave(sizes)
