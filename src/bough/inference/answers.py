"""What a task says about a text, by its kind: from a head's numbers to words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

from torch import Tensor

from bough.model.losses import answers
from bough.recipe.tasks import Task
from bough.spans.decoding import marked
from bough.spans.words import Words


@dataclass(frozen=True)
class Entity:
    """A span of a text that a task has marked.

    Attributes:
        start: Its first character, counted from 0.
        end: The character behind its last: `text[start:end]` is the span.
        label: What it is.
        score: The probability that just these words are a span of just this label.
        text: The span itself.

    Example:
        >>> bough.Entity(7, 12, "place", 0.5, "Paris").label
        'place'
    """

    start: int
    end: int
    label: str
    score: float
    text: str


@dataclass(frozen=True)
class Answer:
    """What a task says about a text: a class or labels with probabilities, a number, or spans.

    Attributes:
        label: The class, by its name; None where the task answers otherwise.
        labels: The labels that hold, by their names; None where the task is not of that kind.
        score: The probability of the label.
        probabilities: Of every class, by its name.
        value: The number, within the label's range if it has one; None where the task answers
            otherwise.
        spans: What a tag task has marked, in the text's order; None where the task marks none.
        cut: The text is longer than the model reads; only its beginning was judged.
        abstained: The label's probability is below what was asked for, so there is no label; or
            that of a span, or of one of several labels, which was left out.

    Example:
        >>> bough.Answer(value=4.25).plain()
        {'value': 4.25}
    """

    label: str | None = None
    score: float | None = None
    probabilities: Mapping[str, float] | None = None
    value: float | None = None
    spans: tuple[Entity, ...] | None = None
    cut: bool = False
    abstained: bool = False
    labels: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        """Without what does not apply."""
        told = (f"{k}={v!r}" for k, v in vars(self).items() if v is not None and v is not False)
        return f"{type(self).__name__}({', '.join(told)})"

    def unless_below(self, least: float) -> Answer:
        """The same, but without its label, or the labels and spans, of a smaller probability."""
        if self.spans is not None:
            spans = tuple(span for span in self.spans if not span.score < least)
            whole = len(spans) == len(self.spans)
            return self if whole else replace(self, spans=spans, abstained=True)
        if self.labels is not None:
            shares = self.probabilities or {}
            labels = tuple(label for label in self.labels if not shares[label] < least)
            whole = len(labels) == len(self.labels)
            return self if whole else replace(self, labels=labels, abstained=True)
        if self.score is None or self.score >= least:
            return self
        return replace(self, label=None, abstained=True)

    def plain(self) -> dict[str, Any]:
        """For JSON: without what does not apply, and no more digits than single precision has."""
        return {k: _rounded(v) for k, v in vars(self).items() if v is not None and v is not False}

    @property
    def number(self) -> float | None:
        """What it rests on: the value, the label's probability, the least of its spans', or the sum
        of several labels', which is no number where one of them is none."""
        if self.spans is not None:
            return min((span.score for span in self.spans), default=self.score)
        if self.score is None and self.probabilities:
            return sum(self.probabilities.values())
        return self.score if self.value is None else self.value

    @property
    def finite(self) -> bool:
        """Whether that is a number at all: a model whose weights are broken answers nan."""
        return self.number is None or math.isfinite(self.number)


def answers_of(
    task: Task, outputs: Tensor, texts: Sequence[str] = (), words: Sequence[Words] = ()
) -> list[Answer]:
    """A task's outputs for several texts as answers; a tag task needs these, and their words."""
    values, probabilities = answers(task, outputs)
    labels = task.labels or ()
    match task.kind:
        case "classify" | "ordinal":
            assert probabilities is not None
            return [
                Answer(labels[best], shares[best], dict(zip(labels, shares, strict=True)))
                for best, shares in zip(values.tolist(), probabilities.tolist(), strict=True)
            ]
        case "multilabel":
            assert probabilities is not None
            return [
                Answer(
                    labels=tuple(label for label, holds in zip(labels, held, strict=True) if holds),
                    probabilities=dict(zip(labels, shares, strict=True)),
                )
                for held, shares in zip(values.tolist(), probabilities.tolist(), strict=True)
            ]
        case "regress":
            return [Answer(value=value) for value in values.tolist()]
        case "tag":
            assert probabilities is not None
            found = marked(task.tags, probabilities.numpy(), words)
            if not probabilities.isfinite().all():  # of a model whose weights are broken
                return [Answer(score=math.nan, spans=())] * len(texts)
            return [
                Answer(
                    spans=tuple(Entity(*s.span, s.score, text[s.span[0] : s.span[1]]) for s in own)
                )
                for text, own in zip(texts, found, strict=True)
            ]
        case _:
            assert_never(task.kind)


def in_words(task: Task) -> str:
    """What a task reads and answers, in a few words."""
    match task.kind:
        case "classify":
            answer = f"{task.classes} classes"
        case "ordinal":
            answer = f"{task.classes} classes in order"
        case "multilabel":
            answer = f"any of {task.classes} labels"
        case "regress" if task.range is None:
            answer = "a number"
        case "regress":
            answer = "a number from {:g} to {:g}".format(*task.range or (0, 1))
        case "tag":
            answer = f"spans, of {task.classes} {'label' if task.classes == 1 else 'labels'}"
        case _:
            assert_never(task.kind)
    return f"a pair, {answer}" if task.paired else answer


def _rounded(value: Any) -> Any:
    if isinstance(value, tuple):  # of labels, or of spans
        return [part if isinstance(part, str) else _rounded(vars(part)) for part in value]
    if isinstance(value, Mapping):
        return {name: _rounded(share) for name, share in value.items()}
    return round(value, 6) if isinstance(value, float) else value
