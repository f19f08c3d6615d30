"""What kind of task a label's column makes, and what a recipe says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, assert_never

from bough.data.drafting.column import MOST_CLASSES, Column, base, encodable
from bough.errors import UserError, listed, shorten
from bough.recipe.kinds import Kind
from bough.recipe.labels import number

SCORES = ("score", "similarity", "rating", "value")  # names of numbers rather than of classes
SCALES = ((0, 1), (-1, 1), (0, 5), (1, 5), (0, 10), (1, 10), (0, 100))
_FEW = 20  # whole numbers up to so many different ones are taken for classes


def kind(label: Column, source: str) -> tuple[Kind, str]:
    """classify, regress or tag, and why."""
    if label.span_labels:
        return "tag", f"spans in {sum(map(bool, label.cells)):,} of {len(label.cells):,} rows"
    number = len(label.classes)
    where = f"{source}, column {label.name!r}"
    summary = f"{number:,} different values in {len(label.cells):,} rows"
    for name in label.classes:
        if not encodable(name):
            reason = f"the label {shorten(name)} is not UTF-8"
            raise UserError(f"{where}: {reason}; save the file as UTF-8")
    if number < 2:
        what = f"only the value {label.classes[0]!r}" if number else "no value at all"
        raise UserError(f"{where}: {what}; a label needs two or more")
    if label.values is None:
        _all_or_no_numbers(label, where)
        if label.separator:
            return "multilabel", "several in a cell"
        if number > MOST_CLASSES or (number > 50 and number > len(label.cells) / 2):
            raise UserError(
                f"{where}: {summary} are too many for classes "
                f"(such as {shorten(label.classes[0])}); name another with --label COLUMN"
            )
        return "classify", summary
    low, high = min(label.values), max(label.values)
    dense = low in (0, 1) and high - low + 1 == number
    named = base(label.name) in SCORES
    few = number <= _FEW and not (named and number > 10)
    if label.whole and number <= MOST_CLASSES and (few or (dense and not named)):
        return "classify", f"{summary}, whole numbers from {low:g} to {high:g}"
    if not 1e-300 < high - low < 1e300:
        far = "far apart" if high > low else "much alike"
        raise UserError(f"{where}: {low!r} and {high!r} are too {far} to be learned as numbers")
    what = f"{summary}, numbers" if label.whole else "numbers with fractions; they run"
    return "regress", f"{what} from {low:g} to {high:g}"


def settings(kind: Kind, label: Column) -> tuple[dict[str, Any], str]:
    """What a recipe says of a task of this kind, and in words what it answers."""
    match kind:
        case "classify":
            classes = label.classes
            return {"labels": classes}, f"{len(classes)} classes ({listed(classes, 6)})"
        case "ordinal":
            classes = label.classes
            return {"labels": classes}, f"{len(classes)} classes in order ({listed(classes, 6)})"
        case "multilabel":
            between, labels = label.separator, label.labels
            settings: dict[str, Any] = {"labels": labels}
            if between not in (",", "["):
                settings["separator"] = between
            return settings, f"any of {len(labels)} labels ({listed(labels, 6)})"
        case "regress":
            assert label.values is not None
            low, high = scale(label.values)
            return {"range": (low, high)}, f"a number from {low:g} to {high:g}"
        case "tag":
            names = label.span_labels
            return {"labels": names}, f"spans with one of {len(names)} labels ({listed(names, 6)})"
        case _:
            assert_never(kind)


def _all_or_no_numbers(label: Column, where: str) -> None:
    """A measurement with a stray word in it would be taken for as many classes as it has values."""
    numbers = label.numbers
    if len(numbers) < 0.9 * len(label.cells) or all(value.is_integer() for value in numbers):
        return
    odd = next(cell for cell in label.cells if number(cell) is None)
    raise UserError(
        f"{where}: {len(numbers):,} of {len(label.cells):,} labels are "
        f"numbers, and {shorten(odd)} is not; write a number, or leave the cell empty"
    )


def scale(values: Sequence[float]) -> tuple[float, float]:
    """The usual scale that the values fill, else their own ends, rounded outwards."""
    low, high = min(values), max(values)
    for start, end in SCALES:
        if start <= low and high <= end and high - low >= 0.7 * (end - start):
            return float(start), float(end)
    step = 10 ** math.floor(math.log10(high - low)) / 10
    start, end = math.floor(low / step) * step, math.ceil(high / step) * step
    return min(low, float(f"{start:.10g}")), max(high, float(f"{end:.10g}"))
