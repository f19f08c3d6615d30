"""Calling a module as if its weights were constants: the gradient passes it and leaves it alone.

So a head reads another task's output with `feed~`: its loss reaches the weights that both tasks
share, through weights of the other task that it must not move, or (`feed~0.1`) only by a share.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bough.model.adapters import AdapterModule
from bough.model.attention import Layout
from bough.model.dropout import DropoutGenerator


def call_frozen(module: nn.Module, *inputs: Any, share: float = 0.0) -> Any:
    """The module's output, with no gradient for its own weights, or with this share of it."""
    weights = {name: p.detach() for name, p in module.named_parameters()}
    if share:  # the same numbers: what is added is 0, but for its gradient
        own = dict(module.named_parameters())
        weights = {name: p + share * (own[name] - p) for name, p in weights.items()}
    return torch.func.functional_call(module, weights, inputs)


class FrozenAdapter(AdapterModule):
    """Another task's adapter on the path of a loss that must not move it."""

    def __init__(self, adapter: AdapterModule):
        super().__init__()
        self.adapter = adapter

    def _call(self, method: str, *inputs: Any) -> Tensor | None:
        out: Tensor | None = call_frozen(self.adapter, method, *inputs)
        return out

    def matrix(self, n: int, letters: str, x: Tensor) -> Tensor | None:
        return self._call("matrix", n, letters, x)

    def parallel(
        self, n: int, h: Tensor, layout: Layout, dropout: DropoutGenerator | None, cls_only: bool
    ) -> Tensor | None:
        return self._call("parallel", n, h, layout, dropout, cls_only)

    def after(self, n: int, y: Tensor) -> Tensor | None:
        return self._call("after", n, y)
