"""Columns in and out: frames to be answered, row by row, and answers as a frame or a CSV file has
them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, assert_never

from bough.data.tokens import Text, text_of
from bough.errors import UserError, listed, nearest, shorten
from bough.inference.answers import Answer
from bough.recipe.tasks import Task

Asked = tuple[Text, tuple[str, ...]]  # a text, and the tasks that answer it
RENAME = "name those to read by `text`, or rename them"


def names(name: str, task: Task) -> list[str]:
    """The columns of a task's answers."""
    match task.kind:
        case "classify" | "ordinal":
            return [name, f"{name}.score"]
        case "regress" | "multilabel" | "tag":
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


# --- columns to be read ---------------------------------------------------------------------------


def fitting(
    able: Mapping[str, Task], source: str, there: Collection[str], how: str, labels: bool = False
) -> dict[str, Task]:
    """The tasks whose text columns, and with `labels` whose label's, are there; `how` says what to
    do where there are none."""

    def needed(task: Task) -> tuple[str, ...]:
        return (*task.columns, *task.label_columns) if labels else task.columns

    asked = {name: task for name, task in able.items() if set(needed(task)) <= set(there)}
    if not asked:
        each = "; ".join(f"{name}: {', '.join(needed(task))}" for name, task in able.items())
        what = "text and label" if labels else "text"
        raise UserError(f"{source}: has the {what} columns of no task; expected {each}; {how}")
    return asked


def readers(
    tasks: Mapping[str, Task], chosen: Sequence[str], text: Sequence[str], label: str = ""
) -> dict[str, Task]:
    """The tasks that may answer, of those chosen or of all, each with the columns it is to read."""
    if len(text) > 2:
        raise UserError("text: a row has one text, or two; name at most two columns")
    asked = {name: tasks[name] for name in chosen or tasks}
    fit = {n: t for n, t in asked.items() if not text or t.paired == (len(text) == 2)}
    if not fit or (chosen and len(fit) < len(asked)):
        wrong = next(name for name in asked if name not in fit)
        what = "a pair: name two columns" if tasks[wrong].paired else "one text: name one"
        raise UserError(f"text {', '.join(text)}: task {wrong!r} judges {what}")
    read: dict[str, Any] = {"label": label} if label else {}
    if text:
        read["text"] = text[0] if len(text) == 1 else tuple(text)
    return {name: task.model_copy(update=read) for name, task in fit.items()}


def asked_of(
    frame: Mapping[str, Sequence[object]],
    tasks: Mapping[str, Task],
    chosen: Sequence[str] = (),
    text: Sequence[str] = (),
) -> list[list[Asked]]:
    """Of each row of a frame's columns the texts that its tasks read."""
    able = readers(tasks, chosen, text)
    for name, task in able.items() if chosen or text else ():
        for column in task.columns:
            if column not in frame:
                raise UserError(
                    f"the frame has no column {column!r}, which task {name!r} reads, but "
                    f"{listed(list(frame))}{nearest(column, frame)}; {RENAME}"
                )
    able = fitting(able, "the frame", frame, RENAME)
    forms: dict[tuple[str, ...], list[str]] = {}  # tasks that read the same columns share a text
    for name, task in able.items():
        forms.setdefault(task.columns, []).append(name)
    rows = len(frame[next(iter(forms))[0]])
    return [
        [
            (text_of([_cell(frame[column][row], column, row) for column in read]), tuple(names))
            for read, names in forms.items()
        ]
        for row in range(rows)
    ]


def _cell(cell: object, column: str, row: int) -> str:
    if not isinstance(cell, str):
        raise UserError(
            f"row {row + 1} of the frame, column {column!r}: {shorten(cell)} is no text; fix or "
            "remove the row"
        )
    return cell
