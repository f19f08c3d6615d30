"""What judging has found: as numbers, and as the tables that a person reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from bough.runs.console import in_plain_text, score_table, titled_table
from bough.safe_text import shown
from bough.scoring.classes import Counts, most_confused

WIDEST = 12  # classes of a confusion table; of more, only the commonest mistakes are shown
Classes = dict[str, dict[str, float | int]]


@dataclass(frozen=True)
class Evaluation:
    """How a model answers labelled rows; `print` shows it as `bough eval` does.

    Attributes:
        scores: As a run's `scores[split]`: each task's metrics under `tasks`, and both means.
        confusion: Of tasks with one class per row, rows by true class (down) and answer (across).
        labels: The classes of these tasks, in the order of `confusion`.
        classes: Precision, recall, F1 and rows of each class or label of each task that has some.
        spans: Of each tag task, precision, recall, F1 and number of spans of each label.

    Example:
        >>> found = bough.evaluate("runs/first")
        >>> sorted(found.classes["sentiment"]["positive"])
        ['f1', 'precision', 'recall', 'rows']
    """

    scores: dict[str, Any]
    confusion: dict[str, Counts]
    labels: dict[str, tuple[str, ...]]
    classes: dict[str, Classes]
    spans: dict[str, Classes]
    # For those who read it: which rows these are, and what speaks against their scores.
    title: str = field(default="", repr=False, compare=False)
    caveats: tuple[str, ...] = field(default=(), repr=False, compare=False)

    def most_confused(self, task: str, most: int = 10) -> list[tuple[str, str, int]]:
        """A task's commonest mistakes: the true class, the answer, and how often."""
        return most_confused(self.confusion[task], self.labels[task], most)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the scores, with each task's classes and its confusion table beside them."""
        tasks = {name: dict(scores) for name, scores in self.scores["tasks"].items()}
        for name, classes in self.classes.items():
            tasks[name]["classes"] = classes
        for name, counts in self.confusion.items():
            tasks[name]["confusion"] = counts.tolist()
        for name, spans in self.spans.items():
            tasks[name]["spans"] = spans
        return {**self.scores, "tasks": tasks}

    def __str__(self) -> str:
        return in_plain_text(self)

    def __rich__(self) -> Group:
        """As a console of `rich` prints it."""
        caveats = (Text(shown(sentence)) for sentence in self.caveats)
        return Group(score_table(self.title, self.scores), *caveats, *self._class_tables())

    def _class_tables(self) -> Iterator[RenderableType]:
        """Of each task every class, and what was taken for what; of a tag task each label."""
        for task, spans in self.spans.items():
            yield _each_class(task, "label", "spans", spans)
        for task, classes in self.classes.items():
            yield _each_class(task, "class", "rows", classes)
            labels = self.labels.get(task, ())
            if not labels:  # any number of them: none is taken for another
                continue
            if len(labels) <= WIDEST:
                table = zip(labels, self.confusion[task].tolist(), strict=True)
                counts = [[label, *(f"{count:,}" for count in row)] for label, row in table]
                title = f"{task}: true class (down), answer (across)"
                yield titled_table(title, ["", *labels], counts)
            elif mistakes := self.most_confused(task):
                most = [[truth, said, f"{count:,}"] for truth, said, count in mistakes]
                title = f"{task}: the commonest mistakes"
                yield titled_table(title, ["true class", "answer", "rows"], most)


def _each_class(task: str, what: str, of: str, classes: Mapping[str, Any]) -> RenderableType:
    measures = ("precision", "recall", "f1")
    rows = [
        [name, *(f"{own[measure]:.3f}" for measure in measures), f"{own[of]:,}"]
        for name, own in classes.items()
    ]
    return titled_table(task, [what, *measures, of], rows)
