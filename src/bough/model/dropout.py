"""Dropout whose chance comes from the run's own generator, and cheaply.

torch's CPU dropout draws one number per element and takes as long as a matrix product. Eight
bytes of each drawn 64-bit number are enough: a byte below `round(256 p)` drops its element, so
the rate is a multiple of 1/256, and the scale is exact for that rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class DropoutGenerator:
    """The chance of one training pass: a generator, and the trunk's dropout rate.

    None in its place means no dropout: layers are never asked whether they are in training.
    """

    generator: torch.Generator
    trunk_rate: float

    def keep(self, shape: torch.Size | tuple[int, ...], rate: float) -> Tensor:
        """True where an element stays."""
        n = 1
        for size in shape:
            n *= size
        words = torch.empty((n + 7) // 8, dtype=torch.int64, device=self.generator.device)
        words.random_(-(2**63), None, generator=self.generator)
        return words.view(torch.uint8)[:n].view(shape) >= threshold(rate)


def threshold(rate: float) -> int:
    return min(255, max(1, round(256 * rate)))


def scale(rate: float) -> float:
    """What keeps the expectation: one over the share that stays."""
    return 256 / (256 - threshold(rate))


class Masked(torch.autograd.Function):
    """x * mask * scale, keeping one byte per element for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.factor = factor
        return (x * mask).mul_(factor)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return (grads[0] * mask).mul_(ctx.factor), None, None


def drop(x: Tensor, dropout: DropoutGenerator | None, rate: float | None = None) -> Tensor:
    """`x` with each element dropped at this rate, by default the trunk's; itself without any."""
    if dropout is None:
        return x
    rate = dropout.trunk_rate if rate is None else rate
    if rate <= 0:
        return x
    out: Tensor = Masked.apply(x, dropout.keep(x.shape, rate), scale(rate))
    return out
