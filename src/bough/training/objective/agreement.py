"""How far a task's outputs are from other answers: those of a teacher, or its own under noise.

Outputs are compared in the form that the task's loss gives them: as one choice among the classes,
as a choice between two for each of its logits, or as a number. Every distance is a mean over the
examples, and 0 where both agree.
"""

from __future__ import annotations

from typing import assert_never

import torch
from torch import Tensor
from torch.nn import functional as F

from bough.model.losses import SMALLEST, answers, loss
from bough.recipe.tasks import Task


def soft_answers(task: Task, outputs: Tensor) -> Tensor:
    """What the outputs answer: probabilities `[n, classes]`, or values `[n, 1]` in their range."""
    values, probabilities = answers(task, outputs)
    return values[:, None] if probabilities is None else probabilities


def distance(task: Task, outputs: Tensor, taught: Tensor, temperature: float = 1.0) -> Tensor:
    """From a teacher's soft answers to the outputs: Kullback and Leibler's divergence, both at the
    temperature, times its square, so that gradients keep their size
    (https://arxiv.org/abs/1503.02531); for numbers the task's own loss."""
    outputs = outputs.float()
    taught = taught.to(outputs)
    match task.kind:
        case "regress":
            return loss(task, outputs, taught[:, 0])
        case "classify" if task.loss_name == "mse":
            return F.mse_loss(outputs, taught[:, 1:])
        case "classify" | "ordinal" | "multilabel":
            ours = _choices(task, outputs / temperature)
            theirs = (_taught_choices(task, taught) / temperature).log_softmax(2)
            return _divergences(theirs, ours).mean() * temperature**2
        case "tag":
            raise ValueError("a recipe gives tag tasks no teacher")
        case _:
            assert_never(task.kind)


def disagreement(task: Task, one: Tensor, other: Tensor) -> Tensor:
    """Between two outputs for the same examples: the mean of both directions' divergences; for
    numbers, and for shares learned as such, the squared difference."""
    one, other = one.float(), other.float()
    match task.kind:
        case "classify" | "ordinal" | "multilabel" | "tag" if task.loss_name != "mse":
            a, b = _choices(task, one), _choices(task, other)
            return (_divergences(a, b) + _divergences(b, a)).mean() / 2
        case "classify" | "ordinal" | "multilabel" | "regress" | "tag":
            return F.mse_loss(one, other)
        case _:
            assert_never(task.kind)


def _choices(task: Task, outputs: Tensor) -> Tensor:
    """The outputs as logarithms of probabilities, [n, choices, ways of each]."""
    if task.loss_name == "ce":
        return F.log_softmax(outputs, 1)[:, None]
    return torch.stack([F.logsigmoid(-outputs), F.logsigmoid(outputs)], 2)


def _taught_choices(task: Task, taught: Tensor) -> Tensor:
    """A teacher's probabilities of the classes, likewise; at a temperature they want scaling."""
    if task.kind == "multilabel":
        return torch.stack([1 - taught, taught], 2).clamp(min=SMALLEST).log()
    match task.loss_name:
        case "ce" | "bce":
            shares = taught[:, None]
        case _:  # ordinal: for each class but the last, that a higher one is right
            above = taught.flip(1).cumsum(1).flip(1)[:, 1:].clamp(0, 1)
            shares = torch.stack([1 - above, above], 2)
    return shares.clamp(min=SMALLEST).log()


def _divergences(one: Tensor, other: Tensor) -> Tensor:
    """sum p log(p / q), the mean over an example's choices: [n]."""
    return (one.exp() * (one - other)).sum(2).mean(1)
