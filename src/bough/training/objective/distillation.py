"""What a task learns by: its labels, its teachers' answers, or a mixture that changes on the way.

The loss is (1 - w) of the labels' and w of the teachers'; a text without a label has the second
part only. With annealing w falls from `weight` at the first step to 0 at the end of the run, so
that a student first learns what its teacher knows and then what it can know better (BAM!,
https://arxiv.org/abs/1907.04829; for cross-entropies and squares, mixing losses has the gradient
of mixing targets, as it is printed there).
"""

from __future__ import annotations

from torch import Tensor

from bough.model.losses import loss
from bough.recipe.tasks import Task
from bough.recipe.training import Distil
from bough.training.objective.agreement import distance


def teacher_share(distil: Distil, done: float) -> float:
    """The teachers' part of the loss when this share of the run is done."""
    return distil.weight * (1 - done if distil.anneal else 1.0)


def mixed_loss(
    task: Task,
    outputs: Tensor,
    targets: Tensor,
    taught: Tensor,
    labelled: Tensor,
    share: float,
    temperature: float = 1.0,
    class_weights: Tensor | None = None,
) -> Tensor:
    """The mean loss of examples with their teachers' answers, which have this share of it;
    `labelled [n]` says whose targets are labels."""
    total = share * distance(task, outputs, taught, temperature)
    if labelled.any():
        known = loss(task, outputs[labelled], targets[labelled], class_weights)
        total = total + (1 - share) * labelled.float().mean() * known
    return total
