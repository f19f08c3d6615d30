"""The predictions of a run: one file per task and split, a line per row with all that was answered.

This module knows the file's form, for those who write it and those who read it.
"""

from __future__ import annotations

import csv
import json
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
from bough.spans.cells import as_json
from bough.spans.schemes import Span
from bough.spans.words import as_objects

if TYPE_CHECKING:  # reading them must not load torch
    from bough.scoring.metrics import Predictions


def table(task: Task, rows: Rows, predictions: Predictions) -> tuple[list[str], list[list[Any]]]:
    """The file's header and lines: id, label if known, answer, and each class's probability."""
    header = ["id", *(["label"] if rows.labels is not None else []), "predicted"]
    probabilities = predictions.probabilities
    if task.kind == "tag":
        probabilities = None  # each span has its own, in the answer
    header += [] if probabilities is None else [f"p({label})" for label in task.labels or ()]
    lines = []
    for i, row in enumerate(rows.ids):
        truth = [] if rows.labels is None else [written_label(task, rows.labels[i])]
        scores = () if predictions.scores is None else predictions.scores[i]
        answer = written_label(task, predictions.values[i], digits=6, scores=scores)
        shares = [] if probabilities is None else [f"{p:.6f}" for p in probabilities[i]]
        lines.append([sheet_cell(row), *truth, answer, *shares])
    return header, lines


def written_label(
    task: Task, label: Any, digits: int | None = None, scores: Sequence[float] = ()
) -> Any:
    """A label or an answer as the file has it; a number as it is, or with so many digits."""
    match task.kind:
        case "classify" | "ordinal":
            return sheet_cell((task.labels or ())[int(label)])
        case "multilabel":
            held = np.flatnonzero(label) if isinstance(label, np.ndarray) else label
            return json.dumps([(task.labels or ())[place] for place in held], ensure_ascii=False)
        case "regress":
            return label if digits is None else f"{label:.{digits}f}"
        case "tag":
            return as_json(label, scores)
        case _:
            assert_never(task.kind)


def _labels(kind: Kind, cells: Sequence[str], labels: Sequence[str]) -> NDArray[Any]:
    """What `_cell` wrote, of all rows."""
    match kind:
        case "classify" | "ordinal":
            place = {label: i for i, label in enumerate(labels)}
            return np.array([place[from_sheet(cell)] for cell in cells])
        case "multilabel":
            held = [set(json.loads(cell)) for cell in cells]
            if not all(names <= set(labels) for names in held):
                raise ValueError("a label that is none of the task's")
            return np.array([[int(label in names) for label in labels] for names in held])
        case "regress":
            return _numbers(cells)
        case "tag":
            return as_objects([tuple(Span(*part[:3]) for part in _spans(cell)) for cell in cells])
        case _:
            assert_never(kind)


@dataclass(frozen=True)
class Answers:
    """One run's answers to one task, as its predictions file has them."""

    kind: Kind
    ids: list[str]
    truth: NDArray[Any]  # class indices, numbers, 0 and 1 for each label, or tuples of spans
    said: NDArray[Any]
    labels: tuple[str, ...]  # empty for numbers and spans
    probabilities: Floats | None
    scores: NDArray[Any] | None = None  # of each row's spans

    @property
    def judged(self) -> tuple[NDArray[Any], NDArray[Any], int, Floats | None]:
        """What a score is made of: the answers, the truth, the classes, the probabilities."""
        return self.said, self.truth, len(self.labels), self.probabilities

    def word(self, value: Any) -> str:
        """A label or an answer in words."""
        match self.kind:
            case "classify" | "ordinal":
                return self.labels[int(value)]
            case "multilabel":
                return ", ".join(self.labels[place] for place in np.flatnonzero(value)) or "none"
            case "regress":
                return f"{value:g}"
            case "tag":
                spans = (f"{span.label} {span.start}-{span.end}" for span in value)
                return ", ".join(spans) or "none"
            case _:
                assert_never(self.kind)

    def content(self) -> tuple[bytes, ...]:
        """All that was answered, to the last digit of the file."""
        shares = b"" if self.probabilities is None else self.probabilities.tobytes()
        if self.scores is not None:
            return repr(self.said.tolist()).encode(), repr(self.scores.tolist()).encode()
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
            scores = None
            if kind == "tag":
                given = (_spans(cell) for cell in columns["predicted"])
                scores = as_objects([tuple(part[3] for part in parts) for parts in given])
            return cls(kind, ids, truth, said, labels, probabilities, scores)
        except (KeyError, ValueError, TypeError) as fault:
            raise UserError(f"{file}: not a predictions file ({fault})") from None


def _spans(cell: str) -> list[tuple[int, int, str, float]]:
    """What `as_json` wrote: begin, end, label and score of each."""
    return [
        (int(part["start"]), int(part["end"]), str(part["label"]), float(part.get("score", 1)))
        for part in json.loads(cell)
    ]


def _numbers(cells: Sequence[str]) -> Floats:
    values = np.array(cells, float)
    if not np.isfinite(values).all():
        raise ValueError("a number that is not finite")
    return values
