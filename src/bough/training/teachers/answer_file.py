"""A file of soft answers: texts, and for each the probabilities of all classes, or a number.

Either a table with a column `p(CLASS)` per class, or `value`; or the JSON lines that `bough predict
--keep` writes, where a column of the task's name holds the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bough.data.prepared.streams import open_table
from bough.data.tables import Table, Wanted
from bough.errors import UserError, listed, shorten
from bough.recipe.labels import class_name, number
from bough.recipe.tasks import Task
from bough.recipe.teacher import Teacher
from bough.training.teachers.soft_answers import SoftAnswers, other_classes

VALUE = "value"


def read_answers(name: str, task: Task, teacher: Teacher, texts: Sequence[tuple[str, ...]],
                 root: Path) -> SoftAnswers:  # fmt: skip
    """The file's answers to these texts, each of which must be there."""
    assert teacher.answers is not None
    theirs = list(teacher.labels or task.labels or ())
    column, source = teacher.task or name, teacher.answers

    def opened(classes: Sequence[str]) -> Table:
        wanted = Wanted((*task.columns, *map(_column, classes), VALUE, column), "", False)
        return open_table(source, wanted, root, f"the teacher of {name}")

    table = opened(theirs)
    for text in task.columns:
        if text not in table.names:
            raise UserError(
                f"{table.source}: has no column {text!r} of the texts; with `bough predict` they "
                f"are kept by --keep {text}"
            )
    labels = _labels(task, table, column)
    called = None
    if labels is not None:
        where = f"task {name!r}: its teacher {teacher.source}"
        if task.labels is None:
            raise UserError(f"{where} answers with classes, and the task with a number")
        called = [label for own in theirs if (label := _written(own, theirs, labels)) is not None]
        if len(called) < len(theirs):
            raise other_classes(where, labels, theirs)
        if called != theirs:
            table = opened(called)  # only now is it known what its columns are called
    found = dict(_rows(task, table, column, called))
    missing = [text for text in texts if text not in found]
    if missing:
        raise UserError(
            f"task {name!r}: its teacher {table.source} has no answer to {len(missing):,} of "
            f"{len(texts):,} texts, the first {shorten(' | '.join(missing[0]))}"
        )
    shares = torch.tensor([found[text] for text in texts])
    return SoftAnswers(shares, None if labels is None else tuple(theirs), task.range)


def _written(label: str, theirs: Sequence[str], labels: Sequence[str]) -> str | None:
    """How the file writes this class: just so, or in another case that is no other class's."""
    if label in labels:
        return label
    same = [[n for n in names if n.casefold() == label.casefold()] for names in (theirs, labels)]
    return same[1][0] if len(same[0]) == len(same[1]) == 1 else None


def _column(label: str) -> str:
    return f"p({label})"


def _labels(task: Task, table: Table, column: str) -> tuple[str, ...] | None:
    """All classes that the file has; None where it has numbers."""
    if column in table.columns:
        cells = [cell for cell in table.columns[column] if isinstance(cell, Mapping)]
        if cells:
            shares = cells[0].get("probabilities")
            return tuple(map(class_name, shares)) if isinstance(shares, Mapping) else None
    named = tuple(name[2:-1] for name in table.names if name[:2] == "p(" and name[-1:] == ")")
    if not named and VALUE not in table.names:
        expected = listed([_column(label) for label in task.labels or ()]) or VALUE
        raise UserError(
            f"{table.source}: has neither columns of answers ({expected}) nor one {column!r} that "
            "`bough predict` wrote as JSON lines"
        )
    return named or None


def _rows(
    task: Task, table: Table, column: str, labels: Sequence[str] | None
) -> Iterator[tuple[tuple[str, ...], list[float]]]:
    texts = [table.columns[name] for name in task.columns]
    for at, line in enumerate(table.lines):
        said: Any = table.columns.get(column, [None] * len(table.lines))[at]
        if isinstance(said, Mapping):
            by_class = {class_name(k): v for k, v in (said.get("probabilities") or {}).items()}
            cells = [by_class.get(label) for label in labels] if labels else [said.get(VALUE)]
        else:
            names = [_column(label) for label in labels] if labels else [VALUE]
            cells = [table.columns[name][at] if name in table.columns else None for name in names]
        numbers = [number(cell) for cell in cells]
        place = f"{table.source} {table.unit} {line}"
        answer = [value for value in numbers if value is not None]
        if len(answer) < len(numbers):
            wrong = cells[numbers.index(None)]
            raise UserError(f"{place}: the answer holds {shorten(wrong)}; expected numbers")
        several = task.kind == "multilabel"
        outside = labels and (min(answer) < 0 or max(answer) > 1.02)
        if outside or (labels and not several and not 0.98 <= sum(answer) <= 1.02):
            expected = "each from 0 to 1" if several else "such as sum to 1"
            raise UserError(
                f"{place}: the probabilities are {shorten(answer)}; expected {expected}"
            )
        yield tuple(str(column[at]).strip() for column in texts), answer
