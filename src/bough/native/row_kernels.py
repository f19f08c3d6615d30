"""Kernels that oneDNN makes for products of bf16 rows: a dozen for every new number of rows, which
takes 11 ms with MiniLM, and keeps while there is room for them.

So numbers of rows shall come again: groups of rows that learn are filled up to a multiple. And the
kernels of a number that is new are made before the pass begins: those made in its midst would lie
between its states, where they stay, and states of later passes no longer fit in between. A run grew
by a third so, most of it room that nobody used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional as F

from bough.machine_limits import KERNELS
from bough.native.linear import RowLinear

MULTIPLE = 64  # less repeats too seldom, more costs more in rows than it saves in kernels
_KINDS = 3  # of a product: itself, the gradient of its rows, that of its weights

_made: OrderedDict[tuple[frozenset[tuple[int, ...]], int], None] = OrderedDict()  # used last: last


def filled(rows: int) -> int:
    """So many rows, with those that fill them up."""
    return rows + -rows % MULTIPLE


@torch.no_grad()
def make(layer: nn.Module, numbers: Iterable[int]) -> None:
    """What the layer's products and their gradients need for these numbers of rows, if new."""
    products = [part for part in layer.modules() if isinstance(part, RowLinear)]
    by_shape = {tuple(product.weight.shape): product for product in products}
    if not by_shape:
        return
    most = KERNELS // (_KINDS * len(by_shape))
    for number in numbers:
        key = frozenset(by_shape), number
        if key not in _made:
            for product in by_shape.values():
                _multiply(product, number)
        _made[key] = None
        _made.move_to_end(key)
        while len(_made) > most:
            _made.popitem(last=False)


def _multiply(product: RowLinear, rows: int) -> None:
    weight, bias = product.narrow(torch.bfloat16)
    d_out, x = (torch.zeros(rows, size, dtype=torch.bfloat16) for size in weight.shape)
    F.linear(x, weight, bias)
    torch.matmul(d_out, weight)
    torch.matmul(d_out.T, x)
