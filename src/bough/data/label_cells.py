"""A task's label cells, by its kind: what they say of the task, how each is read and written.

A label is what a row keeps of its cell: the index of a class, a number, the indices of labels, or
spans of the text.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from statistics import fmean
from typing import Any, assert_never

from bough.errors import UserError, listed, nearest, shorten
from bough.recipe.labels import class_name, in_order, is_missing, number
from bough.recipe.tasks import Task
from bough.spans.cells import SpanError, as_json, labels_of, spans_of
from bough.spans.schemes import Span

Label = int | float | tuple[int, ...] | tuple[Span, ...]
Counts = Sequence[int] | None


class CellError(Exception):
    """Why a cell cannot be used."""


def check_encodable(text: str) -> None:
    """A CellError where the text cannot be written to a file."""
    try:
        text.encode()
    except UnicodeEncodeError as fault:
        code = ord(text[fault.start])
        # Undecodable bytes were read as U+DC80 to U+DCFF.
        if 0xDC80 <= code <= 0xDCFF:
            raise CellError(
                f"byte 0x{code - 0xDC00:02x} is not UTF-8; save the file as UTF-8 "
                "(iconv -f latin1 -t utf-8, if it is Latin-1)"
            ) from None
        raise CellError(f"\\u{code:04x} is half a character; fix the text") from None


class LabelCells(ABC):
    """The label cells of one task."""

    def __init__(self, task: Task):
        self.task = task

    def missing(self, cell: object) -> bool:
        """Whether the cell holds no label."""
        return is_missing(cell, self.task.labels or ())

    @abstractmethod
    def found(
        self, name: str, cells: Sequence[Any], classes: Sequence[str] | None, counts: Counts = None
    ) -> Task:
        """The task with what these train cells say about it, each of which is there as often as
        `counts` says, or once; `classes` if the set itself names them."""

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
        case "ordinal":
            return OrderedCells(task)
        case "multilabel":
            return SetCells(task)
        case "tag":
            return SpanCells(task)
        case _:
            assert_never(task.kind)


SUGGESTED = 100  # different wrong names that are held against the right ones
NO_CLASS = "the label is no class of this task"


class NamedCells(LabelCells):
    """Cells that name classes, as the recipe calls them or as the files write them."""

    def __init__(self, task: Task):
        super().__init__(task)
        self.names = task.label_values or task.labels or ()
        # A file may write a class by its name, too; what the recipe says of a value goes first.
        parts = (task.labels or (), self.names)
        self.index = {name: n for part in parts for n, name in enumerate(part)}
        # Files write one truth as true, True or TRUE, and the recipe as any of them.
        for name, n in [*self.index.items()]:
            if name.lower() in ("true", "false"):
                ways = (name.lower(), name.title(), name.upper())
                self.index |= {way: n for way in ways if way not in self.index}
        self.near = _Nearest(self.names)

    def place(self, cell: Any) -> int:
        """The index of the class that a cell, or a part of one, names."""
        place = self.index.get(class_name(cell)) if isinstance(cell, str | int | float) else None
        if place is None:
            check_encodable(str(cell))
            raise CellError(
                f"{NO_CLASS}; expected one of {listed(self.names)}" + self.near(str(cell))
            )
        return place


class ClassCells(NamedCells):
    """One class in each cell; the label is its index."""

    def found(
        self, name: str, cells: Sequence[Any], classes: Sequence[str] | None, counts: Counts = None
    ) -> Task:
        if classes is None:
            classes = self.seen(cells)
            _look_like_classes(name, self.task.kind, classes, sum(counts or [1] * len(cells)))
        return self.task.with_labels(classes)

    def seen(self, cells: Sequence[Any]) -> tuple[str, ...]:
        """The classes that the cells name."""
        plain = (cell for cell in cells if isinstance(cell, str | int | float))
        return in_order(_writable(map(class_name, plain)))

    def missing(self, cell: object) -> bool:
        return is_missing(cell, self.index)

    def read(self, cell: Any, text: Any = None) -> int:
        if self.missing(cell):
            raise CellError(f"the label is empty; expected one of {listed(self.names)}")
        return self.place(cell)

    def written(self, label: Any) -> str:
        return (self.task.labels or ())[int(label)]

    def classes(self, label: Any) -> tuple[int, ...]:
        return (int(label),)

    def stratum(self, label: Any) -> Hashable:
        return int(label)


class OrderedCells(ClassCells):
    """One class in each cell, in an order: that of numbers is known, that of words is not."""

    def found(
        self, name: str, cells: Sequence[Any], classes: Sequence[str] | None, counts: Counts = None
    ) -> Task:
        there = classes or self.seen(cells)
        if len(there) > 1 and not _finite(there):
            raise UserError(
                f"the classes are words ({listed(there, 6)}), whose order is not known; set "
                f"tasks.{name}.labels to all of them, the lowest first"
            )
        return super().found(name, cells, classes, counts)


class SetCells(NamedCells):
    """Any number of labels in each cell: a JSON list, or names with a separator between them; or
    a column of 0 and 1 for each. The label is their indices, in order."""

    def found(
        self, name: str, cells: Sequence[Any], classes: Sequence[str] | None, counts: Counts = None
    ) -> Task:
        if not isinstance(self.task.label, str):
            return self.task.with_labels(self.task.label)
        if classes is None:
            named: set[str] = set()
            for cell in cells:
                try:
                    named |= set(map(class_name, self.parts(cell)))
                except CellError:  # said by its line when the rows are read
                    continue
            classes = in_order(_writable(named))
            _look_like_classes(name, self.task.kind, classes, sum(counts or [1] * len(cells)))
        return self.task.with_labels(classes)

    def missing(self, cell: object) -> bool:
        if isinstance(cell, tuple):
            return all(is_missing(part) for part in cell)
        return not isinstance(cell, list) and is_missing(cell)

    def read(self, cell: Any, text: Any = None) -> tuple[int, ...]:
        if self.missing(cell):
            raise CellError("the label is empty; write [] where none of them holds")
        if isinstance(cell, tuple):
            return tuple(n for n, part in enumerate(cell) if _holds(part))
        return tuple(sorted({self.place(part) for part in self.parts(cell)}))

    def parts(self, cell: Any) -> list[Any]:
        """The names in a cell."""
        if isinstance(cell, str) and cell.strip().startswith("["):
            try:
                cell = json.loads(cell)
            except (ValueError, RecursionError):
                raise CellError("the label is no JSON list; expected one like [1, 2]") from None
        if isinstance(cell, str):
            return [part for part in cell.split(self.task.separator) if part.strip()]
        parts = cell if isinstance(cell, list) else [cell]
        if not all(isinstance(part, str | int | float) for part in parts):
            raise CellError("expected names with a separator between them, or a list of names")
        return parts

    def written(self, label: Any) -> str:
        names = self.task.labels or ()
        return json.dumps([names[int(place)] for place in label], ensure_ascii=False)

    def classes(self, label: Any) -> tuple[int, ...]:
        return tuple(label)

    def stratum(self, label: Any) -> Hashable:
        return 0


class NumberCells(LabelCells):
    """A number in each cell, within the range if there is one."""

    def found(
        self, name: str, cells: Sequence[Any], classes: Sequence[str] | None, counts: Counts = None
    ) -> Task:
        numbers = list(map(number, cells))
        values = [value for value in numbers if value is not None]
        if not values:
            raise UserError("no label is a number; name another column or kind classify")
        if min(values) == max(values):
            raise UserError(f"all labels are {values[0]:g}; there is nothing to learn")
        often = counts or [1] * len(cells)
        weights = [n for n, value in zip(often, numbers, strict=True) if value is not None]
        return self.task.model_copy(update={"scale": _scale(values, weights)})

    def read(self, cell: Any, text: Any = None) -> float:
        low, high = self.task.range or (-math.inf, math.inf)
        within = "" if self.task.range is None else f" from {low:g} to {high:g}"
        expected = f"expected a number{within}"
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
        self.near = _Nearest(list(self.names))

    def found(
        self, name: str, cells: Sequence[Any], classes: Sequence[str] | None, counts: Counts = None
    ) -> Task:
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
                    f"expected one of {listed(list(self.names))}" + self.near(span.label)
                )
        return tuple(span._replace(label=self.names[span.label]) for span in spans)

    def written(self, label: Any) -> str:
        return as_json(label)

    def classes(self, label: Any) -> tuple[int, ...]:
        place = {name: number for number, name in enumerate(self.task.labels or ())}
        return tuple(place[span.label] for span in label)

    def stratum(self, label: Any) -> Hashable:
        return bool(label)


class _Nearest:
    """The name that a wrong one may have been meant for, looked for once for each, and for the
    first of many only: no message tells more of them, and each takes milliseconds."""

    def __init__(self, names: Sequence[str]):
        self.names = names
        self.known: dict[str, str] = {}

    def __call__(self, wrong: str) -> str:
        if wrong not in self.known and len(self.known) < SUGGESTED:
            self.known[wrong] = nearest(wrong, self.names)
        return self.known.get(wrong, "")


def _writable(names: Iterable[str]) -> list[str]:
    """Without those that no file can hold, which are said by their lines when the rows are read;
    at once where too few others are left."""
    kept, why = [], ""
    for name in names:
        try:
            check_encodable(name)
            kept.append(name)
        except CellError as fault:
            why = why or str(fault)
    if why and len(set(kept)) < 2:
        raise UserError(why)
    return kept


def _scale(values: Sequence[float], weights: Sequence[int]) -> tuple[float, float]:
    """Two standard deviations to either side of the mean, to so many digits of what is between
    them that they can be read in the run's recipe."""
    ends = f"the labels run from {min(values)!r} to {max(values)!r}"
    try:
        middle = fmean(values, weights)
        wide = 2 * math.sqrt(fmean([(value - middle) ** 2 for value in values], weights))
        digits = 6 - math.floor(math.log10(2 * wide)) if wide > 0 else 0
        low, high = round(middle - wide, digits), round(middle + wide, digits)
    except OverflowError:
        raise UserError(f"{ends}, too far to compute with; divide them by a number") from None
    if not low < high:
        raise UserError(f"{ends}, too near to each other to compute with; subtract their mean")
    return low, high


def _holds(part: Any) -> bool:
    if (value := class_name(part).lower()) not in ("0", "1", "true", "false"):
        raise CellError("expected 0 or 1 in each of the labels' columns")
    return value in ("1", "true")


def _look_like_classes(name: str, kind: str, classes: Sequence[str], rows: int) -> None:
    if len(classes) < 2:
        seen = f"only the class {classes[0]!r}" if classes else "no label at all"
        raise UserError(f"the train rows hold {seen}; a {kind} task needs two or more")
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
