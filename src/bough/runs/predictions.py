"""The predictions of a run: one file per task and split, a line per row with all that was answered.

This module knows the file's form, for those who write it and those who read it.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bough.data.checked_rows import Rows
from bough.errors import UserError
from bough.recipe.tasks import Task
from bough.runs.run_dir import Run
from bough.safe_text import from_sheet, sheet_cell
from bough.scoring.statistics import Floats

if TYPE_CHECKING:  # reading them must not load torch
    from bough.scoring.metrics import Predictions


def table(task: Task, rows: Rows, predictions: Predictions) -> tuple[list[str], list[list[Any]]]:
    """The file's header and lines: id, label if known, answer, and each class's probability."""
    labels = [sheet_cell(label) for label in task.labels or ()]
    header = ["id", *(["label"] if rows.labels is not None else []), "predicted"]
    header += [f"p({label})" for label in task.labels or ()]
    probabilities = predictions.probabilities
    lines = []
    for i, row in enumerate(rows.ids):
        value = predictions.values[i]
        answer = labels[value] if labels else f"{value:.6f}"
        truth: list[Any] = []
        if rows.labels is not None:
            truth = [labels[int(rows.labels[i])] if labels else rows.labels[i]]
        shares = [] if probabilities is None else [f"{p:.6f}" for p in probabilities[i]]
        lines.append([sheet_cell(row), *truth, answer, *shares])
    return header, lines


@dataclass(frozen=True)
class Answers:
    """One run's answers to one task, as its predictions file has them."""

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
    def read(cls, run: Run, task: str, split: str) -> Answers:
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
            if not labels:
                truth, said = (_numbers(columns[c]) for c in ("label", "predicted"))
                return cls(ids, truth, said, (), None)
            place = {label: i for i, label in enumerate(labels)}
            truth, said = (
                np.array([place[from_sheet(cell)] for cell in columns[column]])
                for column in ("label", "predicted")
            )
            shares = np.array([_numbers(columns[f"p({label})"]) for label in labels]).T
            return cls(ids, truth, said, labels, shares)
        except (KeyError, ValueError) as fault:
            raise UserError(f"{file}: not a predictions file ({fault})") from None


def _numbers(cells: Sequence[str]) -> Floats:
    values = np.array(cells, float)
    if not np.isfinite(values).all():
        raise ValueError("a number that is not finite")
    return values
