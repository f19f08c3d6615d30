"""How weights move: AdamW by groups, the course of the learning rate, clipping, and averaging.

Each group of parameters carries its own factor of the learning rate (`scale`); the course over
time is a pure function of the step, so there is no scheduler whose state could be lost. AdamW is
https://arxiv.org/abs/1711.05101; matrices and embeddings decay, norms, biases and scalars do not.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bough.errors import UserError, nearest

SCHEDULES = ("constant", "linear", "cosine", "onecycle")
# One-cycle starts at 1/25 of the peak and ends at a ten-thousandth of that; arXiv 1708.07120.
_START, _END = 1 / 25, 1 / 25e4


@dataclass(frozen=True)
class Part:
    """Parameters that learn at one rate: what they are and, in the trunk, how high they lie."""

    kind: Literal["trunk", "head", "adapter"]
    parameters: Sequence[nn.Parameter]
    depth: int = 0  # of a trunk part: 0 for the embeddings, 1 for the first layer, and so on


def build(
    parts: Iterable[Part],
    *,
    lr: float,
    decay: float = 0.0,
    layer_decay: float = 1.0,
    head_lr: float = 1.0,
    adapter_lr: float = 1.0,
) -> torch.optim.AdamW:
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
    return torch.optim.AdamW(
        [
            {"params": own, "scale": scale, "lr": lr * scale, "weight_decay": decay * decays}
            for (scale, decays), own in groups.items()
        ],
        fused=True,
    )


def set_lr(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Give every group this rate times its own factor."""
    for group in optimiser.param_groups:
        group["lr"] = lr * group["scale"]


def factor(step: int, total: int, warmup: float, kind: str) -> float:
    """What the peak rate is multiplied by in a step; steps count from 0, `warmup` is the share of
    all steps in which the rate rises.

    No step has a rate of 0: the first of n warm-up steps has 1/n, and the last step of all has
    what is left one step before the end. One-cycle rises and falls as a cosine.
    """
    if kind not in SCHEDULES:
        raise UserError(
            f"training.schedule is {kind!r}; expected one of {', '.join(SCHEDULES)}"
            + nearest(kind, SCHEDULES)
        )
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
    """Shorten the whole gradient to length `most`, once for all parameters; its length before."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return 0.0
    lengths = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
    length = float(torch.linalg.vector_norm(lengths.cpu().double()))
    if most is not None and most < length < math.inf:
        for gradient in gradients:
            gradient.mul_(most / length)
    return length


class Average:
    """A moving average of the weights, to be judged and kept in their place.

    Early on it follows fast, `(1 + n) / (10 + n)` after n steps, so that it is not held back by
    where training began.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], decay: float):
        self.parameters = [p for p in parameters if p.requires_grad]
        self.decay = decay
        self.steps = 0
        self.means = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights as they are after a step."""
        keep = min(self.decay, (1 + self.steps) / (10 + self.steps))
        self.steps += 1
        for mean, parameter in zip(self.means, self.parameters, strict=True):
            mean.lerp_(parameter, 1 - keep)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Within this, the model has the averaged weights; afterwards its own again."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for i, parameter in enumerate(self.parameters):
            own: Tensor = parameter.detach().clone()
            parameter.copy_(self.means[i])
            self.means[i] = own

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "means": self.means}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        for mean, saved in zip(self.means, state["means"], strict=True):
            mean.copy_(saved)
