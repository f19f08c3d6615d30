"""Matrix products in the precision of their rows.

Weights are kept in fp32, which is what learns and is saved. Rows in bf16 are multiplied with a copy
of the weights in bf16, made once for each state of the weights; gradients of the weights come out
in fp32. What follows a wide product, its activation, is made again in the backward pass instead of
being kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bough.native import kernels
from bough.native.norm import wide

Activation = Callable[[Tensor], Tensor]


def gelu(x: Tensor) -> Tensor:
    """x times the normal distribution's share below it, exactly; not the approximation by tanh."""
    return F.gelu(x)


class RowLinear(nn.Linear):
    """W x + b in the precision of x."""

    def forward(self, x: Tensor) -> Tensor:
        return self._product(x, None, None)

    def after(self, activation: Activation, x: Tensor) -> Tensor:
        """W f(x) + b, without keeping f(x)."""
        return self._product(x, activation, None)

    def part(self, x: Tensor, sizes: Sequence[int], number: int) -> Tensor:
        """Of W x + b the part with this number, where it is cut into parts of these sizes."""
        return self._product(x, None, lambda whole: whole.split(list(sizes))[number])

    def _product(self, x: Tensor, activation: Activation | None, cut: Activation | None) -> Tensor:
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        multiplied = (weight, bias) if x.dtype == weight.dtype else self.narrow(x.dtype)
        if cut is not None:
            weight, bias = cut(weight), None if bias is None else cut(bias)
            low, low_bias = multiplied
            multiplied = cut(low), None if low_bias is None else cut(low_bias)
        if activation is None and x.dtype == weight.dtype:
            return F.linear(x, weight, bias)
        out: Tensor = _Product.apply(x, weight, bias, *multiplied, activation)
        return out

    def narrow(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Copies of the weights so narrow, made anew when they have changed."""
        tensors = [self.weight] if self.bias is None else [self.weight, self.bias]
        state = [dtype, *((t.data_ptr(), t.device, _version(t)) for t in tensors)]
        if self.__dict__.get("_state") != state:
            # Not as tensors of inference, if that is where they are first asked for: the next step
            # learns with the same copies.
            with torch.inference_mode(False), torch.no_grad():
                copies = [t.detach().to(dtype) for t in tensors]
            self.__dict__["_copies"] = copies[0], copies[1] if len(copies) > 1 else None
            self.__dict__["_state"] = state
        out: tuple[Tensor, Tensor | None] = self.__dict__["_copies"]
        return out


def _version(tensor: Tensor) -> int:
    """How often the tensor was changed; those made for answering only never are."""
    return -1 if tensor.is_inference() else tensor._version


class _Product(torch.autograd.Function):
    """W f(x) + b with the weights as they are multiplied given beside those that learn."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        narrow_weight: Tensor,
        narrow_bias: Tensor | None,
        activation: Activation | None,
    ) -> Tensor:
        ctx.save_for_backward(x, narrow_weight)
        ctx.activation = activation
        if activation is None:
            active = x
        elif activation is gelu and _fast(x):
            active = kernels.gelu(x)
        else:
            active = activation(x)
        return F.linear(active, narrow_weight, narrow_bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        d_out = grads[0]
        d_x = d_out @ weight if ctx.needs_input_grad[0] or ctx.activation is not None else None
        active = x
        if ctx.activation is gelu and _fast(x):
            assert d_x is not None
            d_x, active = kernels.gelu_backward(x, d_x.contiguous())
        elif ctx.activation is not None:
            with torch.enable_grad():
                inner = x.detach().requires_grad_()
                made = ctx.activation(inner)
            (d_x,) = torch.autograd.grad(made, inner, d_x)
            active = made.detach()
        d_weight = wide(d_out.T @ active) if ctx.needs_input_grad[1] else None
        d_bias = column_sums(d_out) if ctx.needs_input_grad[2] else None
        return d_x, d_weight, d_bias, None, None, None


def column_sums(x: Tensor) -> Tensor:
    """Each column's sum, in fp32 at least."""
    if x.dtype == torch.bfloat16 and kernels.available(x) and x.shape[1] % kernels.LANES == 0:
        return kernels.column_sums(x.contiguous())
    return wide(x).sum(0)


def _fast(x: Tensor) -> bool:
    return kernels.available(x) and x.numel() % kernels.LANES == 0
