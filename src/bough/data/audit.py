"""What a careful reader would notice about labelled rows, before anything is learned from them.

Classes with their counts, those that are rare, missing or misspelt, and rows that are learned from
and judged by at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bough.data.checked_rows import Rows
from bough.data.label_cells import label_cells
from bough.data.prepared.columns import Column
from bough.errors import listed
from bough.recipe.labels import number
from bough.recipe.tasks import Task

MOST = 12  # classes that are named with their counts; of more, the commonest and the rarest
RARE = 0.1  # of another class's rows: a class with a name so near that has fewer may be a slip


def class_counts(task: Task, rows: Rows) -> str:
    """Each class with its number of rows: positive (120), negative (80)."""
    counts = _counted(task, rows)
    order = list(counts) if len(counts) <= MOST else sorted(counts, key=lambda c: -counts[c])
    named = [f"{label} ({counts[label]:,})" for label in order]
    if len(named) > MOST:
        named = [*named[:3], "...", *named[-3:]]
    return ", ".join(named)


def notes(task: Task, rows: Mapping[Any, Rows]) -> Iterator[str]:
    """All that there is to say about a task's rows, a sentence each."""
    train = rows.get("train")
    if train is None:
        return
    if task.labels and train.labels is not None:
        counts = class_counts(task, train)
        what = "labels of spans" if task.kind == "tag" else "classes"
        yield f"{len(task.labels)} {what} in {len(train):,} train rows: {counts}"
        yield from class_doubts(task, rows)
    for split in ("dev", "test"):
        if split in rows and (doubt := _overlap(train, rows[split], split)):
            yield doubt


def class_doubts(task: Task, rows: Mapping[Any, Rows]) -> Iterator[str]:
    """Classes that are missing, have one row, or look like another's name misspelt."""
    train = rows["train"]
    counts = _counted(task, train)
    first = _first_lines(task, train)
    slips = dict(_slips(counts))
    for label, other in slips.items():
        where = f"{_rows(counts[label])}, the first in {train.unit} {first[label]}"
        yield (
            f"class {label!r} ({where}) is nearly {other!r} ({_rows(counts[other])}); "
            f"if it is a slip, correct it in {train.source}"
        )
    for label, count in counts.items():
        if count == 1 and label not in slips:
            yield (
                f"class {label!r} has one train row ({train.source} {train.unit} {first[label]}), "
                "from which nothing can be learned"
            )
    missing = {
        split: [label for label, count in _counted(task, rows[split]).items() if not count]
        for split in ("train", "dev")
        if split in rows and rows[split].labels is not None
    }
    if missing["train"]:
        yield f"no train row has the class {listed(missing['train'])}; it cannot be learned"
    unseen = [label for label in missing.get("dev", ()) if label not in missing["train"]]
    if unseen:
        yield f"no dev row has the class {listed(unseen)}; nothing says how well it is learned"


def _counted(task: Task, rows: Rows) -> dict[str, int]:
    named = label_cells(task).classes
    counts: Counter[int] = Counter()
    for label, count, _ in _distinct(rows):
        for place in named(label):
            counts[place] += count
    return {label: counts[place] for place, label in enumerate(task.labels or ())}


def _first_lines(task: Task, rows: Rows) -> dict[str, int]:
    assert task.labels is not None
    named = label_cells(task).classes
    first: dict[str, int] = {}
    for label, _, line in _distinct(rows):
        for place in named(label):
            first[task.labels[place]] = min(line, first.get(task.labels[place], line))
    return first


def _distinct(rows: Rows) -> Iterator[tuple[Any, int, int]]:
    """Each label once, with the number of its rows and the line of the first."""
    labels = rows.labels or ()
    if isinstance(labels, Column) and (array := labels.numbers()) is not None:
        counts = np.bincount(array)
        first = np.zeros(len(counts), np.int64)
        first[array[::-1]] = np.arange(len(array))[::-1]  # of a class's rows the last to be written
        for label in np.flatnonzero(counts).tolist():
            yield label, int(counts[label]), rows.lines[int(first[label])]
        return
    seen: dict[Any, tuple[int, int]] = {}
    for label, line in zip(labels, rows.lines, strict=True):
        count, at = seen.get(label, (0, line))
        seen[label] = count + 1, at
    for label, (count, line) in seen.items():
        yield label, count, line


def _rows(count: int) -> str:
    return "one row" if count == 1 else f"{count:,} rows"


def _slips(counts: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Rare classes, each with the commoner one that its name is nearly equal to."""
    common = sorted((label for label in counts if counts[label]), key=lambda c: -counts[c])
    known: dict[str, list[int]] = {}  # by what nearly equal names have in common: places in common
    for place, label in enumerate(common):
        names = _reductions(label)
        near = sorted({one for name in names for one in known.get(name, ())})
        for other in (common[one] for one in near):
            same = _folded(label) == _folded(other)
            if same or (counts[label] <= RARE * counts[other] and _one_letter_off(label, other)):
                yield label, other
                break
        for name in names:
            known.setdefault(name, []).append(place)


def _reductions(label: str) -> set[str]:
    """Nearly equal names have one of these in common: with thousands of classes, not every two can
    be compared."""
    plain = label.casefold()
    return {_folded(label), plain, *(plain[:i] + plain[i + 1 :] for i in range(len(plain)))}


def _folded(label: str) -> str:
    """Without what people type now so, now so: case, blanks, hyphens. Numbers are as they are."""
    if number(label) is not None:
        return label
    return "".join(sign for sign in label.casefold() if sign not in " -_") or label


def _one_letter_off(a: str, b: str) -> bool:
    """One letter more, less, another, or two changed places: jooy and joy."""
    if number(a) is not None or number(b) is not None or min(len(a), len(b)) < 3:
        return False
    short, long = sorted((a.casefold(), b.casefold()), key=len)
    at = next((i for i, (x, y) in enumerate(zip(short, long, strict=False)) if x != y), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    swapped = short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
    return swapped or short[at + 1 :] == long[at + 1 :]


def _overlap(train: Rows, others: Rows, split: str) -> str:
    """Rows that are learned from, too; a pair counts with its texts in either order."""
    learned = np.sort(train.hashes)
    there = _among(others.hashes, learned)
    exact, swapped = int(there.sum()), 0
    if len(others.turned):
        swapped = int((_among(others.turned, learned) & ~there).sum())
    if not exact + swapped:
        return ""
    turned = f" ({swapped:,} with the two texts swapped)" if swapped else ""
    return (
        f"{exact + swapped:,} of {len(others):,} {split} rows have texts of train rows{turned}; "
        f"its {split} score flatters the model"
    )


def _among(hashes: NDArray[np.uint64], ordered: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which of these are there."""
    if not len(ordered):
        return np.zeros(len(hashes), np.bool_)
    places = np.searchsorted(ordered, hashes)
    found: NDArray[np.bool_] = ordered[np.minimum(places, len(ordered) - 1)] == hashes
    return found
