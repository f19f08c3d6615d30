"""The predictions of a run: one file per task and split, a line per row with all that was answered.

This module knows the file's form, for those who write it and those who read it.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np
from numpy.typing import NDArray

from bough.data.checked_rows import Rows
from bough.errors import UserError
from bough.recipe.kinds import Kind
from bough.recipe.tasks import Task
from bough.runs.run_dir import Run
from bough.safe_text import from_sheet, sheet_cell
from bough.scoring.statistics import Floats

if TYPE_CHECKING:  # reading them must not load torch
    from bough.scoring.metrics import Predictions


def table(task: Task, rows: Rows, predictions: Predictions) -> tuple[list[str], list[list[Any]]]:
    """The file's header and lines: id, label if known, answer, and each class's probability."""
    header = ["id", *(["label"] if rows.labels is not None else []), "predicted"]
    header += [f"p({label})" for label in task.labels or ()]
    probabilities = predictions.probabilities
    lines = []
    for i, row in enumerate(rows.ids):
        truth = [] if rows.labels is None else [_cell(task, rows.labels[i])]
        answer = _cell(task, predictions.values[i], digits=6)
        shares = [] if probabilities is None else [f"{p:.6f}" for p in probabilities[i]]
        lines.append([sheet_cell(row), *truth, answer, *shares])
    return header, lines


def _cell(task: Task, label: Any, digits: int | None = None) -> Any:
    """A label or an answer as the file has it; a number as it is, or with so many digits."""
    match task.kind:
        case "classify":
            return sheet_cell((task.labels or ())[int(label)])
        case "regress":
            return label if digits is None else f"{label:.{digits}f}"
        case _:
            assert_never(task.kind)


def _labels(kind: Kind, cells: Sequence[str], labels: Sequence[str]) -> NDArray[Any]:
    """What `_cell` wrote, of all rows."""
    match kind:
        case "classify":
            place = {label: i for i, label in enumerate(labels)}
            return np.array([place[from_sheet(cell)] for cell in cells])
        case "regress":
            return _numbers(cells)
        case _:
            assert_never(kind)


@dataclass(frozen=True)
class Answers:
    """One run's answers to one task, as its predictions file has them."""

    kind: Kind
    ids: list[str]
    truth: NDArray[Any]  # class indices, or numbers
    said: NDArray[Any]
    labels: tuple[str, ...]  # empty for numbers
    probabilities: Floats | None

    def content(self) -> tuple[bytes, ...]:
        """All that was answered, to the last digit of the file."""
        shares = b"" if self.probabilities is None else self.probabilities.tobytes()
        return self.said.tobytes(), shares

    @classmethod
    def read(cls, run: Run, task: str, split: str, kind: Kind) -> Answers:
        file = run.folder / "predictions" / f"{task}-{split}.csv"
        try:
            with open(file, encoding="utf-8", newline="") as lines:
                header, *rows = csv.reader(lines)
        except (OSError, ValueError, csv.Error):
            raise UserError(f"{file}: no such predictions, or not readable; train anew") from None
        if "label" not in header:
            raise UserError(
                f"{file}: the {split} rows have no labels to judge by; take another split"
            )
        if not rows or any(len(row) != len(header) for row in rows):
            raise UserError(f"{file}: cut short or not a table; train the run anew")
        columns = dict(zip(header, zip(*rows, strict=True), strict=True))
        labels = tuple(name[2:-1] for name in header if name.startswith("p("))
        try:
            ids = list(map(from_sheet, columns["id"]))
            truth, said = (_labels(kind, columns[c], labels) for c in ("label", "predicted"))
            shares = [_numbers(columns[f"p({label})"]) for label in labels]
            probabilities = np.array(shares).T if labels else None
            return cls(kind, ids, truth, said, labels, probabilities)
        except (KeyError, ValueError) as fault:
            raise UserError(f"{file}: not a predictions file ({fault})") from None


def _numbers(cells: Sequence[str]) -> Floats:
    values = np.array(cells, float)
    if not np.isfinite(values).all():
        raise ValueError("a number that is not finite")
    return values
