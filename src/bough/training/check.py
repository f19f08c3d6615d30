"""A recipe tried without a run: what would be learned from which rows, how much, and how long.

All that a training looks at before its first step is looked at, and a few steps are timed. Nothing
is written.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bough import formatting
from bough.errors import listed
from bough.plan.plan import Plan
from bough.recipe.recipe import Recipe
from bough.recipe.tasks import Task
from bough.runs.console import Display, Silent, for_terminal
from bough.runs.run_dir import Onlooker
from bough.training.phase import Phase, PhaseSchedule, Progress
from bough.training.train import threads_of
from bough.training.trainer import Trainer

WARM, TIMED = 2, 4  # steps: the first make kernels and memory
FORWARD = 1 / 3  # of a step's time is what answering its texts would take


@dataclass(frozen=True)
class Checked:
    """A recipe that can be trained, and what that would be; printed, for people."""

    recipe: Recipe  # as a run would have it: what was left open is decided
    tasks: Mapping[str, Task]
    rows: Mapping[str, Mapping[str, int]]  # task -> split -> how many
    plan: Plan
    parameters: int
    steps: int
    step_seconds: float
    seconds: float  # of the whole run, about
    threads: int

    def __str__(self) -> str:
        width = max(map(len, self.tasks))
        lines = []
        for name, task in self.tasks.items():
            known = f", {len(task.labels)} classes" if task.labels else ""
            rows = ", ".join(f"{count:,} {split}" for split, count in self.rows[name].items())
            lines.append(f"{name:{width}}  {task.kind}{known}; rows: {rows}")
        pace = f"{formatting.seconds(self.step_seconds)} a step"
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        taught = [name for name, task in self.recipe.tasks.items() if task.teacher]
        more = f"; what the teachers of {listed(taught)} take comes on top" if taught else ""
        return "\n".join(
            [
                *lines, "", str(self.plan), "",
                f"{self.parameters / 1e6:.1f} M parameters",
                f"{self.steps:,} steps: about {formatting.duration(self.seconds)} with judging, "
                f"at {pace} on {threads} (timed on {TIMED} steps){more}",
            ]
        )  # fmt: skip


def check(
    recipe: str | os.PathLike[str] | Mapping[str, Any] | Recipe,
    overrides: Sequence[str] = (),
    display: Display | None = None,
    *,
    progress: bool = False,
) -> Checked:
    """See whether a recipe can be trained, what that would be, and how long it would take.

    Args:
        recipe: A YAML file, a mapping of the same keys, or a `Recipe`.
        overrides: Settings `a.b=c`, as those of `bough train --set`.
        display: What is told of odd rows and of what was decided; nothing by default.
        progress: Show that, as `bough check` does.

    Returns:
        The tasks, their rows, the plan, and how long a training takes; print it.

    Raises:
        UserError: The recipe or its data cannot be used.

    Example:
        >>> checked = bough.check("recipe.yaml", ["plan=split@1"])
        >>> checked.steps, checked.rows["sentiment"]["dev"] > 0
        (3, True)
    """
    asked = Recipe.read(recipe, overrides).anchored().model_copy(update={"pretraining": None})
    shown = display or (for_terminal() if progress else Silent())
    # Teachers may take hours to train and to ask: their pupils are looked at without them.
    alone = {"teacher": (), "unlabelled": ()}
    pupils = {name: task.model_copy(update=alone) for name, task in asked.tasks.items()}
    try:
        with tempfile.TemporaryDirectory() as nowhere, threads_of(asked.threads):
            without = asked.model_copy(update={"tasks": pupils})
            trainer = Trainer(without, Onlooker(Path(nowhere)), shown, None)
            return _checked(asked, trainer)
    finally:
        shown.close()


def _checked(asked: Recipe, trainer: Trainer) -> Checked:
    judged = sum(int(rows.lengths.sum()) for rows in trainer.dev.values())
    steps, learning, judging = 0, 0.0, 0.0
    for schedule in trainer.schedules:
        pace, tokens = _timed(trainer, schedule)
        minutes = schedule.training.minutes
        steps += schedule.steps if minutes is None else max(1, round(60 * minutes / pace))
        learning += schedule.steps * pace if minutes is None else 60 * minutes
        judging += _evaluations(schedule) * judged * FORWARD * pace / tokens
    decided = trainer.recipe.tasks
    return Checked(
        recipe=asked,
        tasks={
            name: task.model_copy(update={"pair": decided[name].pair})
            for name, task in trainer.tasks.items()
        },
        rows={
            name: {split: len(rows) for split, rows in splits.items()}
            for name, splits in trainer.data.rows.items()
        },
        plan=trainer.network.plan,
        parameters=sum(p.numel() for p in trainer.network.parameters()),
        steps=steps,
        step_seconds=learning / steps,
        seconds=learning + judging,
        threads=torch.get_num_threads(),
    )


def _timed(trainer: Trainer, schedule: PhaseSchedule) -> tuple[float, float]:
    """Seconds and tokens of one of its steps, on average."""
    if schedule.frozen:
        trainer.network.freeze_trunk()
    else:
        trainer.network.unfreeze()
    examples = {name: trainer.learned[name] for name in schedule.tasks}
    weights = trainer.recipe.task_weights()
    phase = Phase(schedule, Progress(), trainer.network, examples, weights)
    for _ in range(WARM):
        phase.step()
    began = time.perf_counter()
    tokens = sum(phase.step().tokens for _ in range(TIMED))
    return (time.perf_counter() - began) / TIMED, tokens / TIMED


def _evaluations(schedule: PhaseSchedule) -> int:
    every = schedule.training.evaluate_every
    return schedule.epochs + 1 if every == "epoch" else schedule.steps // int(every) + 1
