"""The predictions of a run: one file per task and split, a line per row with all that was said."""

from __future__ import annotations

from typing import Any

from bough.evaluate import Predictions
from bough.rows import Rows
from bough.tasks import Task


def table(task: Task, rows: Rows, found: Predictions) -> tuple[list[str], list[list[Any]]]:
    """The file's header and lines: id, label if known, answer, and each class's probability."""
    labels = list(task.labels or ())
    header = ["id", *(["label"] if rows.labels is not None else []), "predicted"]
    header += [f"p({label})" for label in labels]
    lines = []
    for i, row in enumerate(rows.ids):
        value = found.values[i]
        said = labels[value] if labels else f"{value:.6f}"
        truth: list[Any] = []
        if rows.labels is not None:
            truth = [labels[int(rows.labels[i])] if labels else rows.labels[i]]
        shares = [] if found.probabilities is None else [f"{p:.6f}" for p in found.probabilities[i]]
        lines.append([row, *truth, said, *shares])
    return header, lines
