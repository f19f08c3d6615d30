"""A moving average of the weights (EMA)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn


class WeightAverage:
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
            current: Tensor = parameter.detach().clone()
            parameter.copy_(self.means[i])
            self.means[i] = current

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "means": self.means}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        for mean, saved in zip(self.means, state["means"], strict=True):
            mean.copy_(saved)
