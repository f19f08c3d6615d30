"""How much each task's loss counts, where that changes as training goes on.

The formulas are those of `torchjd.scalarization`, to which the tests hold them equal. They are
written out here because a step may hold only some of the tasks (one that is absent must not
change), because each task has a backward of its own, and because a run must go on bit for bit.
All of them come down to one factor per task and step; the weights that a recipe gives multiply it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bough.recipe import methods

_TINY = 1e-8  # FAMO's and the geometric mean's losses are kept above this
_RATE = 0.025  # learning rate of what a weighting learns itself, as in FAMO's paper
# Of logarithms: a task whose loss has come to nothing would else outweigh all others without end.
REACH = 10.0


class Weighting(ABC):
    """One factor per task and step.

    A step calls `scale` once for each micro-batch, then, after the optimiser's step, `learn`: with
    the losses of the whole step, and those of the same examples as they are now if the weighting
    says that it `looks_back`. At the end of an epoch comes `close_epoch`.
    """

    looks = True  # whether the losses matter to it at all
    looks_back = False

    def __init__(self, weights: Mapping[str, float]):
        self.weights = dict(weights)
        self.factors: dict[str, float] = {}  # of the last `scale`, for the log

    def scale(
        self, losses: Mapping[str, Tensor], means: Mapping[str, float] | None = None
    ) -> dict[str, Tensor]:
        """Each loss times its factor: what backward is to be called on.

        `means` are the losses over all processes, of every task that any of them has; a process
        alone has them all itself.
        """
        means = _values(losses) if means is None else means
        factors = self._factors(means)
        self.factors = {task: self.weights[task] * factors[task] for task in means}
        return {task: loss * self.factors[task] for task, loss in losses.items()}

    @abstractmethod
    def _factors(self, losses: Mapping[str, float]) -> Mapping[str, float]:
        """The factor of at least each task present."""

    # Most weightings do nothing at these moments and have nothing to keep.
    def learn(  # noqa: B027
        self, losses: Mapping[str, float], after: Mapping[str, float] | None = None
    ) -> None:
        """The model has made its step."""

    def close_epoch(self) -> None:  # noqa: B027
        """An epoch is over."""

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on; a random weighting's generator is the run's."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Go on from there."""


class Static(Weighting):
    """The given weights."""

    looks = False

    def _factors(self, losses: Mapping[str, float]) -> Mapping[str, float]:
        return dict.fromkeys(losses, 1.0)


class Random(Weighting):
    """Weights on the simplex, drawn anew for all tasks in each step."""

    looks = False

    def __init__(self, weights: Mapping[str, float], generator: torch.Generator):
        super().__init__(weights)
        self.generator = generator
        self.drawn: dict[str, float] = {}  # for the step at hand

    def _factors(self, losses: Mapping[str, float]) -> Mapping[str, float]:
        if not self.drawn:
            draw = torch.randn(len(self.weights), generator=self.generator).softmax(0)
            self.drawn = dict(zip(self.weights, draw.tolist(), strict=True))
        return self.drawn

    def learn(self, losses: Mapping[str, float], after: Mapping[str, float] | None = None) -> None:
        self.drawn = {}


class Geometric(Weighting):
    """Of the geometric mean of the losses present: each is weighted by its inverse."""

    def _factors(self, losses: Mapping[str, float]) -> Mapping[str, float]:
        seen = {task: max(loss, _TINY) for task, loss in losses.items()}
        mean = math.exp(sum(map(math.log, seen.values())) / len(seen))
        return {task: mean / (len(seen) * loss) for task, loss in seen.items()}


class Tchebycheff(Weighting):
    """Of a smooth maximum of the losses present: the largest counts most."""

    def __init__(self, weights: Mapping[str, float], smoothing: float):
        super().__init__(weights)
        self.smoothing = smoothing

    def _factors(self, losses: Mapping[str, float]) -> Mapping[str, float]:
        share = 1 / len(losses)
        factors = _softmax({task: share * loss / self.smoothing for task, loss in losses.items()})
        return {task: share * factor for task, factor in factors.items()}


