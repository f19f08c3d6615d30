"""A phase of training: how long it is, how far it has come, and what draws, loads and steps in it.

A phase's length is given in epochs, steps, tokens or minutes. By the clock it is a forecast, made
anew after every step; otherwise it is known before the first.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bough.data.examples import Examples, ExampleSampler
from bough.data.loader import Loader, row_groups
from bough.data.tokens import Ints
from bough.distributed import ALONE, Processes
from bough.errors import listed
from bough.model.network import Network
from bough.plan.plan import Plan
from bough.recipe.training import Phase as PhaseSettings
from bough.recipe.training import Training
from bough.training import optimizer, sampling
from bough.training.step import Batches, Stepper, StepResult

# Of a run whose length is left to the rows: enough steps, but no end of passes over a few rows.
ENOUGH_STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 300, 3, 10
PARTS, FEWEST = 4, 25  # of what has not two epochs: how often it is judged, after how many steps


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
    best_step: int | None = None  # of the run; None in checkpoints from before
    since_best: int = 0  # evaluations without a better score
    over: bool = False  # whether this phase ended before its time
    step_seconds: deque[float] = field(default_factory=deque)  # of the last thousand
    memory: int = 0  # the most bytes that any of the run's processes had
    exchanged: int = 0  # bytes that a process gave to be added up with the others'

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


@dataclass(frozen=True)
class PhaseSchedule:
    """What is decided about a phase before the run begins."""

    training: Training  # as it holds in this phase
    frozen: bool  # whether only the heads learn
    sampler: sampling.Sampler
    steps: int
    tasks: tuple[str, ...]  # that learn in it

    @classmethod
    def of(
        cls, training: Training, phase: PhaseSettings | None, examples: Mapping[str, Examples]
    ) -> PhaseSchedule:
        """The schedule over these training sets; without a phase, of the whole run."""
        settings = training if phase is None else phase.over(training)
        if phase is not None and phase.tasks is not None:
            examples = {name: examples[name] for name in phase.tasks if name in examples}
        groups = row_groups(examples)
        sizes = {name: len(rows) for name, rows in groups.items()}
        lengths = {name: float(rows.lengths.mean()) for name, rows in groups.items()}
        frozen = phase is not None and phase.frozen
        return cls(settings, frozen, *_length(settings, sizes, lengths), tuple(examples))

    @property
    def epochs(self) -> int:
        """How many are begun."""
        return math.ceil(self.steps / self.sampler.steps(0))

    @property
    def by_rows(self) -> bool:
        """Whether nothing but the number of rows says how long it is."""
        given = self.training
        return not (given.epochs or given.steps or given.tokens or given.minutes)

    def describe(self) -> str:
        """One sentence for people: whose turn it is, and for how long, where the rows say that."""
        if not self.by_rows:
            return self.sampler.describe()
        return f"{self.sampler.describe()}; for so many rows {self.epochs} epochs"

    @property
    def examples(self) -> float:
        """How many examples of all tasks the phase draws, in expectation."""
        return self.steps * _mean_step(self.sampler, 1, dict.fromkeys(self.sampler.tasks, 1.0))


class Phase:
    """One phase from where it stands: what comes next, and what learns from it."""

    def __init__(
        self,
        schedule: PhaseSchedule,
        progress: Progress,
        network: Network,
        examples: Mapping[str, Examples],
        weights: Mapping[str, float],
        processes: Processes = ALONE,
        later: int = 0,
    ):
        """`later`: steps of the phases to come."""
        training = schedule.training
        self.later = later
        self.processes = processes
        self.training = training
        self.schedule = schedule
        self.progress = progress
        seed = [training.seed, progress.phase]
        self.loader = Loader(examples, self._draw, training.accumulate, processes)
        self.batches: Batches = self.loader
        factors = schedule.sampler.factors
        weights = {
            task: weights[task] * factors[name]
            for name, rows in self.loader.groups.items()
            for task in rows.places
        }
        self.stepper = Stepper(network, examples, training, weights, [*seed, 0], processes)
        self.turns = np.random.Generator(np.random.PCG64([*seed, 1]))
        self.samplers = {
            name: ExampleSampler(
                rows.lengths, training.batch, training.length_window, [*seed, 2, i]
            )
            for i, (name, rows) in enumerate(self.loader.groups.items())
        }
        self.losses: dict[str, list[float]] = {name: [] for name in examples}  # since the last log

    def step(self) -> StepResult:
        """The next step, counted; with it an epoch may begin."""
        if self._epoch_ends:
            self.progress.epoch, self.progress.step = self.progress.epoch + 1, 0
            self.stepper.weighting.close_epoch()
        began = time.perf_counter()
        self.stepper.begin(self.run_share)
        result = self.stepper.step(self.batches, self.lr, self._cosines_due)
        seconds = time.perf_counter() - began
        if self.training.minutes is not None:  # then the clock decides, and not each his own
            seconds = self.processes.first_says(seconds)
        self.progress.count(result.tokens, seconds)
        for name, loss in result.losses.items():
            self.losses[name].append(loss)
        return result

    def _draw(self) -> dict[str, Ints]:
        """Whose turn it is, and which of their rows come next."""
        sampler, epoch, minutes = self.schedule.sampler, self.progress.epoch, self.training.minutes
        if minutes is not None:
            epoch = sampler.epoch_by_clock(epoch, self.progress.seconds / (60 * minutes))
        counts = sampler.draw(epoch, self.progress.step, self.turns)
        return {name: self.samplers[name].next(count) for name, count in counts.items()}

    def seen(self) -> dict[str, tuple[int, float]]:
        """How many examples each task has learned from, and how often that is each of them."""
        out = {}
        for name, rows in self.loader.groups.items():
            sampler = self.samplers[name]
            passes = (sampler.seen - sampler.at) // len(rows)  # that are over
            for task, places in rows.places.items():
                size = int((places >= 0).sum())
                begun = int((places[sampler.order[: sampler.at]] >= 0).sum())
                seen = passes * size + begun
                out[task] = seen, seen / size
        return {task: out[task] for task in self.losses}

    @property
    def steps(self) -> int:
        """How many there are; by the clock, what the pace so far makes of the minutes."""
        done, minutes = self.progress.done, self.training.minutes
        if minutes is None or not done:
            return self.schedule.steps
        share = self.progress.seconds / (60 * minutes)
        return done if share >= 1 else max(done + 1, round(done / share))

    @property
    def lr(self) -> float:
        """The next step's learning rate."""
        peak, warmup, kind = self.training.lr, self.training.warmup, self.training.schedule
        return peak * optimizer.factor(self.progress.done, self.steps, warmup, kind)

    @property
    def run_share(self) -> float:
        """How much of the whole run is done."""
        before = self.progress.total - self.progress.done
        return self.progress.total / (before + self.steps + self.later)

    @property
    def epochs(self) -> float:
        """Epochs so far, with the share of the one at hand."""
        return self.progress.epoch + self.progress.step / self._epoch_steps

    @property
    def over(self) -> bool:
        return self.progress.over or self.progress.done >= self.steps

    @property
    def evaluation_due(self) -> bool:
        every = self.training.evaluate_every
        if self.progress.done >= self.steps:
            return True
        if every == "epoch":
            return self._epoch_ends or self._part_ends
        return self.progress.done % int(every) == 0

    @property
    def _part_ends(self) -> bool:
        """Whether a quarter ends here of what is shorter than two epochs: there is to be a choice
        between models all the same. A few steps are too few for that."""
        minutes, done = self.training.minutes, self.progress.done
        if self.steps >= 2 * self._epoch_steps or self.steps < PARTS * FEWEST:
            return False
        whole, now, last = float(self.steps), float(done), 1.0
        if minutes is not None:
            whole, now, last = 60 * minutes, self.progress.seconds, self.progress.step_seconds[-1]
        return int(PARTS * now / whole) > int(PARTS * (now - last) / whole)

    @property
    def logging_due(self) -> bool:
        return (
            self.progress.total % self.training.log_every == 0 or self.progress.done >= self.steps
        )

    @property
    def _cosines_due(self) -> bool:
        """Whether the next step compares the tasks' gradients."""
        every = self.training.cosines_every
        return bool(every) and (self.progress.total + 1) % every == 0

    @property
    def _epoch_steps(self) -> int:
        return self.schedule.sampler.steps(self.progress.epoch)

    @property
    def _epoch_ends(self) -> bool:
        return self.progress.step == self._epoch_steps

    def state(self) -> dict[str, Any]:
        """All that the phase depends on; the names are those of the checkpoint's form."""
        progress = vars(self.progress) | {"step_seconds": list(self.progress.step_seconds)}
        return {
            "progress": progress,
            "stepper": self.stepper.state(),
            "turns": self.turns.bit_generator.state,
            "decks": {name: sampler.state() for name, sampler in self.samplers.items()},
            "losses": self.losses,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there; the progress is the run's and given from the beginning."""
        self.stepper.restore(state["stepper"])
        self.turns.bit_generator.state = state["turns"]
        for name, sampler in self.samplers.items():
            sampler.restore(state["decks"][name])
        self.losses = state["losses"]


def left_behind(plan: Plan, schedules: Sequence[PhaseSchedule]) -> Iterator[str]:
    """A sentence on the tasks that learned before and rest while layers of theirs learn on."""
    cells = {name: {step.cell for step in plan.path(name)} for name in plan.tasks}
    learned: set[str] = set()
    for number, schedule in enumerate(schedules, 1):
        moved = {cell for name in schedule.tasks for cell in cells[name] if plan.learns(cell)}
        rest = [name for name in sorted(learned - {*schedule.tasks}) if moved & cells[name]]
        if rest and not schedule.frozen:
            yield (
                f"in phase {number} layers learn on that {listed(rest)} learned with before: a "
                "head that rests meanwhile fits them no longer, so do not trust its answers"
            )
        learned |= {*schedule.tasks}


def epochs_by_rows(steps: int) -> int:
    """How many epochs of so many steps are enough: few rows are gone through more often."""
    return min(max(math.ceil(ENOUGH_STEPS / steps), FEWEST_EPOCHS), MOST_EPOCHS)


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
        epochs = training.epochs or epochs_by_rows(sampler(1).steps(0))
        chosen = sampler(epochs)
        return chosen, sum(chosen.steps(epoch) for epoch in range(epochs))
    return sampler(epochs_of(training.steps)), training.steps


def _mean_step(sampler: sampling.Sampler, epochs: int, size: Mapping[str, float]) -> float:
    """A step's mean size, given an example's: from draws of a few epochs spread over the run."""
    rng = np.random.default_rng(0)
    drawn = [
        sum(size[name] * count for name, count in sampler.draw(epoch, step, rng).items())
        for epoch in {round(e) for e in np.linspace(0, epochs - 1, min(epochs, 5))}
        for step in range(sampler.steps(epoch))
    ]
    return float(np.mean(drawn))
