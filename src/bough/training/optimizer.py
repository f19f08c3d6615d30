"""How weights move: AdamW by groups, the learning rate over the steps, and clipping.

Each group of parameters carries its own factor of the learning rate (`scale`). AdamW is
https://arxiv.org/abs/1711.05101; matrices and embeddings decay, norms, biases and scalars do not.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from bough.recipe.training import Schedule

# One-cycle starts at 1/25 of the peak and ends at a ten-thousandth of that; arXiv 1708.07120.
_START, _END = 1 / 25, 1 / 25e4


@dataclass(frozen=True)
class Part:
    """Parameters that learn at one rate: what they are and, in the trunk, how high they lie."""

    kind: Literal["trunk", "head", "adapter"]
    parameters: Sequence[nn.Parameter]
    depth: int = 0  # of a trunk part: 0 for the embeddings, 1 for the first layer, and so on


class Uncompiled:
    """An optimiser's methods without the wrappers by which they import torch's compiler when they
    are first called: that is a second of every start, and nothing here is compiled."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class AdamW(Uncompiled, torch.optim.AdamW):
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


class LBFGS(Uncompiled, torch.optim.LBFGS):
    pass


def build(
    parts: Iterable[Part],
    *,
    lr: float,
    decay: float = 0.0,
    layer_decay: float = 1.0,
    head_lr: float = 1.0,
    adapter_lr: float = 1.0,
) -> AdamW:
    """AdamW over all parts that learn.

    In the trunk the rate falls by `layer_decay` from each depth to the one below, the highest
    depth learning at the full rate. A parameter that occurs twice is taken where it occurs first.
    """
    parts = list(parts)
    top = max((part.depth for part in parts if part.kind == "trunk"), default=0)
    factors = {"head": head_lr, "adapter": adapter_lr}
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    met: set[int] = set()
    for part in parts:
        scale = layer_decay ** (top - part.depth) if part.kind == "trunk" else factors[part.kind]
        for parameter in part.parameters:
            if parameter.requires_grad and id(parameter) not in met:
                met.add(id(parameter))
                groups.setdefault((scale, parameter.ndim > 1), []).append(parameter)
    if not groups:
        raise ValueError("nothing here learns: every parameter is frozen")
    made = AdamW(
        [
            {"params": members, "scale": scale, "lr": lr * scale, "weight_decay": decay * decays}
            for (scale, decays), members in groups.items()
        ],
        fused=True,
    )
    made.register_step_post_hook(_mark_as_changed)
    return made


def _mark_as_changed(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """A fused step moves weights without counting it; copies made of them count on that."""
    moved = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    torch.autograd.graph.increment_version(moved)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group this rate times its own factor."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["scale"]


def factor(step: int, total: int, warmup: float, kind: Schedule) -> float:
    """What the peak rate is multiplied by in a step; steps count from 0, `warmup` is the share of
    all steps in which the rate rises. A pure function, with no state that a run could lose.

    No step has a rate of 0: the first of n warm-up steps has 1/n, and the last step of all has
    what is left one step before the end. One-cycle rises and falls as a cosine.
    """
    step = min(max(step, 0), total - 1)
    rise = min(round(warmup * total), total)
    if kind == "onecycle":
        peak = max(rise - 1, 0)
        if step < peak:
            return _between(_START, 1.0, step / peak)
        return _between(1.0, _END, (step - peak) / max(total - 1 - peak, 1))
    if step < rise:
        return (step + 1) / rise
    left = (total - step) / (total - rise)
    if kind == "linear":
        return left
    return 1.0 if kind == "constant" else _between(0.0, 1.0, left)


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


@torch.no_grad()
def clip(parameters: Iterable[nn.Parameter], most: float | None) -> float:
    """Shorten the whole gradient to length `most`, once for all parameters; its length before.

    Not torch's `clip_grad_norm_`, which adds 1e-6 to the length and sums it in single precision:
    a run begun before would not go on to the same bits.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return 0.0
    lengths = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
    length = float(torch.linalg.vector_norm(lengths.cpu().double()))
    if most is not None and most < length < math.inf:
        for gradient in gradients:
            gradient.mul_(most / length)
    return length
