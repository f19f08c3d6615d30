"""What a task adds to a shared layer: PAL, low-rank, LoRA and bottleneck adapters.

Each starts as the identity: its last matrix is zero, so a fresh adapter leaves the pretrained
trunk's output as it was. `SegmentAdapters` applies the adapters of one layer, each to its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bough.model.attention import Layout, self_attention
from bough.model.dropout import DropoutGenerator
from bough.native.linear import RowLinear
from bough.plan.encoder_shape import Shape
from bough.plan.plan import Adapter


class AdapterModule(nn.Module):
    """The weights of one adapter cell for all layers of its range; answers for one layer `n`."""

    def forward(self, method: str, *inputs: Any) -> Tensor | None:
        """One of the methods below, by name: so all of them can be called with other weights."""
        out: Tensor | None = getattr(self, method)(*inputs)
        return out

    def matrix(self, n: int, letters: str, x: Tensor) -> Tensor | None:
        """What is added to `x` times the layer's matrices of these letters, side by side."""
        return None

    def parallel(
        self, n: int, h: Tensor, layout: Layout, dropout: DropoutGenerator | None, cls_only: bool
    ) -> Tensor | None:
        """What is added before the layer's last norm, from the layer's input."""
        return None

    def after(self, n: int, y: Tensor) -> Tensor | None:
        """What is added to the layer's output."""
        return None


class Narrow(nn.Module):
    """Down to a small space and up again; a nonlinear one has biases, and a GELU between."""

    def __init__(self, width: int, size: int, out: int, nonlinear: bool = False):
        super().__init__()
        self.nonlinear = nonlinear
        self.down = RowLinear(width, size, bias=nonlinear)
        self.up = RowLinear(size, out, bias=nonlinear)

    def init_weights(self) -> None:
        """After fresh weights were drawn: add nothing."""
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        small = self.down(x)
        out: Tensor = self.up(F.gelu(small) if self.nonlinear else small)
        return out


class PAL(AdapterModule):
    """Projected attention: V_D g(V_E h), g attention in a small space.

    Stickland and Murray 2019, https://arxiv.org/abs/1902.02671. The projections are common to all
    layers, the attention is each layer's own.
    """

    def __init__(self, adapter: Adapter, shape: Shape):
        super().__init__()
        s, d = adapter.size, shape.width
        self.heads = adapter.heads
        self.encode = RowLinear(d, s, bias=False)
        self.decode = RowLinear(s, d, bias=False)
        self.qkv = nn.ModuleDict(
            {f"{n}": RowLinear(s, 3 * s, bias=False) for n in _layers(adapter)}
        )

    def init_weights(self) -> None:
        """After fresh weights were drawn: add nothing."""
        nn.init.zeros_(self.decode.weight)

    def parallel(
        self, n: int, h: Tensor, layout: Layout, dropout: DropoutGenerator | None, cls_only: bool
    ) -> Tensor | None:
        x = self.encode(h)
        first = x[layout.on(x.device).starts] if cls_only else None
        qkv = self.qkv[f"{n}"]
        assert isinstance(qkv, RowLinear)
        return F.gelu(self.decode(self_attention(x, first, qkv, layout, self.heads, dropout)))


class LowRank(AdapterModule):
    """The PAL paper's plainer variant: V_D V_E h, a pair of matrices per layer, no attention."""

    def __init__(self, adapter: Adapter, shape: Shape):
        super().__init__()
        self.parts = nn.ModuleDict(
            {f"{n}": Narrow(shape.width, adapter.size, shape.width) for n in _layers(adapter)}
        )

    def parallel(
        self, n: int, h: Tensor, layout: Layout, dropout: DropoutGenerator | None, cls_only: bool
    ) -> Tensor | None:
        out: Tensor = self.parts[f"{n}"](h[layout.on(h.device).starts] if cls_only else h)
        return out


class LoRA(AdapterModule):
    """Low-rank changes to chosen matrices: W x + B A x.

    Hu et al. 2021, https://arxiv.org/abs/2106.09685, scaled by one (their alpha = r).
    """

    def __init__(self, adapter: Adapter, shape: Shape):
        super().__init__()
        d, inner = shape.width, shape.inner
        sizes = {**dict.fromkeys("qkvo", (d, d)), "i": (d, shape.up), "f": (inner, d)}
        self.matrices = adapter.matrices
        self.parts = nn.ModuleDict(
            {
                f"{n}{m}": Narrow(sizes[m][0], adapter.size, sizes[m][1])
                for n in _layers(adapter)
                for m in adapter.matrices
            }
        )

    def matrix(self, n: int, letters: str, x: Tensor) -> Tensor | None:
        changes = {m: self.parts[f"{n}{m}"](x) for m in letters if m in self.matrices}
        if not changes:
            return None
        none = torch.zeros_like(next(iter(changes.values())))
        parts = [changes.get(m, none) for m in letters]
        return torch.cat(parts, 1) if len(parts) > 1 else parts[0]


