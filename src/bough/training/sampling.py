"""Whose turn it is: how many examples of which task each step takes.

A sampler is decided once from the sizes of the training sets and never changes: what a step draws
depends on the epoch, the step and the run's generator alone, so a run goes on where it stopped by
restoring the generator. Which rows are taken, reshuffled in each pass, `ExampleSampler` says.
Small sets are gone through again as often as a sampler asks for them.

Sampling by size, `p_i ~ N_i^alpha`, and its annealing are from https://arxiv.org/abs/1902.02671.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bough.errors import UserError
from bough.recipe.methods import parse_sampling


class Sampler(ABC):
    """Counts of examples per task and step."""

    tasks: tuple[str, ...]

    @property
    def factors(self) -> dict[str, float]:
        """What each task's loss is multiplied by because of how it is sampled."""
        return dict.fromkeys(self.tasks, 1.0)

    @abstractmethod
    def steps(self, epoch: int) -> int:
        """Steps of an epoch; epochs count from 0."""

    @abstractmethod
    def draw(self, epoch: int, step: int, rng: np.random.Generator) -> dict[str, int]:
        """Examples of each task in a step; tasks without any are left out."""

    @abstractmethod
    def describe(self) -> str:
        """One sentence for people."""

    def epoch_by_clock(self, epoch: int, share: float) -> int:
        """The epoch to draw by in a run that ends by the clock, this share of which is over."""
        return epoch


@dataclass(frozen=True)
class Together(Sampler):
    """The same mix of all tasks in every step."""

    tasks: tuple[str, ...]
    counts: tuple[int, ...]
    per_epoch: int
    balanced: bool = False

    @property
    def factors(self) -> dict[str, float]:
        """Balanced: examples of the other tasks per own example. A task alone keeps its loss."""
        if not self.balanced or len(self.tasks) == 1:
            return dict.fromkeys(self.tasks, 1.0)
        whole = sum(self.counts)
        return {t: (whole - n) / n for t, n in zip(self.tasks, self.counts, strict=True)}

    def steps(self, epoch: int) -> int:
        return self.per_epoch

    def draw(self, epoch: int, step: int, rng: np.random.Generator) -> dict[str, int]:
        return dict(zip(self.tasks, self.counts, strict=True))

    def describe(self) -> str:
        mix = ", ".join(f"{n} of {t}" for t, n in zip(self.tasks, self.counts, strict=True))
        text = f"each step takes {mix}; an epoch has {self.per_epoch} steps"
        if self.balanced:
            text += "; losses times " + ", ".join(f"{f:g} ({t})" for t, f in self.factors.items())
        return text


@dataclass(frozen=True)
class RoundRobin(Sampler):
    """One task's batch per step, in fixed turn; the turn goes on across epochs."""

    tasks: tuple[str, ...]
    batch: int
    per_epoch: int

    def steps(self, epoch: int) -> int:
        return self.per_epoch

    def draw(self, epoch: int, step: int, rng: np.random.Generator) -> dict[str, int]:
        turn = (epoch * self.per_epoch + step) % len(self.tasks)
        return {self.tasks[turn]: self.batch}

    def describe(self) -> str:
        return (
            f"each step takes {self.batch} of one task, {', '.join(self.tasks)} in turn; "
            f"an epoch has {self.per_epoch} steps"
        )


