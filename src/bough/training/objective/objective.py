"""What a step makes less: each task's loss on its examples of a batch, whatever it learns by.

Beside labels and teachers, answers may be asked to be steady; that takes more passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from bough.data.examples import Examples
from bough.data.packing import Batch
from bough.model.losses import class_weights, loss
from bough.recipe.tasks import Task
from bough.recipe.training import Training
from bough.training.objective.distillation import mixed_loss, teacher_share
from bough.training.objective.smoothness import MovedEmbeddings, r_drop, smart

Forward = Callable[[], dict[str, Tensor]]
"""A pass over a batch with new chance: each task's outputs."""


class Objective:
    """Each task's loss; it changes as the run goes on."""

    def __init__(
        self,
        tasks: Mapping[str, Task],
        examples: Mapping[str, Examples],
        training: Training,
        embeddings: Sequence[nn.Module] = (),
    ):
        self.embeddings = embeddings
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

    def losses(self, forward: Forward, batch: Batch, chance: torch.Generator) -> dict[str, Tensor]:
        """The tasks' mean losses over their examples of the batch; `chance` is what the passes draw
        from."""
        before = chance.get_state()
        outputs = forward()
        losses = self._plain(outputs, batch)
        if self.training.r_drop:
            other = forward()
            both = [losses, self._plain(other, batch)]
            losses = r_drop(self.tasks, both, [outputs, other], self.training.r_drop)
        if self.training.smart is not None:
            settings = self.training.smart
            moved = MovedEmbeddings(self.embeddings, settings.radius, _drawn(chance))

            def again() -> dict[str, Tensor]:
                with _replayed(chance, before):
                    return forward()

            changes = smart(self.tasks, outputs, again, moved)
            losses = {name: v + settings.weight * changes[name] for name, v in losses.items()}
        return losses

    def _plain(self, outputs: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        return {name: self._loss(name, out, batch) for name, out in outputs.items()}

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


def _drawn(chance: torch.Generator) -> torch.Generator:
    """Chance of its own for what must not change what a pass draws."""
    seed = torch.empty((), dtype=torch.int64, device=chance.device)
    seed.random_(generator=chance)
    return torch.Generator(chance.device).manual_seed(int(seed))


@contextmanager
def _replayed(chance: torch.Generator, before: Tensor) -> Iterator[None]:
    """Within, chance is what it was before the first pass."""
    now = chance.get_state()
    chance.set_state(before)
    try:
        yield
    finally:
        chance.set_state(now)
