"""The encoder: embeddings, layers and pooler, each a module that runs on packed rows.

Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762) as BERT and its relatives have it, norm
after each half-layer. The modules hold no state besides weights and do not know the plan; the
model calls each once on all rows that use it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bough.model.attention import Layout, attend
from bough.model.dropout import DropoutGenerator, drop
from bough.plan.encoder_shape import Shape


class LayerAdapters(Protocol):
    """What a layer's adapters add; every method returns its input's shape.

    `firsts` says that the rows are one per text instead of one per token.
    """

    def matrix(self, letter: str, x: Tensor, y: Tensor, firsts: bool) -> Tensor:
        """`y`, the product of `x` with the matrix of this letter, with what is added to it."""

    def beside(self, h: Tensor, dice: DropoutGenerator | None, firsts: bool) -> Tensor | None:
        """What runs parallel to the layer, from the layer's input."""

    def after(self, y: Tensor, firsts: bool) -> Tensor:
        """What follows the layer."""


class Embeddings(nn.Module):
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
        self, ids: Tensor, types: Tensor, positions: Tensor, dice: DropoutGenerator | None
    ) -> Tensor:
        x = self.words(ids) + self.positions(positions + self.offset)
        if self.types is not None:
            # Families with one segment vector give it to every token, of pairs too.
            x = x + self.types(types if self.types.num_embeddings > 1 else torch.zeros_like(types))
        x = drop(self.norm(x), dice.trunk if dice else 0.0, dice)
        return x if self.project is None else self.project(x)


ACTIVATION = {
    "gelu": lambda x: F.gelu(x),
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


class RecomputedLinear(torch.autograd.Function):
    """W f(x) + b without keeping f(x), the widest rows of a layer: it is made again on the way
    back, which costs little beside the products and saves a fifth of a step's memory."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, bend: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bend = bend
        return F.linear(bend(x), weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            bent = ctx.bend(inner)
        # Under mixed precision rows are narrower than weights.
        d_out = grads[0].to(x.dtype)
        d_weight = (d_out.T @ bent.detach()).to(weight.dtype) if ctx.needs_input_grad[1] else None
        d_bias = d_out.sum(0).to(weight.dtype) if ctx.needs_input_grad[2] else None
        d_x = None
        if ctx.needs_input_grad[0]:
            (d_x,) = torch.autograd.grad(bent, inner, d_out @ weight.to(x.dtype))
        return d_x, d_weight, d_bias, None


class Layer(nn.Module):
    """Attention and feed-forward, each with residual and norm: [tokens, d] -> [tokens, d].

    With `firsts` only the rows of each text's first token come out, [texts, d]: all that a task
    which reads [CLS] needs of the last layer.
    """

    def __init__(self, shape: Shape):
        super().__init__()
        d = shape.width
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
        dice: DropoutGenerator | None,
        firsts: bool = False,
        tweaks: LayerAdapters | None = None,
    ) -> Tensor:
        rate = dice.trunk if dice else 0.0
        x = h[layout.starts.to(h.device)] if firsts else h

        def matrix(letter: str, linear: nn.Linear, rows: Tensor) -> Tensor:
            y = linear(rows)
            return y if tweaks is None else tweaks.matrix(letter, rows, y, firsts)

        mixed = self._attend(h, x, layout, dice, firsts, tweaks)
        m = self.norm1(x + drop(matrix("o", self.out, mixed), rate, dice))
        up = matrix("i", self.up, m)
        if tweaks is None:
            down = RecomputedLinear.apply(up, self.down.weight, self.down.bias, self.activation)
        else:
            down = matrix("f", self.down, self.activation(up))
        y = m + drop(down, rate, dice)
        beside = None if tweaks is None else tweaks.beside(h, dice, firsts)
        out: Tensor = self.norm2(y if beside is None else y + beside)
        return out if tweaks is None else tweaks.after(out, firsts)

    def _attend(
        self,
        h: Tensor,
        x: Tensor,
        layout: Layout,
        dice: DropoutGenerator | None,
        firsts: bool,
        tweaks: LayerAdapters | None,
    ) -> Tensor:
        if not firsts:
            qkv = self.qkv(h)
            if tweaks is not None:
                qkv = tweaks.matrix("qkv", h, qkv, False)
            return attend(qkv, layout, self.heads, dice)
        d = h.shape[1]
        weight, bias = self.qkv.weight.split((d, 2 * d)), self.qkv.bias.split((d, 2 * d))
        queries, kv = F.linear(x, weight[0], bias[0]), F.linear(h, weight[1], bias[1])
        if tweaks is not None:
            queries = tweaks.matrix("q", x, queries, True)
            kv = tweaks.matrix("kv", h, kv, False)
        return attend(kv, layout, self.heads, dice, queries)


class Pooler(nn.Module):
    """BERT's read-out: tanh(W h + b)."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.dense = nn.Linear(shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x))


def mean_of_texts(h: Tensor, layout: Layout) -> Tensor:
    """Each text's mean over its tokens: [tokens, d] -> [texts, d]."""
    lengths = torch.tensor(layout.lengths, device=h.device)
    return torch.segment_reduce(h, "mean", lengths=lengths, axis=0, unsafe=True)
