"""Which cell every task uses in each row of the plan, and whose gradient reaches it.

A *task use* is (task, consumer): the task whose path is computed, and the task whose loss or answer
needs it (the same, unless the plan feeds one task's output to another).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from bough.plan.plan import Cell, Plan

TaskUse = tuple[str, str]  # (task, consumer)
Grad = Literal["", "stop", "through"]  # learns; no gradient; a gradient past frozen weights
READ = "read"  # the row in which a sequence's states become one vector, or one per word
WORDS = "words"  # what is read there by tasks that mark spans; the others read `mean` or `cls`


class RowUse(NamedTuple):
    """How a task use passes one row: with which cell, which gradient, which adapters."""

    cell: Cell | None  # None: nothing in this row
    grad: Grad = ""
    adapters: tuple[tuple[Cell, bool], ...] = ()  # and whether they are frozen


class Routing:
    """The row uses of every task use; made once per network."""

    def __init__(self, plan: Plan, poolings: Mapping[str, str], learning: Collection[Cell]):
        self.plan = plan
        self.poolings = poolings
        self.learning = learning
        self.rows = [place for place, _ in plan.rows()]
        self.rows.insert(1 + plan.layers, READ)
        self.in_evaluation: dict[TaskUse, list[RowUse]] = {}
        self.in_training: dict[TaskUse, list[RowUse]] = {}
        for consumer in plan.tasks:
            for task, _ in self.task_uses(consumer):
                self.in_evaluation[task, consumer] = self._path(task)
                self.in_training[task, consumer] = self._path_for(task, consumer)
        learns = [self._learns(row) for row in range(len(self.rows))]
        self.frozen_rows = learns.index(True) if True in learns else len(learns)
        """How many leading rows never learn: their states can be kept, and take no dropout."""

    def task_uses(self, *tasks: str) -> tuple[TaskUse, ...]:
        """All that must be computed on a sequence for these tasks' answers."""
        needed = ((task, t) for t in tasks for task in (t, *self.plan.sources(t)))
        return tuple(dict.fromkeys(needed))

    def _path(self, task: str) -> list[RowUse]:
        uses = {
            step.cell.place: RowUse(
                step.cell, "", tuple((cell, False) for _, cell in step.adapters)
            )
            for step in self.plan.path(task)
        }
        pooling = self.poolings[task]
        uses[READ] = RowUse(Cell(READ, pooling if pooling in ("mean", WORDS) else "cls"))
        return [uses.get(row, RowUse(None)) for row in self.rows]

    def _path_for(self, task: str, consumer: str) -> list[RowUse]:
        """`task`'s path for the loss of `consumer`, which moves cells of its own path only."""
        path, consumer_path = self._path(task), self._path(consumer)
        if self._gradient_reaches(task, consumer):
            learning = {
                cell for use in consumer_path for cell in (use.cell, *(c for c, _ in use.adapters))
            }
            return [
                RowUse(
                    use.cell,
                    "" if use.cell in learning else "through",
                    tuple((cell, cell not in learning) for cell, _ in use.adapters),
                )
                for use in path
            ]
        # Nothing flows back; while the two share activations there is nothing to stop either.
        fork = next((i for i, use in enumerate(path) if use != consumer_path[i]), len(path))
        return [use._replace(grad="stop") if i >= fork else use for i, use in enumerate(path)]

    def _gradient_reaches(self, source: str, consumer: str) -> bool:
        """Whether all readings between the two let a gradient through to `source`'s path."""
        return consumer == source or any(
            read.through and self._gradient_reaches(source, read.source)
            for read in self.plan.reading(consumer)
        )

    def _learns(self, row: int) -> bool:
        uses = [path[row] for path in self.in_training.values()]
        return any(use.cell in self.learning or use.adapters for use in uses)