class DynamicAverage(Weighting):
    """DWA: a task counts more the slower its mean loss fell over the last two epochs."""

    def __init__(self, weights: Mapping[str, float], temperature: float):
        super().__init__(weights)
        self.temperature = temperature
        self.sums = dict.fromkeys(weights, (0.0, 0))  # of this epoch: losses, how many
        self.history: dict[str, list[float]] = {task: [] for task in weights}  # the last two means

    def _factors(self, losses: Mapping[str, float]) -> Mapping[str, float]:
        known = {t: h[1] / h[0] for t, h in self.history.items() if len(h) == 2 and h[0] > 0}
        factors = _softmax({task: rate / self.temperature for task, rate in known.items()})
        return {task: len(known) * factors[task] if task in known else 1.0 for task in self.weights}

    def learn(self, losses: Mapping[str, float], after: Mapping[str, float] | None = None) -> None:
        for task, loss in losses.items():
            total, count = self.sums[task]
            self.sums[task] = (total + loss, count + 1)

    def close_epoch(self) -> None:
        for task, (total, count) in self.sums.items():
            if count:
                self.history[task] = [*self.history[task], total / count][-2:]
        self.sums = dict.fromkeys(self.weights, (0.0, 0))

    def state_dict(self) -> dict[str, Any]:
        return {"sums": dict(self.sums), "history": {t: list(h) for t, h in self.history.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sums = {task: (total, count) for task, (total, count) in state["sums"].items()}
        self.history = {task: list(means) for task, means in state["history"].items()}


class Learned(Weighting):
    """One number per task, learned beside the model by an Adam of its own.

    An own Adam, because the model's learning rate and schedule fit weights of a network: at 1e-5
    a log-variance that starts at 0 would stay there for a whole run.
    """

    shrink = 0.0  # decay of the numbers
    reach = math.inf  # how far from 0 they may go

    def __init__(self, weights: Mapping[str, float]):
        super().__init__(weights)
        self.numbers = {task: torch.zeros((), dtype=torch.float64) for task in weights}
        self._adam = torch.optim.Adam(self.numbers.values(), lr=_RATE, weight_decay=self.shrink)

    @abstractmethod
    def _slopes(
        self, before: Mapping[str, float], after: Mapping[str, float] | None
    ) -> Mapping[str, float]:
        """The gradient of each present task's number."""

    def learn(self, losses: Mapping[str, float], after: Mapping[str, float] | None = None) -> None:
        slopes = self._slopes(losses, after)
        for task, number in self.numbers.items():
            # A task without a gradient is passed over: neither momentum nor decay moves it.
            number.grad = number.new_tensor(slopes[task]) if task in slopes else None
        self._adam.step()
        if self.reach < math.inf:
            for number in self.numbers.values():
                number.clamp_(-self.reach, self.reach)

    def state_dict(self) -> dict[str, Any]:
        return {
            "numbers": {task: float(number) for task, number in self.numbers.items()},
            "adam": self._adam.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for task, number in state["numbers"].items():
            self.numbers[task].fill_(number)
        self._adam.load_state_dict(state["adam"])


class Uncertainty(Learned):
    """The sum of `exp(-s) L / 2 + s / 2`: s is the learned log-variance of a task."""

    reach = REACH

    def _factors(self, losses: Mapping[str, float]) -> Mapping[str, float]:
        return {task: 0.5 * math.exp(-float(self.numbers[task])) for task in losses}

    def _slopes(
        self, before: Mapping[str, float], after: Mapping[str, float] | None
    ) -> Mapping[str, float]:
        return {
            task: 0.5 - 0.5 * math.exp(-float(self.numbers[task])) * loss
            for task, loss in before.items()
        }


class ImpartialLosses(Learned):
    """IMTL-L, the sum of `exp(s) L - s`: brings all losses to one size."""

    reach = REACH

    def _factors(self, losses: Mapping[str, float]) -> Mapping[str, float]:
        return {task: math.exp(float(self.numbers[task])) for task in losses}

    def _slopes(
        self, before: Mapping[str, float], after: Mapping[str, float] | None
    ) -> Mapping[str, float]:
        return {
            task: math.exp(float(self.numbers[task])) * loss - 1 for task, loss in before.items()
        }


class Famo(Learned):
    """FAMO: all losses are to fall at the same rate; a step shows which did not."""

    looks_back = True
    shrink = 1e-3

    def _factors(self, losses: Mapping[str, float]) -> Mapping[str, float]:
        shares = self._shares(losses)
        pull = {task: shares[task] / (max(loss, 0.0) + _TINY) for task, loss in losses.items()}
        return {task: value / sum(pull.values()) for task, value in pull.items()}

    def _slopes(
        self, before: Mapping[str, float], after: Mapping[str, float] | None
    ) -> Mapping[str, float]:
        if after is None:
            raise ValueError("FAMO looks back: it learns from the losses after the step")
        if len(before) < 2:
            return {}  # nothing to balance
        shares = self._shares(before)
        gain = {
            task: math.log(max(loss, 0.0) + _TINY) - math.log(max(after[task], 0.0) + _TINY)
            for task, loss in before.items()
        }
        mean = sum(shares[task] * gain[task] for task in gain)
        return {task: shares[task] * (gain[task] - mean) for task in gain}

    def _shares(self, tasks: Mapping[str, float]) -> dict[str, float]:
        return _softmax({task: float(self.numbers[task]) for task in tasks})


def parse(text: str, weights: Mapping[str, float], generator: torch.Generator) -> Weighting:
    """The weighting that `training.weighting` names, on top of each task's given weight."""
    name, number = methods.parse(text, methods.WEIGHTINGS)
    match name:
        case "static":
            return Static(weights)
        case "uncertainty":
            return Uncertainty(weights)
        case "imtl-l":
            return ImpartialLosses(weights)
        case "dwa":
            return DynamicAverage(weights, number)
        case "famo":
            return Famo(weights)
        case "geometric":
            return Geometric(weights)
        case "tchebycheff":
            return Tchebycheff(weights, number)
        case _:
            return Random(weights, generator)


def _values(losses: Mapping[str, Tensor | float]) -> dict[str, float]:
    return {
        task: float(loss.detach() if isinstance(loss, Tensor) else loss)
        for task, loss in losses.items()
    }


def _softmax(logits: Mapping[str, float]) -> dict[str, float]:
    top = max(logits.values(), default=0.0)
    powers = {task: math.exp(logit - top) for task, logit in logits.items()}
    whole = sum(powers.values())
    return {task: power / whole for task, power in powers.items()}
