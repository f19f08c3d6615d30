"""The course of a run: how long each phase is, whose turn it is in a step, and how far it has come.

A phase's length is given in epochs, steps, tokens or minutes. By the clock it is a forecast, made
anew after every step; otherwise it is known before the first.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from bough.data.batches import Examples
from bough.recipe.recipe import Phase, Training
from bough.training import optimizer, sampling


@dataclass
class Progress:
    """How far a run has come."""

    phase: int = 0
    epoch: int = 0  # of this phase
    step: int = 0  # of this epoch
    done: int = 0  # steps of this phase
    total: int = 0  # steps of the run
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    since_best: int = 0  # evaluations without a better score
    over: bool = False  # whether this phase ended before its time
    step_seconds: deque[float] = field(default_factory=deque)  # of the last thousand
    memory: int = 0  # the most bytes that any of the run's processes had

    def __post_init__(self) -> None:
        self.step_seconds = deque(self.step_seconds, maxlen=1000)

    def count(self, tokens: int, seconds: float) -> None:
        """One more step."""
        self.step, self.done, self.total = self.step + 1, self.done + 1, self.total + 1
        self.tokens, self.seconds = self.tokens + tokens, self.seconds + seconds
        self.step_seconds.append(seconds)

    def next_phase(self) -> Progress:
        return replace(
            self, phase=self.phase + 1, epoch=0, step=0, done=0, since_best=0, over=False
        )


@dataclass
class PhaseSchedule:
    """One phase of a run."""

    training: Training  # as it holds in this phase
    frozen: bool  # whether only the heads learn
    sampler: sampling.Sampler
    steps: int

    @classmethod
    def of(
        cls, training: Training, phase: Phase | None, examples: Mapping[str, Examples]
    ) -> PhaseSchedule:
        """The course over these training sets; without a phase, of the whole run."""
        own = training if phase is None else phase.over(training)
        sizes = {name: len(e) for name, e in examples.items()}
        lengths = {name: float(e.lengths.mean()) for name, e in examples.items()}
        return cls(own, phase is not None and phase.frozen, *_length(own, sizes, lengths))

    @property
    def examples(self) -> float:
        """How many examples of all tasks the phase draws, in expectation."""
        return self.steps * _mean_step(self.sampler, 1, dict.fromkeys(self.sampler.tasks, 1.0))

    def forecast(self, progress: Progress) -> None:
        """By the clock, the number of steps is what the pace so far makes of the minutes."""
        if self.training.minutes is None or not progress.done:
            return
        share = progress.seconds / (60 * self.training.minutes)
        self.steps = (
            progress.done if share >= 1 else max(progress.done + 1, round(progress.done / share))
        )

    def lr(self, progress: Progress) -> float:
        told = self.training
        return told.lr * optimizer.factor(progress.done, self.steps, told.warmup, told.schedule)

    def epochs(self, progress: Progress) -> float:
        """Epochs so far, with the share of the one at hand."""
        return progress.epoch + progress.step / self.sampler.steps(progress.epoch)

    def epoch_ends(self, progress: Progress) -> bool:
        return progress.step == self.sampler.steps(progress.epoch)

    def evaluation_due(self, progress: Progress) -> bool:
        every = self.training.evaluate_every
        if progress.done >= self.steps:
            return True
        return self.epoch_ends(progress) if every == "epoch" else progress.done % int(every) == 0

    def logging_due(self, progress: Progress) -> bool:
        return progress.total % self.training.log_every == 0 or progress.done >= self.steps

    def cosines_due(self, progress: Progress) -> bool:
        """Whether the next step compares the tasks' gradients."""
        every = self.training.cosines_every
        return bool(every) and (progress.total + 1) % every == 0


def _length(
    training: Training, sizes: Mapping[str, int], lengths: Mapping[str, float]
) -> tuple[sampling.Sampler, int]:
    """The sampler, and how many steps it is asked for; `lengths` are the examples' mean tokens.
    Accumulation makes for larger and fewer steps: an epoch sees as many examples as without it."""
    batch = training.batch * training.accumulate

    def sampler(epochs: int) -> sampling.Sampler:
        return sampling.parse(training.sampling, sizes, batch, epochs, training.steps_per_epoch)

    def epochs_of(steps: int) -> int:
        return max(1, math.ceil(steps / sampler(1).steps(0)))

    if training.tokens is not None:
        # Whose turn it is may depend on the number of epochs, which depends on whose turn it is.
        epochs = epochs_of(round(training.tokens / _mean_step(sampler(1), 1, lengths)))
        steps = max(1, round(training.tokens / _mean_step(sampler(epochs), epochs, lengths)))
        return sampler(epochs_of(steps)), steps
    if training.steps is None:
        chosen = sampler(training.epochs)
        return chosen, sum(chosen.steps(epoch) for epoch in range(training.epochs))
    return sampler(epochs_of(training.steps)), training.steps


def _mean_step(sampler: sampling.Sampler, epochs: int, size: Mapping[str, float]) -> float:
    """A step's mean size, given an example's: from draws of a few epochs spread over the run."""
    rng = np.random.default_rng(0)
    found = [
        sum(size[name] * count for name, count in sampler.draw(epoch, step, rng).items())
        for epoch in {round(e) for e in np.linspace(0, epochs - 1, min(epochs, 5))}
        for step in range(sampler.steps(epoch))
    ]
    return float(np.mean(found))
