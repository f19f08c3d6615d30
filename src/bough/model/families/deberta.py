"""DeBERTa-v3: attention in which what a token is and where it stands ask and answer apart.

He et al. 2021, https://arxiv.org/abs/2111.09543 and https://arxiv.org/abs/2006.03654. Nothing says
at the input where a token is. One table of vectors, a row for each bucket of distances, is common
to all layers; each layer makes of it queries and keys with the matrices that it has for tokens. To
the product of two tokens come the product of the one's query with the key of their distance, and
that of the other's key with the query of their distance.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from bough.model.attention import Bucket, Layout, unchanged
from bough.model.dropout import DropoutGenerator, drop
from bough.model.families.parts import EmbeddingsModule, LayerAdapters
from bough.native.linear import RowLinear
from bough.native.norm import wide
from bough.plan.encoder_shape import Shape


class DebertaEmbeddings(EmbeddingsModule):
    """Token vectors, normed: ids [tokens] -> [tokens, d]; and the table of distances."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.norm = nn.LayerNorm(shape.width, eps=shape.eps)
        self.relative = nn.Embedding(shape.relative, shape.width)
        self.relative_norm = nn.LayerNorm(shape.width, eps=shape.eps)

    def forward(
        self, ids: Tensor, types: Tensor, positions: Tensor, dropout: DropoutGenerator | None
    ) -> Tensor:
        return drop(self.norm(self.words(ids)), dropout)

    def position_table(self) -> Tensor:
        assert self.relative is not None
        table: Tensor = self.relative_norm(self.relative.weight)
        return table


