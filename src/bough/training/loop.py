"""The loop: step, log, judge and save, until a phase is over; and never lose a run.

It knows neither tasks nor scores: what is learned is the phase's, and who calls it judges.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from bough.distributed import Processes
from bough.machine_limits import Tidying
from bough.runs import cost
from bough.runs.console import Display, Moment
from bough.runs.run_dir import Writer
from bough.training.phase import Phase
from bough.training.step import NotFiniteError, StepResult

SLACK = 0.4  # by which memory may grow before what no step uses is given back
FORM = 1  # of a checkpoint; one of another form is refused


class Stopped(Exception):
    """Training was asked to stop; the checkpoint is written."""


class Failed(Exception):
    """Training cannot go on, and it is not the user's mistake alone; the last state is kept."""


class Loop:
    """One run's steps, phase after phase, and its wish to stop."""

    def __init__(
        self,
        writer: Writer,
        display: Display,
        processes: Processes,
        phases: int,
        verb: str,
    ):
        self.writer = writer
        self.display = display
        self.processes = processes
        self.phases = phases  # how many there are in all
        self.verb = verb  # with which it is gone on
        self.saved = time.monotonic()
        self.stop = False
        self.saving = False
        self.tidy = Tidying(growth=SLACK)

    def run(
        self,
        phase: Phase,
        judge: Callable[[], bool],
        watch: Callable[[Mapping[str, float]], None] = lambda losses: None,
    ) -> None:
        """One phase to its end. `judge` says whether to end it early; `watch` sees the losses."""
        progress, every = phase.progress, phase.training.save_every
        while not phase.over:
            before = self.processes.exchanged
            result = self._step(phase)
            self.tidy()
            asked = self._asked(every)
            self._log(phase, result, self.processes.exchanged - before, watch)
            alone = self.processes.count == 1  # then what came meanwhile counts, too
            stop, due = self._asked(every) if alone else asked
            if phase.evaluation_due:
                progress.over = judge()
                self._checkpoint(phase)
            elif stop or due:
                self._checkpoint(phase)
            if stop:
                raise Stopped(
                    f"stopped after step {progress.total}; "
                    f"go on with: bough {self.verb} --resume {self.writer.run.folder}"
                )

    def heard(self) -> None:
        """Ctrl-C or SIGTERM: the run ends after the step at hand; at the second time at once.

        But not within a checkpoint, which ends it anyway: torch's writer cannot be left halfway.
        """
        if self.stop and self.saving:
            return
        if self.stop:
            raise KeyboardInterrupt
        self.stop = True
        if self.processes.count > 1:  # perhaps because another one has failed: that is said then
            return
        with suppress(RuntimeError):  # it came while a line was being written
            self.display.say("stopping after this step; the run can be resumed")

    def _step(self, phase: Phase) -> StepResult:
        try:
            return phase.step()
        except NotFiniteError as error:
            run = self.writer.run
            kept = f"; the last state is kept in {run.folder}" if run.checkpoint.is_file() else ""
            raise Failed(
                f"{error} is not a finite number at step {phase.progress.total + 1}{kept}. "
                f"Lower {self.verb}ing.lr ({phase.training.lr:g}) and {self.verb} anew"
            ) from None

    def _asked(self, save_every: float) -> tuple[bool, bool]:
        """Whether any process was asked to stop, and whether the first finds it time to save."""
        due = self.processes.first and time.monotonic() - self.saved > save_every
        stop, saves = self.processes.sums([self.stop, due])
        return stop > 0, saves > 0

    def _log(
        self,
        phase: Phase,
        result: StepResult,
        exchanged: int,
        watch: Callable[[Mapping[str, float]], None],
    ) -> None:
        """Show the step; write a line where one is due, with the mean losses since the last."""
        progress, epochs = phase.progress, phase.epochs
        progress.exchanged += exchanged
        means = {n: float(np.mean(v)) if v else math.nan for n, v in phase.losses.items()}
        seen = phase.seen()
        passes = {name: passes for name, (_, passes) in seen.items()}
        pace = result.tokens / progress.step_seconds[-1]
        which = f" of phase {progress.phase + 1}" if self.phases > 1 else ""
        self.display.step(
            Moment(progress.done, phase.steps, epochs, which, means, passes, result.lr, pace)
        )
        if not phase.logging_due and result.cosines is None:
            return
        entry: dict[str, Any] = {
            "step": progress.total,
            "steps": phase.steps,  # of the phase, as far as it is known yet
            "phase": progress.phase,
            "epoch": round(epochs, 4),
            "loss": {n: v for n, v in means.items() if not math.isnan(v)},
            "examples": {name: examples for name, (examples, _) in seen.items()},
            "passes": {n: round(v, 4) for n, v in passes.items()},
            "lr": result.lr,
            "gradient_norm": result.norm,
            "weights": result.weights,
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 3),
        }
        if self.processes.count > 1:
            entry["exchanged"] = exchanged
        if result.coefficients:
            entry["coefficients"] = result.coefficients
        if result.cosines is not None:
            entry["cosines"] = result.cosines
        self.writer.log(entry)
        self.display.log(entry)
        watch(entry["loss"])
        phase.losses = {name: [] for name in phase.losses}

    def _checkpoint(self, phase: Phase) -> None:
        phase.progress.memory = max(phase.progress.memory, cost.peak_memory())
        state = {"form": FORM, **phase.state(), "log": self.writer.logged()}
        self.saving = True
        try:
            self.writer.write("checkpoint/state.pt", lambda file: torch.save(state, file))
        finally:
            self.saving = False
        self.saved = time.monotonic()
