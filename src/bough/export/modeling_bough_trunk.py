"""The trunk's modules for `modeling_bough`: embeddings and layers of each network, on padded texts.

Three networks stand for all families of encoders: BERT's, whose norms follow the half-layers;
DeBERTa-v3's, which differs in its attention; and ModernBERT's, whose norms come first.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Shape = dict[str, Any]


class Seen(NamedTuple):
    """What a layer is told of the texts."""

    padding: Tensor  # added to scores: [n, 1, 1, length], the lowest number where there is no token
    positions: Tensor  # [n, length]
    table: Tensor | None = None  # the embeddings' vectors of relative positions


class Embeddings(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        e, d = shape["embedding"], shape["width"]
        self.offset = shape["offset"]
        self.words = nn.Embedding(shape["vocabulary"], e)
        self.positions = nn.Embedding(shape["positions"], e)
        self.types = nn.Embedding(shape["types"], e) if shape["types"] else None
        self.norm = nn.LayerNorm(e, eps=shape["eps"])
        self.project = nn.Linear(e, d) if e != d else None
        relative = shape["relative"]
        self.relative = nn.Embedding(relative, shape["heads"]) if relative else None

    def forward(self, ids: Tensor, types: Tensor, positions: Tensor) -> Tensor:
        x = self.words(ids) + self.positions(positions + self.offset)
        if self.types is not None:
            x = x + self.types(types if self.types.num_embeddings > 1 else torch.zeros_like(types))
        x = self.norm(x)
        out: Tensor = x if self.project is None else self.project(x)
        return out

    def table(self) -> Tensor | None:
        return None if self.relative is None else self.relative.weight


def attend(qkv: Tensor, heads: int, mask: Tensor) -> Tensor:
    """[n, length, 3 d] -> [n, length, d]; the mask is added to the scores."""
    n, length, _ = qkv.shape
    query, key, value = qkv.view(n, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return mixed.transpose(1, 2).reshape(n, length, -1)


def activate(name: str, x: Tensor) -> Tensor:
    if name == "relu":
        return F.relu(x)
    return F.gelu(x, approximate="none" if name == "gelu" else "tanh")


class PostNormLayer(nn.Module):
    """Attention and feed-forward, each followed by a norm; whose attention, a subclass says."""

    def __init__(self, shape: Shape, number: int):
        super().__init__()
        d, inner, eps = shape["width"], shape["inner"], shape["eps"]
        self.heads, self.activation = shape["heads"], shape["activation"]
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, inner), nn.Linear(inner, d)
        self.norm1, self.norm2 = nn.LayerNorm(d, eps=eps), nn.LayerNorm(d, eps=eps)

    def forward(self, h: Tensor, seen: Seen, n: str, adapters: list[Any]) -> Tensor:
        m = self.norm1(h + self.out(self._attend(h, seen)))
        y = m + self.down(activate(self.activation, self.up(m)))
        for adapter in adapters:
            added = adapter.parallel(n, h, seen.padding)
            y = y if added is None else y + added
        out: Tensor = self.norm2(y)
        for adapter in adapters:
            out = adapter.after(n, out)
        return out

    def _attend(self, h: Tensor, seen: Seen) -> Tensor:
        raise NotImplementedError


class Layer(PostNormLayer):
    def _attend(self, h: Tensor, seen: Seen) -> Tensor:
        mask = seen.padding
        if seen.table is not None:
            mask = mask + position_bias(seen.table, h.shape[1])
        return attend(self.qkv(h), self.heads, mask)


def position_bias(table: Tensor, length: int) -> Tensor:
    """MPNet's, by distance: [heads, length, length]."""
    at = torch.arange(length, device=table.device)
    distance = at[:, None] - at[None, :]
    half = len(table) // 2
    exact = half // 2
    far = distance.abs().clamp(min=1).float()
    log = torch.log(far / exact) / math.log(128 / exact) * (half - exact)
    near = distance.abs()
    which = torch.where(near < exact, near, (exact + log.long()).clamp(max=half - 1))
    return table[which + half * (distance < 0)].permute(2, 0, 1)


