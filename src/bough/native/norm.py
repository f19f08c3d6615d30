"""Residual, dropout and norm, in one pass over the rows where there is a kernel for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bough.native import kernels


def norm_of_sum(
    x: Tensor, z: Tensor, keep: Tensor | None, factor: float, norm: nn.LayerNorm
) -> Tensor:
    """norm(x + z * keep * factor), computed in fp32 whatever the rows are.

    `keep` is a mask, or None for all.
    """
    if kernels.available(x, z) and x.shape[1] % kernels.LANES == 0 and norm.bias is not None:
        out: Tensor = _NormOfSum.apply(
            x.contiguous(), z.contiguous(), keep, factor, norm.weight, norm.bias, norm.eps
        )
        return out
    total = x + (z if keep is None else z * keep * factor)
    return norm_of(total, norm)


def norm_of(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """The norm of the rows, computed in fp32 and as narrow as they are."""
    y = F.layer_norm(wide(x), norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    return y.to(x.dtype)


def wide(x: Tensor) -> Tensor:
    """In fp32 at least."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class _NormOfSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        z: Tensor,
        keep: Tensor | None,
        factor: float,
        gain: Tensor,
        shift: Tensor,
        eps: float,
    ) -> Tensor:
        normed = kernels.norm(x, z, keep, factor, gain, shift, eps)
        ctx.save_for_backward(normed.total, normed.mean, normed.rate, keep, gain)
        ctx.factor = factor
        return normed.out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        total, mean, rate, keep, gain = ctx.saved_tensors
        normed = kernels.Normed(total, total, mean, rate)
        d_x, d_z, d_gain, d_shift = kernels.norm_backward(
            grads[0].contiguous(), normed, keep, ctx.factor, gain
        )
        return d_x, d_z, None, None, d_gain, d_shift, None
