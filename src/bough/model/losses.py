"""What a wrong answer costs, and what the outputs say: how a head's numbers are read.

Outputs are `[n, task.outputs]`; targets are class indices or real values in the task's own range,
`[n]`, or 0 and 1 for each of several labels, `[n, labels]`. A tag task's outputs are those of all
words, `[words, task.outputs]`, and its targets the tags of each text's, `[n, most words]`. What the
numbers mean is their form, decided by the task's kind and its loss. Every loss is the plain mean
over examples, so the parts of a batch add up to the whole in proportion to their sizes; but for
`pearson`, the correlation of a whole batch, which is therefore never cut into parts. Real labels
are brought to [0, 1] inside, where no task's loss drowns another's; answers come back in the
label's own range.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import assert_never

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
    rows = int((targets >= 0).sum()) if task.kind == "tag" else len(targets)
    ndim = 2 if task.kind in ("tag", "multilabel") else 1
    if outputs.shape != (rows, task.outputs) or targets.ndim != ndim or len(targets) == 0:
        raise ValueError(
            f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)} do not fit: "
            f"expected [{rows}, {task.outputs}] and {'[n, ...]' if ndim == 2 else '[n]'}, n > 0"
        )
    each = output_form(task).losses(_single(outputs), targets)
    if class_weights is not None:
        each = each * class_weights.to(each)[targets]
    return each.mean()


def ignorant_loss(task: Task) -> float:
    """What an answer costs that knows nothing: all classes alike; a number at its far end."""
    return output_form(task).ignorant_loss


def answers(task: Task, outputs: Tensor) -> tuple[Tensor, Tensor | None]:
    """What the outputs say: values `[n]` in the label's range, or class indices `[n]` together
    with the probabilities `[n, classes]`; the class is always the likeliest."""
    return output_form(task).answers(_single(outputs.detach()))


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


def _single(outputs: Tensor) -> Tensor:
    """Losses and probabilities are in single precision at least."""
    return outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs


# --- forms --------------------------------------------------------------------------------------


class OutputForm(ABC):
    """How one task's outputs are read."""

    def __init__(self, task: Task):
        self.task = task

    @property
    @abstractmethod
    def ignorant_loss(self) -> float:
        """What an answer costs that knows nothing."""

    @abstractmethod
    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Each example's loss, [n]."""

    @abstractmethod
    def answers(self, outputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Each example's answer, and where they are classes the probabilities `[n, classes]`."""

    @abstractmethod
    def shares(self, outputs: Tensor) -> Tensor:
        """What a task reads that takes over the probabilities."""


def output_form(task: Task) -> OutputForm:
    """The form that the task's kind and loss make."""
    match task.kind:
        case "classify":
            forms: dict[str, Callable[[Task], OutputForm]] = {
                "ce": Softmax, "bce": Sigmoid, "ordinal": Thresholds, "mse": Share
            }  # fmt: skip
            return forms[task.loss_name](task)
        case "regress":
            return Number(task)
        case "ordinal":
            return Thresholds(task)
        case "multilabel":
            return Labels(task)
        case "tag":
            return Tags(task)
        case _:
            assert_never(task.kind)


# --- one of several classes ----------------------------------------------------------------------


class ClassForm(OutputForm):
    """The answer is the likeliest class; a temperature softens the probabilities."""

    @abstractmethod
    def probabilities(self, outputs: Tensor) -> Tensor:
        """Of every class, [n, classes], before the temperature."""

    def answers(self, outputs: Tensor) -> tuple[Tensor, Tensor | None]:
        shares, temperature = self.probabilities(outputs), self.task.temperature
        best = shares.argmax(1)
        return best, shares if temperature is None else tempered(shares, temperature)


class Softmax(ClassForm):
    """`ce`: a logit for each class."""

    @property
    def ignorant_loss(self) -> float:
        return math.log(self.task.classes)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        smoothing = self.task.smoothing
        return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=smoothing)

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(1)

    def shares(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(1)


class Sigmoid(ClassForm):
    """`bce`: the logit of the second of two classes."""

    @property
    def ignorant_loss(self) -> float:
        return math.log(2)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return _binary(outputs, targets[:, None], self.task.smoothing).squeeze(1)

    def probabilities(self, outputs: Tensor) -> Tensor:
        return torch.cat([(-outputs).sigmoid(), outputs.sigmoid()], 1)

    def shares(self, outputs: Tensor) -> Tensor:
        return outputs.sigmoid()


class Thresholds(ClassForm):
    """`ordinal`: of each class but the last, the logit of a higher one."""

    @property
    def ignorant_loss(self) -> float:
        return math.log(2)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        above = targets[:, None] > torch.arange(self.task.outputs, device=targets.device)
        return _binary(outputs, above, self.task.smoothing).mean(1)

    def probabilities(self, outputs: Tensor) -> Tensor:
        # P(y > k) must fall with k; where single logits disagree, the lower one holds.
        above = outputs.sigmoid().cummin(1).values
        one, none = torch.ones_like(above[:, :1]), torch.zeros_like(above[:, :1])
        return torch.cat([one, above], 1) - torch.cat([above, none], 1)

    def shares(self, outputs: Tensor) -> Tensor:
        return outputs.sigmoid()


class Share(ClassForm):
    """`mse` of two classes: the share of the second, learned as a number."""

    @property
    def ignorant_loss(self) -> float:
        return 1.0

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        truth = _smoothed(outputs, targets[:, None], self.task.smoothing)
        return F.mse_loss(outputs, truth, reduction="none").squeeze(1)

    def probabilities(self, outputs: Tensor) -> Tensor:
        positive = outputs.clamp(0, 1)
        return torch.cat([1 - positive, positive], 1)

    def shares(self, outputs: Tensor) -> Tensor:
        return outputs.clamp(0, 1)


# --- any number of labels ------------------------------------------------------------------------


class Labels(OutputForm):
    """`bce` of a multilabel task: a logit for each label, which holds where it is above 0.

    Targets are 0 or 1 for each label, and so are the answers.
    """

    @property
    def ignorant_loss(self) -> float:
        return math.log(2)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return _binary(outputs, targets, self.task.smoothing).mean(1)

    def answers(self, outputs: Tensor) -> tuple[Tensor, Tensor | None]:
        return (outputs > 0).long(), (outputs / (self.task.temperature or 1.0)).sigmoid()

    def shares(self, outputs: Tensor) -> Tensor:
        return outputs.sigmoid()


# --- tags of words -------------------------------------------------------------------------------


class Tags(Softmax):
    """A logit for each tag, word by word; `spans.decoding` makes spans of them."""

    @property
    def ignorant_loss(self) -> float:
        return math.log(self.task.outputs)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Of each text, the mean over its words; a text without any costs nothing."""
        there = targets >= 0
        text = there.nonzero()[:, 0]
        each = super().losses(outputs, targets[there].long())
        sums = each.new_zeros(len(targets)).index_add(0, text, each)
        return sums / there.sum(1).clamp(min=1)


# --- numbers -------------------------------------------------------------------------------------


class Number(OutputForm):
    """A number, as its share of the range; without one, of the scale, which it may leave."""

    @property
    def ignorant_loss(self) -> float:
        """At its far end."""
        return 1.0

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        low, high = self.task.ends
        truth = (targets.to(outputs.dtype) - low) / (high - low)
        match self.task.loss_name:
            case "mse":
                return F.mse_loss(outputs[:, 0], truth, reduction="none")
            case "mae":
                return F.l1_loss(outputs[:, 0], truth, reduction="none")
            case "pearson":
                squares = F.mse_loss(outputs[:, 0], truth, reduction="none")
                return squares + _uncorrelated(outputs[:, 0], truth)
            case _:
                return F.huber_loss(outputs[:, 0], truth, reduction="none", delta=_HUBER)

    def answers(self, outputs: Tensor) -> tuple[Tensor, Tensor | None]:
        low, high = self.task.ends
        shares = outputs[:, 0] if self.task.range is None else outputs[:, 0].clamp(0, 1)
        return low + shares * (high - low), None

    def shares(self, outputs: Tensor) -> Tensor:
        return outputs.clamp(0, 1)


# --- what several forms compute ------------------------------------------------------------------


def tempered(probabilities: Tensor, temperature: float) -> Tensor:
    """The probabilities at this temperature: their order is the same."""
    return (probabilities.clamp(min=SMALLEST).log() / temperature).softmax(1)


def _uncorrelated(predicted: Tensor, truth: Tensor) -> Tensor:
    """Terms whose mean is 1 - r, Pearson's of these examples; nearly 1 where one is constant."""
    a, b = (x - x.mean() for x in (predicted, truth))
    spread = (a.square().mean() * b.square().mean()).clamp(min=1e-6).sqrt()
    return 1 - a * b / spread


def _binary(logits: Tensor, truth: Tensor, smoothing: float) -> Tensor:
    """Binary cross-entropy of each logit."""
    smooth = _smoothed(logits, truth, smoothing)
    return F.binary_cross_entropy_with_logits(logits, smooth, reduction="none")


def _smoothed(outputs: Tensor, truth: Tensor, smoothing: float) -> Tensor:
    """Targets 0 and 1, moved towards 1/2 by the smoothing."""
    return truth.to(outputs.dtype) * (1 - smoothing) + smoothing / 2