class ModernBertEmbeddings(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.words = nn.Embedding(shape["vocabulary"], shape["width"])
        self.norm = nn.LayerNorm(shape["width"], eps=shape["eps"], bias=False)

    def forward(self, ids: Tensor, types: Tensor, positions: Tensor) -> Tensor:
        out: Tensor = self.norm(self.words(ids))
        return out

    def table(self) -> None:
        return None


class ModernBertLayer(nn.Module):
    def __init__(self, shape: Shape, number: int):
        super().__init__()
        d, inner = shape["width"], shape["inner"]
        self.heads, self.activation = shape["heads"], shape["activation"]
        local = number in shape["local"]
        self.reach = shape["window"] // 2 if local else None
        self.theta = shape["local_theta"] if local else shape["theta"]
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up = nn.Linear(d, 2 * inner, bias=False)
        self.down = nn.Linear(inner, d, bias=False)
        norms = [nn.LayerNorm(d, eps=shape["eps"], bias=False) for _ in range(3)]
        self.norm1 = norms[0] if number > 1 else None
        self.norm2 = norms[1]
        self.final = norms[2] if number == shape["layers"] else None

    def forward(self, h: Tensor, seen: Seen, n: str, adapters: list[Any]) -> Tensor:
        x = h if self.norm1 is None else self.norm1(h)
        mask = seen.padding
        if self.reach is not None:
            apart = seen.positions[:, :, None] - seen.positions[:, None, :]
            far = (apart.abs() > self.reach)[:, None]
            mask = mask.expand(far.shape).masked_fill(far, torch.finfo(h.dtype).min)
        m = h + self.out(attend(self._turned(self.qkv(x), seen.positions), self.heads, mask))
        active, gate = self.up(self.norm2(m)).chunk(2, -1)
        down = self.down(activate(self.activation, active) * gate)
        for adapter in adapters:
            down = adapter.after(n, down)
        y: Tensor = m + down
        for adapter in adapters:
            added = adapter.parallel(n, x, seen.padding)
            y = y if added is None else y + added
        return y if self.final is None else self.final(y)

    def _turned(self, qkv: Tensor, positions: Tensor) -> Tensor:
        """Queries and keys turned by an angle that grows with the position."""
        n, length, width = qkv.shape
        size = width // (3 * self.heads)
        steps = torch.arange(0, size, 2, dtype=torch.float, device=qkv.device) / size
        angles = (positions[..., None] * (1.0 / self.theta**steps))[:, :, None, None]
        cos, sin = angles.cos(), angles.sin()
        parts = qkv.view(n, length, 3, self.heads, size)
        a, b = parts[:, :, :2].float().chunk(2, -1)
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(qkv.dtype)
        return torch.cat([turned, parts[:, :, 2:]], 2).flatten(2)


class DebertaEmbeddings(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.words = nn.Embedding(shape["vocabulary"], shape["width"])
        self.norm = nn.LayerNorm(shape["width"], eps=shape["eps"])
        self.relative = nn.Embedding(shape["relative"], shape["width"])
        self.relative_norm = nn.LayerNorm(shape["width"], eps=shape["eps"])

    def forward(self, ids: Tensor, types: Tensor, positions: Tensor) -> Tensor:
        out: Tensor = self.norm(self.words(ids))
        return out

    def table(self) -> Tensor:
        out: Tensor = self.relative_norm(self.relative.weight)
        return out


class DebertaLayer(PostNormLayer):
    def __init__(self, shape: Shape, number: int):
        super().__init__(shape, number)
        self.longest = shape["positions"]

    def _attend(self, h: Tensor, seen: Seen) -> Tensor:
        """Queries and keys of tokens and of distances, each with the other."""
        n, length, d = h.shape
        assert seen.table is not None
        query, key, value = self.qkv(h).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        both = F.linear(seen.table, self.qkv.weight[: 2 * d], self.qkv.bias[: 2 * d])
        distance_query, distance_key = both.view(len(both), 2, self.heads, -1).permute(1, 2, 3, 0)
        row = self._rows(length, len(both), h.device).expand(n, self.heads, length, length)
        scores = query @ key.transpose(-1, -2) + (query @ distance_key).gather(-1, row)
        asked = (key @ distance_query).gather(-1, row.transpose(-1, -2)).transpose(-1, -2)
        scores = (scores + asked) * (3 * query.shape[-1]) ** -0.5
        mixed: Tensor = torch.softmax(scores + seen.padding, -1) @ value
        return mixed.transpose(1, 2).flatten(2)

    def _rows(self, length: int, rows: int, device: torch.device) -> Tensor:
        """The row of the table for every two places; far ones in buckets by their logarithm."""
        at = torch.arange(length, device=device)
        distance = at[:, None] - at[None, :]
        middle = rows // 4
        scale = torch.log(torch.tensor((self.longest - 1) / middle))
        steps = torch.ceil(torch.log(distance.abs() / middle) / scale * (middle - 1)) + middle
        which = torch.where(distance.abs() <= middle, distance, steps * distance.sign())
        return (which.long() + rows // 2).clamp(0, rows - 1)


EMBEDDINGS = {"bert": Embeddings, "modernbert": ModernBertEmbeddings, "deberta": DebertaEmbeddings}
LAYERS = {"bert": Layer, "modernbert": ModernBertLayer, "deberta": DebertaLayer}