class DisentangledAttention:
    """A layer's attention; holds no weights but knows the row of the table for each distance."""

    def __init__(self, shape: Shape):
        self.size, self.longest = shape.relative, shape.longest
        self.rows = table_rows(shape.relative // 2, shape.longest)

    def __call__(
        self,
        h: Tensor,
        first: Tensor | None,
        qkv: RowLinear,
        layout: Layout,
        heads: int,
        dropout: DropoutGenerator | None,
        adapters: LayerAdapters | None,
    ) -> Tensor:
        """[tokens, d] -> [tokens, d]; with `first`, the texts' first rows, only these ask."""
        matrix = unchanged if adapters is None else adapters.matrix
        sizes = h.shape[1], 2 * h.shape[1]
        queries = None
        if first is None:
            rows = matrix("qkv", h, qkv(h))
        else:
            queries = matrix("q", first, qkv.part(first, sizes, 0))
            rows = matrix("kv", h, qkv.part(h, sizes, 1))
        low, high = self._used(layout)
        positions = placed(layout, qkv, low, high, h.dtype, dropout, adapters)
        piecewise = self._padded if h.is_cuda else self._by_bucket
        return piecewise(rows, queries, positions, low, heads, dropout)

    def _used(self, layout: Layout) -> tuple[int, int]:
        """The rows of the table that texts of these lengths need; a trace is for all lengths."""
        if torch.compiler.is_exporting():
            return 0, self.size
        n = max(layout.lengths)
        return int(self.rows[self.longest - n]), int(self.rows[self.longest + n]) + 1

    def _by_bucket(
        self,
        rows: Tensor,
        queries: Tensor | None,
        positions: Layout,
        low: int,
        heads: int,
        dropout: DropoutGenerator | None,
    ) -> Tensor:
        """Texts of equal length at a time."""
        buckets = positions.buckets
        if len(buckets) == 1:  # nothing to cut, as in a trace
            table = positions.biases[buckets[0].bias]
            return self._mixed(rows, queries, table, buckets[0], low, heads, None, dropout)
        parts = rows.split([bucket.texts * bucket.length for bucket in buckets])
        texts = [bucket.texts for bucket in buckets]
        asking = [None] * len(buckets) if queries is None else queries.split(texts)
        return torch.cat(
            [
                self._mixed(
                    part, ask, positions.biases[bucket.bias], bucket, low, heads, None, dropout
                )
                for part, ask, bucket in zip(parts, asking, buckets, strict=True)
            ]
        )

    def _padded(
        self,
        rows: Tensor,
        queries: Tensor | None,
        positions: Layout,
        low: int,
        heads: int,
        dropout: DropoutGenerator | None,
    ) -> Tensor:
        """All texts at once, padded to the longest inside this function."""
        tensors = positions.on(rows.device)
        texts, longest = tensors.inside.shape
        padded = rows.new_zeros(texts * longest, rows.shape[1])
        padded = padded.index_copy(0, tensors.padded_rows, rows)
        tables = torch.stack(positions.biases)[tensors.bias_of]
        mask = ~tensors.inside[:, None, None, :]
        whole = Bucket(texts, longest)
        mixed = self._mixed(padded, queries, tables, whole, low, heads, mask, dropout)
        return mixed[tensors.padded_rows] if queries is None else mixed

    def _mixed(
        self,
        rows: Tensor,
        queries: Tensor | None,
        table: Tensor,
        bucket: Bucket,
        low: int,
        heads: int,
        mask: Tensor | None,
        dropout: DropoutGenerator | None,
    ) -> Tensor:
        """Attention of texts of one length; the table is [rows, 2d], or one for each text."""
        texts, n = bucket.texts, bucket.length
        parts = rows.view(texts, n, 3 if queries is None else 2, heads, -1)
        *query, key, value = parts.permute(2, 0, 3, 1, 4)  # each [texts, heads, n, width]
        places = self.rows.to(rows.device) - low
        by_head = table.unflatten(-1, (2, heads, -1)).movedim(-3, 0)
        distance_query, distance_key = by_head.transpose(-3, -2)  # each [..., heads, rows, width]
        if queries is None:
            # Column c is of distance c - (n - 1); skewed, a token's row starts where it stands.
            far = torch.arange(2 * n, device=rows.device) - (n - 1)
            keys = distance_key.index_select(-2, places[self.longest - far])
            asking = distance_query.index_select(-2, places[self.longest + far])
            scores = query[0] @ key.transpose(-1, -2) + skewed(query[0] @ keys.transpose(-1, -2))
            scores = scores + skewed(key @ asking.transpose(-1, -2)).transpose(-1, -2)
        else:
            before = places[self.longest - torch.arange(n, device=rows.device)]
            first = queries.view(texts, 1, heads, -1).transpose(1, 2)
            keys = distance_key.index_select(-2, before)
            asking = distance_query.index_select(-2, before)
            scores = first @ (key + keys).transpose(-1, -2) + (key * asking).sum(-1).unsqueeze(-2)
        scores = wide(scores) * (3 * key.shape[-1]) ** -0.5
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        mixed = drop(torch.softmax(scores, -1).to(value.dtype), dropout) @ value
        out: Tensor = mixed.transpose(1, 2).flatten(2).flatten(0, 1)
        return out


def placed(
    layout: Layout,
    qkv: RowLinear,
    low: int,
    high: int,
    dtype: torch.dtype,
    dropout: DropoutGenerator | None,
    adapters: LayerAdapters | None,
) -> Layout:
    """The layout with queries and keys of distances, [rows, 2d], in place of the tables.

    Adapters that change the matrices change them for distances, too: a text's table is then its
    segment's.
    """
    tables: list[Tensor] = []
    for table in layout.biases:
        used = drop(table[low:high], dropout).to(dtype)
        made = qkv.part(used, (2 * used.shape[1], used.shape[1]), 0)
        tables += [made] if adapters is None else adapters.each("qk", used, made)
    which = layout.bias_of or (0,) * len(layout.lengths)
    if adapters is not None:
        segments = adapters.segment_of()
        number = len(tables) // len(layout.biases)
        which = tuple(t * number + s for t, s in zip(which, segments, strict=True))
    return replace(layout, biases=tuple(tables), bias_of=which)


def skewed(x: Tensor) -> Tensor:
    """[..., n, 2n] -> [..., n, n]: row i begins at column n - 1 - i."""
    n = x.shape[-2]
    rows: Tensor = x.flatten(-2).narrow(-1, n - 1, n * (2 * n - 1))
    out: Tensor = rows.unflatten(-1, (n, 2 * n - 1)).narrow(-1, 0, n)
    return out


def table_rows(buckets: int, longest: int) -> Tensor:
    """The row of the table for each distance from -longest to longest.

    Half of the buckets are exact, the others logarithmic; the row in the middle is for none.
    """
    distance = torch.arange(-longest, longest + 1, device="cpu")  # also of a network on no device
    middle = buckets // 2
    scale = torch.log(torch.tensor((longest - 1) / middle, device="cpu"))
    steps = torch.ceil(torch.log(distance.abs() / middle) / scale * (middle - 1)) + middle
    which = torch.where(distance.abs() <= middle, distance, steps * distance.sign())
    return (which.long() + buckets).clamp(0, 2 * buckets - 1)
