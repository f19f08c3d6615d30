"""What a step makes less: each task's loss on its examples of a batch, whatever it learns by."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from bough.data.examples import Examples
from bough.data.packing import Batch
from bough.model.losses import class_weights, loss
from bough.recipe.tasks import Task
from bough.recipe.training import Training
from bough.training.objective.distillation import mixed_loss, teacher_share

Forward = Callable[[], dict[str, Tensor]]
"""A pass over a batch with new chance: each task's outputs."""


class Objective:
    """Each task's loss; it changes as the run goes on."""

    def __init__(
        self, tasks: Mapping[str, Task], examples: Mapping[str, Examples], training: Training
    ):
        self.tasks = tasks
        self.training = training
        self.class_weights = {
            name: None if source.labels is None else class_weights(tasks[name], source.labels)
            for name, source in examples.items()
        }
        self.begin(0.0)

    def begin(self, done: float) -> None:
        """The next losses are of a step before which this share of the run is done."""
        self.teacher_share = teacher_share(self.training.distil, done)

    def losses(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        """The tasks' mean losses over their examples of the batch."""
        return {name: self._loss(name, out, batch) for name, out in forward().items()}

    def _loss(self, name: str, outputs: Tensor, batch: Batch) -> Tensor:
        task, weights = self.tasks[name], self.class_weights[name]
        targets = batch.targets[name].to(outputs.device)
        if name not in batch.taught:
            return loss(task, outputs, targets, weights)
        labelled = batch.labelled.get(name)
        if labelled is None:
            labelled = torch.ones(len(targets), dtype=torch.bool)
        return mixed_loss(
            task,
            outputs,
            targets,
            batch.taught[name].to(outputs.device),
            labelled.to(outputs.device),
            self.teacher_share,
            self.training.distil.temperature,
            weights,
        )
