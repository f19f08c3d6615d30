"""The encoder: embeddings, layers and pooler, each a module that runs on packed rows.

Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762) as BERT and its relatives have it, norm
after each half-layer. The modules hold no state besides weights and do not know the plan; the
model calls each once on all rows that use it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bough.model.attention import Layout, self_attention, unchanged
from bough.model.dropout import DropoutGenerator, drop, scale
from bough.model.families.parts import Attention, EmbeddingsModule, LayerAdapters, LayerModule
from bough.native.linear import Activation, RowLinear, gelu
from bough.native.norm import norm_of_sum, wide
from bough.plan.encoder_shape import Shape


class Embeddings(EmbeddingsModule):
    """Token, position and segment vectors, summed and normed: ids [tokens] -> [tokens, d]."""

    def __init__(self, shape: Shape):
        super().__init__()
        e = shape.embedding
        self.offset = shape.offset
        self.words = nn.Embedding(shape.vocabulary, e)
        self.positions = nn.Embedding(shape.positions, e)
        self.types = nn.Embedding(shape.types, e) if shape.types else None
        self.norm = nn.LayerNorm(e, eps=shape.eps)
        self.project = nn.Linear(e, shape.width) if e != shape.width else None
        self.relative = nn.Embedding(shape.relative, shape.heads) if shape.relative else None

    def forward(
        self, ids: Tensor, types: Tensor, positions: Tensor, dropout: DropoutGenerator | None
    ) -> Tensor:
        x = self.words(ids) + self.positions(positions + self.offset)
        if self.types is not None:
            # Families with one segment vector give it to every token, of pairs too.
            x = x + self.types(types if self.types.num_embeddings > 1 else torch.zeros_like(types))
        x = drop(self.norm(x), dropout)
        return x if self.project is None else self.project(x)

    def position_table(self) -> Tensor:
        assert self.relative is not None
        return self.relative.weight


ACTIVATION: dict[str, Activation] = {
    "gelu": gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


def plain_attention(
    h: Tensor,
    first: Tensor | None,
    qkv: RowLinear,
    layout: Layout,
    heads: int,
    dropout: DropoutGenerator | None,
    adapters: LayerAdapters | None,
) -> Tensor:
    """BERT's: [tokens, d] -> [tokens, d], or with `first` [texts, d]."""
    matrix = unchanged if adapters is None else adapters.matrix
    return self_attention(h, first, qkv, layout, heads, dropout, matrix)


class Layer(LayerModule):
    """Attention and feed-forward, each with residual and norm: [tokens, d] -> [tokens, d].

    With `cls_only` only the rows of each text's first token come out, [texts, d]: all that a task
    which reads [CLS] needs of the last layer.
    """

    def __init__(self, shape: Shape, attention: Attention = plain_attention):
        super().__init__()
        d = shape.width
        self.attention = attention
        self.heads = shape.heads
        self.activation = ACTIVATION[shape.activation]
        self.qkv = RowLinear(d, 3 * d)
        self.out = RowLinear(d, d)
        self.norm1 = nn.LayerNorm(d, eps=shape.eps)
        self.up = RowLinear(d, shape.inner)
        self.down = RowLinear(shape.inner, d)
        self.norm2 = nn.LayerNorm(d, eps=shape.eps)

    def forward(
        self,
        h: Tensor,
        layout: Layout,
        dropout: DropoutGenerator | None,
        cls_only: bool = False,
        adapters: LayerAdapters | None = None,
    ) -> Tensor:
        first = h[layout.on(h.device).starts] if cls_only else None
        matrix = unchanged if adapters is None else adapters.matrix
        mixed = self.attention(h, first, self.qkv, layout, self.heads, dropout, adapters)
        x = h if first is None else first
        m = add_and_norm(x, matrix("o", mixed, self.out(mixed)), dropout, self.norm1)
        up = matrix("i", m, self.up(m))
        if adapters is None:
            return add_and_norm(m, self.down.after(self.activation, up), dropout, self.norm2)
        active = self.activation(up)
        down = matrix("f", active, self.down(active))
        parallel = adapters.parallel(h, dropout, cls_only)
        x = m if parallel is None else m + parallel
        return adapters.after(add_and_norm(x, down, dropout, self.norm2))


def add_and_norm(
    x: Tensor, z: Tensor, dropout: DropoutGenerator | None, norm: nn.LayerNorm
) -> Tensor:
    """norm(x + drop(z))."""
    if dropout is None or dropout.trunk_rate <= 0:
        return norm_of_sum(x, z, None, 1.0, norm)
    rate = dropout.trunk_rate
    return norm_of_sum(x, z, dropout.keep(z.shape, rate), scale(rate), norm)


class Pooler(nn.Module):
    """BERT's read-out: tanh(W h + b)."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.dense = nn.Linear(shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x))


def mean_of_texts(h: Tensor, layout: Layout) -> Tensor:
    """Each text's mean over its tokens: [tokens, d] -> [texts, d]."""
    lengths = layout.on(h.device).lengths
    rows = wide(h)
    return torch.segment_reduce(rows, "mean", lengths=lengths, axis=0, unsafe=True)
