"""Answers as columns: what a frame is made of, and what a CSV file of answers has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from bough.inference.answers import Answer
from bough.recipe.tasks import Task


def names(name: str, task: Task) -> list[str]:
    """The columns of a task's answers."""
    match task.kind:
        case "classify" | "ordinal":
            return [name, f"{name}.score"]
        case "regress" | "multilabel":
            return [name]
        case "tag":
            return [name]
        case _:
            assert_never(task.kind)


def cells(answered: Mapping[str, Answer]) -> dict[str, str | float | list[str] | None]:
    """One text's answers by column: a task's label, labels, number or, as JSON, spans; and as
    TASK.score the label's probability."""
    out: dict[str, str | float | list[str] | None] = {}
    for task, answer in answered.items():
        if answer.spans is not None:
            plain = answer.plain()["spans"]
            out[task] = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
            continue
        out[task] = answer.label if answer.value is None else answer.value
        if answer.labels is not None:
            out[task] = list(answer.labels)
        if answer.score is not None:
            out[f"{task}.score"] = answer.score
    return out


def columns(answers: Iterable[Mapping[str, Answer]]) -> dict[str, list[Any]]:
    """The answers to several texts as columns of equal length, for a frame.

    Args:
        answers: What `model.predict` gives for a list of texts.

    Returns:
        Of each task a column with its labels (lists of them, where a text may have several),
        numbers or spans (as JSON), and one `TASK.score` with the labels' probabilities; None where
        a text was not asked about. `pandas.DataFrame(...)` and `polars.DataFrame(...)` take it as
        it is.

    Example:
        >>> model = bough.load("runs/first")
        >>> table = bough.columns(model.predict(["A fine film.", "Not for me."]))
        >>> list(table), len(table["sentiment"])
        (['sentiment', 'sentiment.score'], 2)
    """
    rows = [cells(answered) for answered in answers]
    every = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in every}
