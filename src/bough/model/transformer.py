"""The encoder: embeddings, layers and pooler, each a module that runs on packed rows.

Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762) as BERT and its relatives have it, norm
after each half-layer. The modules hold no state besides weights and do not know the plan; the
model calls each once on all rows that use it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bough.model.attention import Layout, self_attention, unchanged
from bough.model.dropout import DropoutGenerator, drop
from bough.model.families.parts import Attention, EmbeddingsModule, LayerAdapters, LayerModule
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


ACTIVATION = {
    "gelu": lambda x: F.gelu(x),
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


class RecomputedLinear(torch.autograd.Function):
    """W f(x) + b without keeping f(x), the widest rows of a layer: it is made again in the
    backward pass, which costs little beside the products and saves a fifth of a step's memory."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        activation: Callable[[Tensor], Tensor],
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.activation = activation
        return F.linear(activation(x), weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            active = ctx.activation(inner)
        # Under mixed precision rows are narrower than weights.
        d_out = grads[0].to(x.dtype)
        d_weight = (d_out.T @ active.detach()).to(weight.dtype) if ctx.needs_input_grad[1] else None
        d_bias = d_out.sum(0).to(weight.dtype) if ctx.needs_input_grad[2] else None
        d_x = None
        if ctx.needs_input_grad[0]:
            (d_x,) = torch.autograd.grad(active, inner, d_out @ weight.to(x.dtype))
        return d_x, d_weight, d_bias, None


def plain_attention(
    h: Tensor,
    first: Tensor | None,
    qkv: nn.Linear,
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
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.norm1 = nn.LayerNorm(d, eps=shape.eps)
        self.up = nn.Linear(d, shape.inner)
        self.down = nn.Linear(shape.inner, d)
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
        m = self.norm1(x + drop(matrix("o", mixed, self.out(mixed)), dropout))
        up = matrix("i", m, self.up(m))
        if adapters is None:
            down = RecomputedLinear.apply(up, self.down.weight, self.down.bias, self.activation)
        else:
            active = self.activation(up)
            down = matrix("f", active, self.down(active))
        y = m + drop(down, dropout)
        if adapters is not None:
            parallel = adapters.parallel(h, dropout, cls_only)
            y = y if parallel is None else y + parallel
        out: Tensor = self.norm2(y)
        return out if adapters is None else adapters.after(out)


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
    return torch.segment_reduce(h, "mean", lengths=lengths, axis=0, unsafe=True)
