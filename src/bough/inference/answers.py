"""What a task says about a text, by its kind: from a head's numbers to words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_never

from torch import Tensor

from bough.model.losses import answers
from bough.recipe.tasks import Task


@dataclass(frozen=True)
class Answer:
    """What a task says about a text: a class with its probabilities, or a number.

    Attributes:
        label: The class, by its name; None where the task answers with a number.
        score: The probability of the label.
        probabilities: Of every class, by its name.
        value: The number, within the label's range; None where the task answers with a class.
        cut: The text is longer than the model reads; only its beginning was judged.
        abstained: The label's probability is below what was asked for, so there is no label.

    Example:
        >>> bough.Answer(value=4.25).plain()
        {'value': 4.25}
    """

    label: str | None = None
    score: float | None = None
    probabilities: Mapping[str, float] | None = None
    value: float | None = None
    cut: bool = False
    abstained: bool = False

    def unless_below(self, least: float) -> Answer:
        """The same, but without its label where that has a smaller probability."""
        if self.score is None or self.score >= least:
            return self
        return replace(self, label=None, abstained=True)

    def plain(self) -> dict[str, Any]:
        """For JSON: without what does not apply, and no more digits than single precision has."""
        return {k: _rounded(v) for k, v in vars(self).items() if v is not None and v is not False}

    @property
    def number(self) -> float | None:
        """What it rests on: the value, or the label's probability, if that is known."""
        return self.score if self.value is None else self.value

    @property
    def finite(self) -> bool:
        """Whether that is a number at all: a model whose weights are broken answers nan."""
        return self.number is None or math.isfinite(self.number)


def answers_of(task: Task, outputs: Tensor) -> list[Answer]:
    """A task's outputs for several texts as answers."""
    values, probabilities = answers(task, outputs)
    match task.kind:
        case "classify":
            assert probabilities is not None
            labels = task.labels or ()
            return [
                Answer(labels[best], shares[best], dict(zip(labels, shares, strict=True)))
                for best, shares in zip(values.tolist(), probabilities.tolist(), strict=True)
            ]
        case "regress":
            return [Answer(value=value) for value in values.tolist()]
        case _:
            assert_never(task.kind)


def in_words(task: Task) -> str:
    """What a task reads and answers, in a few words."""
    match task.kind:
        case "classify":
            answer = f"{task.classes} classes"
        case "regress":
            answer = "a number from {:g} to {:g}".format(*task.range or (0, 1))
        case _:
            assert_never(task.kind)
    return f"a pair, {answer}" if task.paired else answer


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(share) for name, share in value.items()}
    return round(value, 6) if isinstance(value, float) else value
