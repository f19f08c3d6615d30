"""Averages of the weights, to be judged and kept in their place: moving (EMA), or of the run's last
part (stochastic weight averaging, https://arxiv.org/abs/1803.05407)."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bough.recipe.training import Training


class WeightAverage(ABC):
    """Some mean of the weights so far."""

    def __init__(self, parameters: Iterable[nn.Parameter]):
        self.parameters = [p for p in parameters if p.requires_grad]
        self.steps = 0  # that it has taken in
        self.means = [p.detach().clone() for p in self.parameters]

    @abstractmethod
    def kept(self, done: float) -> float | None:
        """How much of the mean stays beside new weights, when this share of the run was done before
        them; None: they are not taken in."""

    @torch.no_grad()
    def update(self, done: float = 0.0) -> None:
        """Take in the weights as they are after a step."""
        keep = self.kept(done)
        if keep is not None:
            self.steps += 1
            for mean, parameter in zip(self.means, self.parameters, strict=True):
                mean.lerp_(parameter, 1 - keep)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Within this, the model has the averaged weights; afterwards its own again."""
        if not self.steps:  # nothing is taken in yet
            yield
            return
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


class MovingAverage(WeightAverage):
    """Early on it follows fast, `(1 + n) / (10 + n)` after n steps, so that it is not held back by
    where training began."""

    def __init__(self, parameters: Iterable[nn.Parameter], decay: float):
        super().__init__(parameters)
        self.decay = decay

    def kept(self, done: float) -> float | None:
        return min(self.decay, (1 + self.steps) / (10 + self.steps))


class TailAverage(WeightAverage):
    """The plain mean over the steps of the run's last share."""

    def __init__(self, parameters: Iterable[nn.Parameter], share: float):
        super().__init__(parameters)
        self.share = share

    def kept(self, done: float) -> float | None:
        return None if done < 1 - self.share - 1e-9 else self.steps / (self.steps + 1)


def averaged(parameters: Iterable[nn.Parameter], training: Training) -> WeightAverage | None:
    """The average that the recipe asks for, if any."""
    if training.ema:
        return MovingAverage(parameters, training.ema)
    return TailAverage(parameters, training.swa) if training.swa else None