@dataclass(frozen=True)
class BySize(Sampler):
    """One task's batch per step, drawn with `p_i ~ N_i^alpha`; alpha may move over the epochs."""

    tasks: tuple[str, ...]
    sizes: tuple[int, ...]
    batch: int
    per_epoch: int
    epochs: int
    first: float
    last: float

    def alpha(self, epoch: int) -> float:
        """The exponent of an epoch; a single epoch keeps the first."""
        if self.epochs == 1 or self.first == self.last:
            return self.first
        share = min(epoch, self.epochs - 1) / (self.epochs - 1)
        return self.first + (self.last - self.first) * share

    def epoch_by_clock(self, epoch: int, share: float) -> int:
        """Whatever moves over the epochs is to come to its end with the run."""
        return min(int(share * self.epochs), self.epochs - 1)

    def probabilities(self, epoch: int) -> dict[str, float]:
        """How likely each task is drawn in a step of this epoch."""
        # Logarithms, so that a large alpha on large sets does not overflow.
        logs = [self.alpha(epoch) * math.log(size) for size in self.sizes]
        weights = [math.exp(log - max(logs)) for log in logs]
        return {t: w / sum(weights) for t, w in zip(self.tasks, weights, strict=True)}

    def steps(self, epoch: int) -> int:
        return self.per_epoch

    def draw(self, epoch: int, step: int, rng: np.random.Generator) -> dict[str, int]:
        point = float(rng.random())
        for task, chance in self.probabilities(epoch).items():
            point -= chance
            if point < 0:
                return {task: self.batch}
        return {self.tasks[-1]: self.batch}  # rounding left the sum a little below 1

    def describe(self) -> str:
        def shares(epoch: int) -> str:
            return ", ".join(f"{t} {p:.1%}" for t, p in self.probabilities(epoch).items())

        text = f"each step takes {self.batch} of one task drawn by chance: {shares(0)}"
        if self.alpha(self.epochs - 1) != self.first:
            text += f", moving to {shares(self.epochs - 1)} in the last epoch"
        return f"{text}; an epoch has {self.per_epoch} steps"


@dataclass(frozen=True)
class InTurn(Sampler):
    """Each epoch is one whole pass over the first task, then over the second, and so on."""

    tasks: tuple[str, ...]
    sizes: tuple[int, ...]
    batch: int

    def steps(self, epoch: int) -> int:
        return sum(_batches(size, self.batch) for size in self.sizes)

    def draw(self, epoch: int, step: int, rng: np.random.Generator) -> dict[str, int]:
        for task, size in zip(self.tasks, self.sizes, strict=True):
            if step < _batches(size, self.batch):
                # The last batch holds what is left, so that a pass ends where the task's turn ends.
                return {task: min(self.batch, size - step * self.batch)}
            step -= _batches(size, self.batch)
        raise IndexError("the step lies beyond the epoch")

    def describe(self) -> str:
        return (
            f"each epoch is a whole pass over {', then '.join(self.tasks)}, "
            f"{self.batch} examples a step, {self.steps(0)} steps in all"
        )


def parse(
    text: str, sizes: Mapping[str, int], batch: int, epochs: int, steps_per_epoch: int | None
) -> Sampler:
    """The sampler that a recipe's text asks for, given the training sets' sizes."""
    for task, size in sizes.items():
        if size < 1:
            raise UserError(f"task {task!r} has no training rows; give it some or leave it out")
    word, numbers = parse_sampling(text)
    tasks, counts = tuple(sizes), tuple(sizes.values())
    if steps_per_epoch is not None and word in ("method1", "method2", "method3", "in-turn"):
        raise UserError(
            f"training.steps_per_epoch is {steps_per_epoch}, but sampling {text!r} fixes an epoch "
            "by the sizes of the sets; leave steps_per_epoch out or use sampling 'each'"
        )
    longest = _batches(max(counts), batch)
    together = steps_per_epoch or longest
    alone = steps_per_epoch or sum(_batches(size, batch) for size in counts)

    def by_size(first: float, last: float, cap: int | None = None) -> BySize:
        capped = tuple(size if cap is None else min(size, cap) for size in counts)
        return BySize(tasks, capped, batch, alone, epochs, first, last)

    match word:
        case "each" | "method2":  # two names of one thing; only `each` may have another epoch
            return Together(tasks, (batch,) * len(tasks), together)
        case "method1":
            shares = tuple(_batches(size, longest) for size in counts)
            return Together(tasks, shares, longest, balanced=True)
        case "method3":
            return Together(tasks, (batch,) * len(tasks), _batches(min(counts), batch))
        case "round-robin":
            return RoundRobin(tasks, batch, alone)
        case "in-turn":
            return InTurn(tasks, counts, batch)
        case "proportional":
            return by_size(1.0, 1.0)
        case "sqrt":
            return by_size(0.5, 0.5)
        case "annealed":
            return by_size(1.0, 0.2)
        case "power":
            return by_size(numbers["power"], numbers["power"])
        case _:
            alpha = 1 / numbers["temperature"]
            cap = numbers.get("cap")
            return by_size(alpha, alpha, None if cap is None else int(cap))


def _batches(size: int, batch: int) -> int:
    return math.ceil(size / batch)