class Bottleneck(AdapterModule):
    """A small two-layer network after each layer, added to its output.

    Houlsby et al. 2019, https://arxiv.org/abs/1902.00751, in its one-per-layer form.
    """

    def __init__(self, adapter: Adapter, shape: Shape):
        super().__init__()
        self.parts = nn.ModuleDict(
            {f"{n}": Narrow(shape.width, adapter.size, shape.width, True) for n in _layers(adapter)}
        )

    def after(self, n: int, y: Tensor) -> Tensor | None:
        out: Tensor = self.parts[f"{n}"](y)
        return out


def _layers(adapter: Adapter) -> range:
    return range(adapter.first, adapter.last + 1)


KINDS: Mapping[str, Callable[[Adapter, Shape], AdapterModule]] = {
    "pal": PAL,
    "lowrank": LowRank,
    "lora": LoRA,
    "bottleneck": Bottleneck,
}


def build(adapter: Adapter, shape: Shape) -> AdapterModule:
    return KINDS[adapter.kind](adapter, shape)


@dataclass(frozen=True)
class Segment:
    """Neighbouring texts that use the same adapters."""

    adapters: tuple[AdapterModule, ...]
    layout: Layout


class SegmentAdapters:
    """All adapters of layer `n`, each on the rows of its segment (a layer's LayerAdapters)."""

    def __init__(self, n: int, segments: Sequence[Segment]):
        self.n = n
        self.segments = segments
        self.tokens = [segment.layout.tokens for segment in segments]
        self.texts = [len(segment.layout.lengths) for segment in segments]

    def _split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Each segment's rows: one per token, or one per text."""
        if len(self.segments) == 1:
            return (rows,)
        return torch.split(rows, self.texts if len(rows) == sum(self.texts) else self.tokens)

    def matrix(self, letters: str, x: Tensor, y: Tensor) -> Tensor:
        return self._add(y, x, lambda adapter, rows: adapter.matrix(self.n, letters, rows))

    def parallel(
        self, h: Tensor, dropout: DropoutGenerator | None, cls_only: bool
    ) -> Tensor | None:
        sums = []
        for segment, rows in zip(self.segments, self._split(h), strict=True):
            added = (
                adapter.parallel(self.n, rows, segment.layout, dropout, cls_only)
                for adapter in segment.adapters
            )
            sums.append(_sum(None, added))
        if all(part is None for part in sums):
            return None
        sizes = self.texts if cls_only else self.tokens
        return torch.cat(
            [
                h.new_zeros(size, h.shape[1]) if part is None else part
                for size, part in zip(sizes, sums, strict=True)
            ]
        )

    def after(self, y: Tensor) -> Tensor:
        return self._add(y, y, lambda adapter, rows: adapter.after(self.n, rows))

    def each(self, letters: str, x: Tensor, y: Tensor) -> list[Tensor]:
        out = []
        for segment in self.segments:
            added = (adapter.matrix(self.n, letters, x) for adapter in segment.adapters)
            new = _sum(y, added)
            out.append(y if new is None else new)
        return out

    def segment_of(self) -> list[int]:
        return [number for number, texts in enumerate(self.texts) for _ in range(texts)]

    def _add(
        self, y: Tensor, x: Tensor, call: Callable[[AdapterModule, Tensor], Tensor | None]
    ) -> Tensor:
        """`y` with what each segment's adapters make of its rows of `x`; itself if nothing."""
        parts = self._split(y)
        inputs = parts if x is y else self._split(x)
        sums = [
            _sum(part, (call(adapter, rows) for adapter in segment.adapters))
            for segment, part, rows in zip(self.segments, parts, inputs, strict=True)
        ]
        if all(new is None for new in sums):
            return y
        changed = [part if new is None else new for new, part in zip(sums, parts, strict=True)]
        return torch.cat(changed) if len(changed) > 1 else changed[0]


def _sum(start: Tensor | None, added: Iterable[Tensor | None]) -> Tensor | None:
    """The sum of what there is; None when nothing was added."""
    total = None
    for x in added:
        if x is not None:
            before = start if total is None else total
            total = x if before is None else before + x
    return total
