"""ModernBERT: the norm before each half-layer, no biases, gated feed-forward, rotary positions,
and layers of which most see a window only.

Warner et al. 2024, https://arxiv.org/abs/2412.13663. Positions are in the angle by which queries
and keys are turned (Su et al. 2021, https://arxiv.org/abs/2104.09864), so nothing is added to the
words. The last layer ends with the norm that the encoder ends with.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bough.model.attention import Layout, self_attention, unchanged
from bough.model.dropout import DropoutGenerator, drop
from bough.model.families.parts import EmbeddingsModule, LayerAdapters, LayerModule
from bough.model.transformer import ACTIVATION
from bough.native.linear import RowLinear
from bough.native.norm import norm_of, wide
from bough.plan.encoder_shape import Shape


class ModernBertEmbeddings(EmbeddingsModule):
    """Token vectors, normed: ids [tokens] -> [tokens, d]."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.norm = nn.LayerNorm(shape.width, eps=shape.eps, bias=False)
        self.relative = None

    def forward(
        self, ids: Tensor, types: Tensor, positions: Tensor, dropout: DropoutGenerator | None
    ) -> Tensor:
        return drop(self.norm(self.words(ids)), dropout)


class ModernBertLayer(LayerModule):
    """Attention and feed-forward on normed rows, each added to its input.

    Adapters that run parallel read what attention reads, and those that follow come after the
    feed-forward half, before it is added: the rows between layers are not normed.
    """

    def __init__(self, shape: Shape, number: int):
        super().__init__()
        d, eps = shape.width, shape.eps
        self.heads = shape.heads
        self.reach = shape.reach(number)
        self.theta = shape.theta if self.reach is None else shape.local_theta
        self.activation = ACTIVATION[shape.activation]
        self.norm1 = nn.LayerNorm(d, eps=eps, bias=False) if number > 1 else None
        self.qkv = RowLinear(d, 3 * d, bias=False)
        self.out = RowLinear(d, d, bias=False)
        self.norm2 = nn.LayerNorm(d, eps=eps, bias=False)
        self.up = RowLinear(d, shape.up, bias=False)
        self.down = RowLinear(shape.inner, d, bias=False)
        last = number == shape.layers
        self.final = nn.LayerNorm(d, eps=eps, bias=False) if last else None

    def forward(
        self,
        h: Tensor,
        layout: Layout,
        dropout: DropoutGenerator | None,
        cls_only: bool = False,
        adapters: LayerAdapters | None = None,
    ) -> Tensor:
        matrix = unchanged if adapters is None else adapters.matrix
        x = h if self.norm1 is None else norm_of(h, self.norm1)
        mixed = self._attention(x, layout, dropout, cls_only, adapters)
        rows = h[layout.on(h.device).starts] if cls_only else h
        m = rows + drop(matrix("o", mixed, self.out(mixed)), dropout)
        n = norm_of(m, self.norm2)
        up = matrix("i", n, self.up(n))
        if adapters is None:
            down = self.down.after(self._gated, up)
        else:
            active = self._gated(up)
            down = adapters.after(matrix("f", active, self.down(active)))
        y = m + drop(down, dropout)
        if adapters is not None:
            parallel = adapters.parallel(x, dropout, cls_only)
            y = y if parallel is None else y + parallel
        return y if self.final is None else norm_of(y, self.final)

    def _attention(
        self,
        x: Tensor,
        layout: Layout,
        dropout: DropoutGenerator | None,
        cls_only: bool,
        adapters: LayerAdapters | None,
    ) -> Tensor:
        tensors = layout.on(x.device)
        cos, sin = tensors.once((self.theta, self.heads), lambda: self._turns(tensors.positions, x))

        def turned(letters: str, x: Tensor, y: Tensor) -> Tensor:
            """The product with the adapters' part, its queries and keys turned."""
            y = y if adapters is None else adapters.matrix(letters, x, y)
            return y if letters == "q" else rotate(y, cos, sin, self.heads, letters)

        if self.reach is None or within(layout, self.reach):
            # A first token's query is turned by no angle.
            first = x[tensors.starts] if cls_only else None
            return self_attention(x, first, self.qkv, layout, self.heads, dropout, turned)
        qkv = turned("qkv", x, self.qkv(x))
        mixed = attend_nearby(qkv, layout, self.heads, self.reach, dropout)
        return mixed[tensors.starts] if cls_only else mixed

    def _turns(self, positions: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of each row's angles, [tokens, 1, 1, half of a head's width]."""
        width = x.shape[1] // self.heads
        steps = torch.arange(0, width, 2, dtype=torch.float, device=x.device) / width
        # As in transformers to the last bit: far from a text's beginning it shows.
        angles = (positions[:, None].float() * (1.0 / self.theta**steps))[:, None, None]
        return angles.cos(), angles.sin()

    def _gated(self, up: Tensor) -> Tensor:
        active, gate = up.chunk(2, -1)
        return self.activation(active) * gate


def rotate(y: Tensor, cos: Tensor, sin: Tensor, heads: int, letters: str) -> Tensor:
    """Queries and keys of the rows turned by the rows' angles, values as they are."""
    parts = y.view(y.shape[0], len(letters), heads, -1)
    turning, still = parts.split([len(letters) - 1, 1], 1)
    a, b = turning.float().chunk(2, -1)
    turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(y.dtype)
    return torch.cat([turned, still], 1).flatten(1)


