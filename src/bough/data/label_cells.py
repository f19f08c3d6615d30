"""A task's label cells, by its kind: what they say of the task, how each is read and written.

A label is what a row keeps of its cell: the index of a class, a number, or spans of the text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, assert_never

from bough.errors import UserError, listed, nearest, shorten
from bough.recipe.labels import class_name, in_order, is_missing, number
from bough.recipe.tasks import Task
from bough.spans.cells import SpanError, as_json, labels_of, spans_of
from bough.spans.schemes import Span

Label = int | float | tuple[Span, ...]


class CellError(Exception):
    """Why a cell cannot be used."""


class LabelCells(ABC):
    """The label cells of one task."""

    def __init__(self, task: Task):
        self.task = task

    def missing(self, cell: object) -> bool:
        """Whether the cell holds no label."""
        return is_missing(cell, self.task.labels or ())

    @abstractmethod
    def found(self, name: str, cells: Sequence[Any], classes: Sequence[str] | None) -> Task:
        """The task with what these train cells say about it; `classes` if the set itself names
        them."""

    @abstractmethod
    def read(self, cell: Any, text: Any = None) -> Label:
        """The label that a cell holds, of a row whose first text's cell is `text`; a CellError
        says what is wrong with it."""

    @abstractmethod
    def written(self, label: Any) -> str:
        """A label as a file has it: `read` gives it back."""

    @abstractmethod
    def classes(self, label: Any) -> tuple[int, ...]:
        """The classes that a label names."""

    @abstractmethod
    def stratum(self, label: Any) -> Hashable:
        """Rows of one stratum give their share, where some are set aside."""


def label_cells(task: Task) -> LabelCells:
    """What the task's kind makes of its label cells."""
    match task.kind:
        case "classify":
            return ClassCells(task)
        case "regress":
            return NumberCells(task)
        case "tag":
            return SpanCells(task)
        case _:
            assert_never(task.kind)


class ClassCells(LabelCells):
    """One class in each cell; the label is its index."""

    def __init__(self, task: Task):
        super().__init__(task)
        self.names = task.label_values or task.labels or ()
        # A file may write a class by its name, too; what the recipe says of a value goes first.
        parts = (task.labels or (), self.names)
        self.index = {name: n for part in parts for n, name in enumerate(part)}

    def found(self, name: str, cells: Sequence[Any], classes: Sequence[str] | None) -> Task:
        if classes is None:
            seen = in_order(
                class_name(cell) for cell in cells if isinstance(cell, str | int | float)
            )
            _look_like_classes(name, seen, len(cells))
            classes = seen
        return self.task.with_labels(classes)

    def missing(self, cell: object) -> bool:
        return is_missing(cell, self.index)

    def read(self, cell: Any, text: Any = None) -> int:
        if self.missing(cell):
            raise CellError(f"the label is empty; expected one of {listed(self.names)}")
        place = self.index.get(class_name(cell)) if isinstance(cell, str | int | float) else None
        if place is None:
            raise CellError(
                f"the label is no class of this task; expected one of {listed(self.names)}"
                + nearest(str(cell), self.names)
            )
        return place

    def written(self, label: Any) -> str:
        return (self.task.labels or ())[int(label)]

    def classes(self, label: Any) -> tuple[int, ...]:
        return (int(label),)

    def stratum(self, label: Any) -> Hashable:
        return int(label)


class NumberCells(LabelCells):
    """A number in each cell, within the range."""

    def found(self, name: str, cells: Sequence[Any], classes: Sequence[str] | None) -> Task:
        """A regress task must know its range by itself."""
        values = [value for value in map(number, cells) if value is not None]
        if not values:
            raise UserError("no label is a number; name another column or kind classify")
        low, high = min(values), max(values)
        raise UserError(
            f"a regress task needs its `range`; the labels here run from {low:g} to {high:g}, so "
            f"set tasks.{name}.range to [{low:g}, {high:g}] or to the whole scale"
        )

    def read(self, cell: Any, text: Any = None) -> float:
        assert self.task.range is not None
        low, high = self.task.range
        expected = f"expected a number from {low:g} to {high:g}"
        if self.missing(cell):
            raise CellError(f"the label is empty; {expected}")
        value = number(cell)
        if value is None:
            raise CellError(f"the label is no number; {expected}")
        if not low <= value <= high:
            raise CellError(f"the label is outside the range; {expected}")
        return value

    def written(self, label: Any) -> str:
        return repr(float(label))

    def classes(self, label: Any) -> tuple[int, ...]:
        return ()

    def stratum(self, label: Any) -> Hashable:
        return 0


class SpanCells(LabelCells):
    """Spans of the row's text in each cell; a row without any has an empty list."""

    def __init__(self, task: Task):
        super().__init__(task)
        values = task.label_values or task.labels or ()
        self.names = dict(zip(values, task.labels or (), strict=True))
        self.names |= {name: name for name in task.labels or () if name not in self.names}

    def found(self, name: str, cells: Sequence[Any], classes: Sequence[str] | None) -> Task:
        labels = sorted({label for cell in cells for label in labels_of(cell)})
        if not labels:
            raise UserError("no train row holds a span; there is nothing to learn")
        return self.task.with_labels(labels)

    def missing(self, cell: object) -> bool:
        return cell is None or cell != cell or (isinstance(cell, str) and not cell.strip())

    def read(self, cell: Any, text: Any = None) -> tuple[Span, ...]:
        if self.missing(cell):
            raise CellError("the label is empty; expected a list of spans, or [] for none")
        try:
            spans = spans_of(cell, text)
        except SpanError as fault:
            raise CellError(str(fault)) from None
        for span in spans:
            if span.label not in self.names:
                raise CellError(
                    f"the span [{span.start}, {span.end}) has the label {shorten(span.label)}; "
                    f"expected one of {listed(list(self.names))}" + nearest(span.label, self.names)
                )
        return tuple(span._replace(label=self.names[span.label]) for span in spans)

    def written(self, label: Any) -> str:
        return as_json(label)

    def classes(self, label: Any) -> tuple[int, ...]:
        place = {name: number for number, name in enumerate(self.task.labels or ())}
        return tuple(place[span.label] for span in label)

    def stratum(self, label: Any) -> Hashable:
        return bool(label)


def _look_like_classes(name: str, classes: Sequence[str], rows: int) -> None:
    if len(classes) < 2:
        seen = f"only the class {classes[0]!r}" if classes else "no label at all"
        raise UserError(f"the train rows hold {seen}; a classify task needs two or more")
    if len(classes) > 20 and any(value != int(value) for value in _finite(classes)):
        raise UserError(
            f"the labels are numbers such as {listed(classes, 3)}; set tasks.{name}.kind to "
            "regress, or list the classes in `labels` if they are meant"
        )
    if len(classes) > 50 and len(classes) > rows / 2:
        raise UserError(
            f"{len(classes):,} different labels in {rows:,} rows look like no classes; name "
            "another column, or list them in `labels` if they are meant"
        )


def _finite(names: Sequence[str]) -> list[float]:
    """The names as numbers if all of them are, else nothing."""
    values = [number(name) for name in names]
    return [value for value in values if value is not None] if None not in values else []
