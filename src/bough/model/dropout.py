"""Dropout whose chance comes from the run's own generator, and cheaply.

torch's CPU dropout draws one number per element and takes as long as a matrix product. Here each
call draws one number, the seed of splitmix64, whose words have eight bytes: a byte below
`round(256 p)` drops its element, so the rate is a multiple of 1/256, and the scale is exact for
that rate. With the kernel and without it, the same elements are dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bough.native import kernels

# Of splitmix64, as signed numbers: what words lie apart, and how each is mixed.
_STEP = 0x9E3779B97F4A7C15 - 2**64
_MIXED = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))


@dataclass(frozen=True)
class DropoutGenerator:
    """The chance of one training pass: a generator, and the trunk's dropout rate.

    None in its place means no dropout: layers are never asked whether they are in training.
    """

    generator: torch.Generator
    trunk_rate: float

    def keep(self, shape: torch.Size | tuple[int, ...], rate: float) -> Tensor:
        """True where an element stays."""
        n = math.prod(shape)
        seed = torch.empty((), dtype=torch.int64, device=self.generator.device)
        seed.random_(-(2**63), None, generator=self.generator)
        if seed.device.type == "cpu" and kernels.present():
            kept = kernels.keep_mask(int(seed), n, threshold(rate))
        else:
            kept = _words(seed, (n + 7) // 8).view(torch.uint8)[:n] >= threshold(rate)
        return kept.view(shape)


def _words(seed: Tensor, count: int) -> Tensor:
    """The 64-bit words of the kernel, without it; products wrap around."""
    z = torch.arange(1, count + 1, device=seed.device).mul_(_STEP).add_(seed)
    for shift, factor in _MIXED:
        z.bitwise_xor_(z.bitwise_right_shift(shift).bitwise_and_((1 << 64 - shift) - 1)).mul_(
            factor
        )
    return z.bitwise_xor_(z.bitwise_right_shift(31).bitwise_and_((1 << 33) - 1))


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
