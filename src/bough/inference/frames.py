"""Frames to be answered: each row by every task whose text columns are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bough.data.tokens import Text, text_of
from bough.errors import UserError, listed, nearest, shorten
from bough.recipe.tasks import Task

Asked = tuple[Text, tuple[str, ...]]  # a text, and the tasks that answer it


def asked_of(
    columns: Mapping[str, Sequence[object]], tasks: Mapping[str, Task], chosen: Sequence[str] | None
) -> list[list[Asked]]:
    """Of each row the texts that its tasks read."""
    able = _able(columns, tasks, chosen)
    forms: dict[tuple[str, ...], list[str]] = {}  # tasks that read the same columns share a text
    for name, task in able.items():
        forms.setdefault(task.columns, []).append(name)
    rows = len(columns[next(iter(forms))[0]])
    return [
        [
            (text_of([_cell(columns[c][row], c, row) for c in read]), tuple(names))
            for read, names in forms.items()
        ]
        for row in range(rows)
    ]


def _able(
    columns: Mapping[str, object], tasks: Mapping[str, Task], chosen: Sequence[str] | None
) -> dict[str, Task]:
    for name in chosen or ():
        for column in tasks[name].columns:
            if column not in columns:
                raise UserError(
                    f"the frame has no column {column!r}, which task {name!r} reads, but "
                    f"{listed(list(columns))}{nearest(column, columns)}; rename its column, or "
                    "give the texts as a list"
                )
    able = {n: tasks[n] for n in chosen or tasks if set(tasks[n].columns) <= set(columns)}
    if not able:
        each = "; ".join(f"{name}: {', '.join(task.columns)}" for name, task in tasks.items())
        raise UserError(
            f"the frame has the text columns of no task, but {listed(list(columns))}; expected "
            f"{each}; rename its columns, or give the texts as a list"
        )
    return able


def _cell(cell: object, column: str, row: int) -> str:
    if not isinstance(cell, str):
        raise UserError(
            f"row {row + 1} of the frame, column {column!r}: {shorten(cell)} is no text; fix or "
            "remove the row"
        )
    return cell
