"""What a task adds to a shared layer: PAL, low-rank, LoRA and bottleneck adapters.

Each starts as the identity: its last matrix is zero, so a fresh adapter leaves the pretrained
trunk's output as it was. `Beside` applies the adapters of one layer to the rows they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bough.model.attention import Layout, attend
from bough.model.dropout import DropoutGenerator
from bough.plan.encoder_shape import Shape
from bough.plan.plan import Adapter


class AdapterModule(nn.Module):
    """The weights of one adapter cell for all layers of its range; answers for one layer `n`."""

    def matrix(self, n: int, letter: str, x: Tensor) -> Tensor | None:
        """What is added to `x` times the layer's matrix of this letter."""
        return None

    def beside(
        self, n: int, h: Tensor, layout: Layout, dice: DropoutGenerator | None, firsts: bool
    ) -> Tensor | None:
        """What is added before the layer's last norm, from the layer's input."""
        return None

    def after(self, n: int, y: Tensor) -> Tensor | None:
        """What is added to the layer's output."""
        return None


class Narrow(nn.Module):
    """Down to a small space and up again; a bent one has biases, and a GELU between."""

    def __init__(self, width: int, size: int, out: int, bent: bool = False):
        super().__init__()
        self.bent = bent
        self.down = nn.Linear(width, size, bias=bent)
        self.up = nn.Linear(size, out, bias=bent)

    def restart(self) -> None:
        """After fresh weights were drawn: add nothing."""
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        small = self.down(x)
        out: Tensor = self.up(F.gelu(small) if self.bent else small)
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
        self.encode = nn.Linear(d, s, bias=False)
        self.decode = nn.Linear(s, d, bias=False)
        self.qkv = nn.ModuleDict(
            {f"{n}": nn.Linear(s, 3 * s, bias=False) for n in _layers(adapter)}
        )

    def restart(self) -> None:
        """After fresh weights were drawn: add nothing."""
        nn.init.zeros_(self.decode.weight)

    def beside(
        self, n: int, h: Tensor, layout: Layout, dice: DropoutGenerator | None, firsts: bool
    ) -> Tensor | None:
        x = self.encode(h)
        linear = self.qkv[f"{n}"]
        assert isinstance(linear, nn.Linear)
        weight = linear.weight
        if not firsts:
            mixed = attend(F.linear(x, weight), layout, self.heads, dice)
        else:
            s = x.shape[1]
            query, rest = weight.split((s, 2 * s))
            starts = layout.starts.to(x.device)
            mixed = attend(F.linear(x, rest), layout, self.heads, dice, F.linear(x[starts], query))
        return F.gelu(self.decode(mixed))


class LowRank(AdapterModule):
    """The PAL paper's plainer variant: V_D V_E h, a pair of matrices per layer, no attention."""

    def __init__(self, adapter: Adapter, shape: Shape):
        super().__init__()
        self.parts = nn.ModuleDict(
            {f"{n}": Narrow(shape.width, adapter.size, shape.width) for n in _layers(adapter)}
        )

    def beside(
        self, n: int, h: Tensor, layout: Layout, dice: DropoutGenerator | None, firsts: bool
    ) -> Tensor | None:
        out: Tensor = self.parts[f"{n}"](h[layout.starts.to(h.device)] if firsts else h)
        return out


class LoRA(AdapterModule):
    """Low-rank changes to chosen matrices: W x + B A x.

    Hu et al. 2021, https://arxiv.org/abs/2106.09685, scaled by one (their alpha = r).
    """

    def __init__(self, adapter: Adapter, shape: Shape):
        super().__init__()
        d, inner = shape.width, shape.inner
        sizes = {**dict.fromkeys("qkvo", (d, d)), "i": (d, inner), "f": (inner, d)}
        self.matrices = adapter.matrices
        self.parts = nn.ModuleDict(
            {
                f"{n}{m}": Narrow(sizes[m][0], adapter.size, sizes[m][1])
                for n in _layers(adapter)
                for m in adapter.matrices
            }
        )

    def matrix(self, n: int, letter: str, x: Tensor) -> Tensor | None:
        """`letter` may be several (qkv, kv) whose products lie side by side."""
        changes = {m: self.parts[f"{n}{m}"](x) for m in letter if m in self.matrices}
        if not changes:
            return None
        none = torch.zeros_like(next(iter(changes.values())))
        parts = [changes.get(m, none) for m in letter]
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


class Beside:
    """All adapters of layer `n`, each on its own segment of the rows (trunk.Tweaks)."""

    def __init__(self, n: int, segments: Sequence[Segment]):
        self.n = n
        self.segments = segments
        self.tokens = [segment.layout.tokens for segment in segments]
        self.texts = [len(segment.layout.lengths) for segment in segments]

    def _split(self, x: Tensor, firsts: bool) -> tuple[Tensor, ...]:
        return torch.split(x, self.texts if firsts else self.tokens)

    def matrix(self, letter: str, x: Tensor, y: Tensor, firsts: bool) -> Tensor:
        out = []
        for segment, xs, ys in zip(
            self.segments, self._split(x, firsts), self._split(y, firsts), strict=True
        ):
            added = [a.matrix(self.n, letter, xs) for a in segment.adapters]
            out.append(_sum(ys, added))
        return y if all(new is None for new in out) else _join(out, y, self._split(y, firsts))

    def beside(self, h: Tensor, dice: DropoutGenerator | None, firsts: bool) -> Tensor | None:
        out = []
        for segment, hs in zip(self.segments, self._split(h, False), strict=True):
            added = [a.beside(self.n, hs, segment.layout, dice, firsts) for a in segment.adapters]
            out.append(_sum(None, added))
        if all(new is None for new in out):
            return None
        rows = self.texts if firsts else self.tokens
        return torch.cat(
            [
                h.new_zeros(n, h.shape[1]) if new is None else new
                for n, new in zip(rows, out, strict=True)
            ]
        )

    def after(self, y: Tensor, firsts: bool) -> Tensor:
        parts = self._split(y, firsts)
        out = []
        for segment, ys in zip(self.segments, parts, strict=True):
            out.append(_sum(ys, [a.after(self.n, ys) for a in segment.adapters]))
        return y if all(new is None for new in out) else _join(out, y, parts)


def _sum(start: Tensor | None, added: Sequence[Tensor | None]) -> Tensor | None:
    """The sum of what there is; None when nothing was added."""
    there = [x for x in added if x is not None]
    if not there:
        return None
    total = there[0] if start is None else start + there[0]
    for x in there[1:]:
        total = total + x
    return total


def _join(new: Sequence[Tensor | None], whole: Tensor, parts: Sequence[Tensor]) -> Tensor:
    """The segments together again, unchanged ones as they were."""
    if len(new) == 1:
        return whole if new[0] is None else new[0]
    return torch.cat([old if n is None else n for n, old in zip(new, parts, strict=True)])
