"""Dropout whose chance comes from the run's own generator, and cheaply.

torch's CPU dropout draws one number per element and takes as long as a matrix product. Here a byte
below `round(256 p)` drops its element, so the rate is a multiple of 1/256, and the scale is exact
for that rate. On a processor each call draws one number, the seed of splitmix64, whose words have
eight bytes; with the kernel and without it, the same elements are dropped. An accelerator draws the
words themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.native import kernels


@dataclass(frozen=True)
class DropoutGenerator:
    """The chance of one training pass: a generator, and the trunk's dropout rate.

    None in its place means no dropout: layers are never asked whether they are in training.
    """

    generator: torch.Generator
    trunk_rate: float

    def keep(self, shape: torch.Size | tuple[int, ...], rate: float) -> Tensor:
        """True where an element stays."""
        n, device = math.prod(shape), self.generator.device
        count = 1 if device.type == "cpu" else (n + 7) // 8
        drawn = torch.empty(count, dtype=torch.int64, device=device)
        drawn.random_(-(2**63), None, generator=self.generator)
        if device.type != "cpu":
            return drawn.view(torch.uint8)[:n].view(shape) >= threshold(rate)
        if kernels.present():
            return kernels.keep_mask(int(drawn), n, threshold(rate)).view(shape)
        words = splitmix64(int(drawn), (n + 7) // 8)
        return torch.from_numpy(words.view(np.uint8)[:n] >= threshold(rate)).view(shape)


def splitmix64(seed: int, count: int) -> NDArray[np.uint64]:
    """The kernel's 64-bit words, without it; products wrap around."""
    z = np.arange(1, count + 1, dtype=np.uint64)
    z *= np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(seed % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(31)
    return z


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
