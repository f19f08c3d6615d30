"""What a wrong answer costs, and what the outputs say: the two readings of a head's numbers.

Outputs are `[n, task.outputs]`; targets are `[n]`, class indices or real values in the task's own
range. Every loss is the plain mean over examples, so the parts of a batch add up to the whole in
proportion to their sizes. Real labels are brought to [0, 1] inside, where no task's loss drowns
another's; answers come back in the label's own range.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from bough.recipe.tasks import Task

# On labels brought to [0, 1] an error is rarely above 1, where torch's default would never bend.
_HUBER = 0.1
SMALLEST = 1e-30  # a probability below it is taken for it: its logarithm is a number


def loss(
    task: Task, outputs: Tensor, targets: Tensor, class_weights: Tensor | None = None
) -> Tensor:
    """Mean loss over the examples.

    `class_weights [classes]` multiplies each example's loss by its class's weight. The sum is
    divided by the number of examples, not by the weights met: else a batch of one class would
    cost the same whatever the weight.
    """
    if outputs.shape != (len(targets), task.outputs) or targets.ndim != 1 or len(targets) == 0:
        raise ValueError(
            f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)} do not fit: "
            f"expected [n, {task.outputs}] and [n], n > 0"
        )
    if outputs.dtype in (torch.bfloat16, torch.float16):
        outputs = outputs.float()
    if task.kind == "regress":
        low, high = _range(task)
        scaled = (targets.to(outputs.dtype) - low) / (high - low)
        return _distances(task, outputs[:, 0], scaled).mean()
    match task.loss_name:
        case "ce":
            each = F.cross_entropy(
                outputs, targets, reduction="none", label_smoothing=task.smoothing
            )
        case "bce":
            each = _binary(task, outputs, targets[:, None]).squeeze(1)
        case "ordinal":
            above = targets[:, None] > torch.arange(task.outputs, device=targets.device)
            each = _binary(task, outputs, above).mean(1)
        case _:
            each = _distances(task, outputs, _smoothed(task, outputs, targets[:, None])).squeeze(1)
    if class_weights is not None:
        each = each * class_weights.to(each)[targets]
    return each.mean()


def ignorant_loss(task: Task) -> float:
    """What an answer costs that knows nothing: all classes alike; a number at its far end."""
    match task.loss_name:
        case "ce":
            return math.log(task.classes)
        case "bce" | "ordinal":
            return math.log(2)
    return 1.0


def answers(task: Task, outputs: Tensor) -> tuple[Tensor, Tensor | None]:
    """What the outputs say: values `[n]` in the label's range, or class indices `[n]` together
    with the probabilities `[n, classes]`; the class is always the likeliest."""
    outputs = outputs.detach()
    if outputs.dtype in (torch.bfloat16, torch.float16):
        outputs = outputs.float()
    if task.kind == "regress":
        low, high = _range(task)
        return low + outputs[:, 0].clamp(0, 1) * (high - low), None
    match task.loss_name:
        case "ce":
            probabilities = outputs.softmax(1)
        case "bce":
            probabilities = torch.cat([(-outputs).sigmoid(), outputs.sigmoid()], 1)
        case "ordinal":
            # P(y > k) must fall with k; where single logits disagree, the lower one holds.
            above = outputs.sigmoid().cummin(1).values
            one, none = torch.ones_like(above[:, :1]), torch.zeros_like(above[:, :1])
            probabilities = torch.cat([one, above], 1) - torch.cat([above, none], 1)
        case _:
            positive = outputs.clamp(0, 1)
            probabilities = torch.cat([1 - positive, positive], 1)
    best = probabilities.argmax(1)
    return best, probabilities if task.temperature is None else tempered(
        probabilities, task.temperature
    )


def tempered(probabilities: Tensor, temperature: float) -> Tensor:
    """The probabilities at this temperature: their order is the same."""
    return (probabilities.clamp(min=SMALLEST).log() / temperature).softmax(1)


def class_weights(task: Task, labels: Tensor) -> Tensor | None:
    """The weight of each class: as given, or `balanced` by the training labels, so that each class
    counts the same in all and the mean weight of an example is 1."""
    if task.class_weights is None:
        return None
    if task.class_weights == "balanced":
        counts = torch.bincount(labels.long(), minlength=task.classes).clamp(min=1)
        return len(labels) / (task.classes * counts.to(torch.get_default_dtype()))
    given = task.class_weights
    return torch.tensor([given.get(name, 1.0) for name in task.labels or ()])


def _binary(task: Task, logits: Tensor, truth: Tensor) -> Tensor:
    """Binary cross-entropy of each logit."""
    smooth = _smoothed(task, logits, truth)
    return F.binary_cross_entropy_with_logits(logits, smooth, reduction="none")


def _smoothed(task: Task, outputs: Tensor, truth: Tensor) -> Tensor:
    """Targets 0 and 1, moved towards 1/2 by the smoothing."""
    return truth.to(outputs.dtype) * (1 - task.smoothing) + task.smoothing / 2


def _distances(task: Task, predicted: Tensor, truth: Tensor) -> Tensor:
    match task.loss_name:
        case "mse":
            return F.mse_loss(predicted, truth, reduction="none")
        case "mae":
            return F.l1_loss(predicted, truth, reduction="none")
        case _:
            return F.huber_loss(predicted, truth, reduction="none", delta=_HUBER)


def _range(task: Task) -> tuple[float, float]:
    assert task.range is not None, "known once the rows are loaded"
    return task.range