def within(layout: Layout, reach: int) -> bool:
    """Whether a window hides nothing of these texts; a trace is for all lengths."""
    return not torch.compiler.is_exporting() and max(layout.lengths) <= reach + 1


def attend_nearby(
    qkv: Tensor, layout: Layout, heads: int, reach: int, dropout: DropoutGenerator | None
) -> Tensor:
    """As `attend`, each token seeing `reach` tokens to either side: [tokens, 3d] -> [tokens, d].

    The rows are cut into blocks of `reach`, whatever text they are of, and a block's rows look at
    three blocks: the work grows with the tokens, not with the square of a text's.
    """
    tokens = qkv.shape[0]
    blocks = (tokens + reach - 1) // reach
    filled = torch.cat([qkv, qkv.new_zeros(blocks * reach - tokens, qkv.shape[1])])
    parts = filled.view(blocks, reach, 3, heads, -1)
    query, key, value = parts.permute(2, 0, 3, 1, 4)  # [blocks, heads, reach, width]
    scores = query @ three_blocks(key).transpose(-1, -2) * key.shape[-1] ** -0.5
    tensors = layout.on(qkv.device)
    hidden = tensors.once(("hidden", reach), lambda: beyond(tensors.positions, blocks, reach))
    shares = torch.softmax(wide(scores).masked_fill(hidden, float("-inf")), -1).to(qkv.dtype)
    mixed = drop(shares, dropout) @ three_blocks(value)
    return mixed.transpose(1, 2).reshape(blocks * reach, -1)[:tokens]


def three_blocks(rows: Tensor, beyond_the_ends: int = 0) -> Tensor:
    """Each block with those before and after it, [blocks, ?, 3 reach, ?]."""
    padded = F.pad(rows, (0, 0, 0, 0, 0, 0, 1, 1), value=beyond_the_ends)
    return torch.cat([padded[:-2], padded[1:-1], padded[2:]], 2)


def beyond(positions: Tensor, blocks: int, reach: int) -> Tensor:
    """True where a row must not see one of its three blocks: [blocks, 1, reach, 3 reach]."""
    tokens, device = positions.shape[0], positions.device
    text = torch.arange(tokens, device=device) - positions  # the row where its text begins
    # What fills the last block is a text of its own: a row that sees nothing has no shares.
    filler = torch.full((blocks * reach - tokens,), -1, device=device)
    asking = torch.cat([text, filler]).view(blocks, 1, reach, 1)
    seen = three_blocks(asking, -2).transpose(2, 3)
    at = torch.arange(3 * reach, device=device)
    apart = at[None, :] - at[reach : 2 * reach, None]
    return (asking != seen) | (apart.abs() > reach)
