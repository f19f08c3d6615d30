"""What a table's columns are for, and what kind of task they make.

A guess is only ever made from names and values that can be told to the user; every choice carries
its reason. Where two readings are as good as each other there is no guess but a `UserError`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bough.errors import UserError, listed, nearest, shorten
from bough.recipe.labels import class_name, in_order, is_missing, number

LABELS = (
    "label", "labels", "gold_label", "gold", "class", "category", "target", "y", "sentiment",
    "polarity", "is_duplicate", "duplicate", "similarity", "score", "rating", "stars", "topic",
    "intent", "emotion", "entailment", "acceptability",
)  # fmt: skip
TEXTS = (
    "text", "sentence", "review", "content", "body", "comment", "message", "document", "utterance",
    "question", "query", "tweet", "post", "headline", "title", "description", "input",
)  # fmt: skip
PAIRS = (
    ("premise", "hypothesis"), ("question", "passage"), ("question", "sentence"),
    ("question", "answer"), ("query", "document"), ("query", "passage"), ("text", "hypothesis"),
    ("anchor", "positive"), ("left", "right"),
)  # fmt: skip
SCORES = ("score", "similarity", "rating", "value")  # names of numbers rather than of classes
SCALES = ((0, 1), (-1, 1), (0, 5), (1, 5), (0, 10), (1, 10), (0, 100))
_ID = re.compile(
    r"(.*[_-])?(id|idx|index|guid|uuid|uid|key|hash)s?\d?|qid\d?|pairid|promptid", re.I
)
_FEW = 20  # whole numbers up to so many different ones are taken for classes
_MOST = 200  # classes


@dataclass(frozen=True)
class Column:
    """One column's cells, with what can be seen of them."""

    name: str
    cells: list[Any]  # those that hold something

    @classmethod
    def of(cls, name: str, cells: Iterable[Any]) -> Column:
        return cls(name, [cell for cell in cells if not is_missing(cell)])

    @cached_property
    def plain(self) -> bool:
        """Whether every cell is a text or a number, not a list or a structure."""
        return all(isinstance(cell, str | int | float) for cell in self.cells)

    @cached_property
    def values(self) -> list[float] | None:
        """The cells as numbers, if all are."""
        numbers = [value for cell in self.cells if (value := number(cell)) is not None]
        return numbers if numbers and len(numbers) == len(self.cells) else None

    @cached_property
    def classes(self) -> tuple[str, ...]:
        return in_order({class_name(cell) for cell in self.cells})

    @cached_property
    def words(self) -> float:
        """Words per cell, on average."""
        return sum(len(str(cell).split()) for cell in self.cells) / max(1, len(self.cells))

    @property
    def known(self) -> bool:
        """Whether it is called what labels are called."""
        return _rank(self.name) < len(LABELS)

    @property
    def whole(self) -> bool:
        """Whether it holds whole numbers only."""
        return self.values is not None and all(value.is_integer() for value in self.values)

    @property
    def is_id(self) -> bool:
        """Whether it only tells rows apart."""
        if not self.name or _ID.fullmatch(self.name):
            return True
        if self.known or len(self.cells) < 2 or len(self.classes) < len(self.cells):
            return False
        return self.whole or (self.values is None and self.words == 1)

    @property
    def is_text(self) -> bool:
        if not self.plain or self.values is not None or not self.cells:
            return False
        known = _base(self.name) in TEXTS or any(_base(self.name) in pair for pair in PAIRS)
        wordy = self.words >= 3 and len(self.classes) > 0.3 * len(self.cells)
        return wordy or (known and self.words > 1)

    @property
    def is_label(self) -> bool:
        """Whether it could be what is to be learned: a few classes, or numbers."""
        number = len(self.classes) if self.plain else 0
        if number < 2:
            return False
        if self.values is not None and (self.known or not self.whole):
            return True
        return number <= _MOST and (self.known or number <= len(self.cells) / 2)


@dataclass(frozen=True)
class Guess:
    """A task's columns and kind, and the reasons."""

    text: tuple[str, ...]
    label: str
    why_text: str
    why_label: str
    hints: tuple[str, ...] = ()  # other readings, and how to ask for them


def columns(
    table: Mapping[str, Sequence[Any]],
    source: str,
    text: Sequence[str] = (),
    label: str | None = None,
) -> Guess:
    """The text and label columns; those given are taken as they are."""
    every = {name: Column.of(name, cells) for name, cells in table.items() if _encodable(name)}
    _look_like_header(list(every), source)
    for name in (*text, *((label,) if label else ())):
        if name not in every:
            there = [known for known in every if known]
            raise UserError(f"{source} has no column {name!r}; it has {listed(there)}"
                          + nearest(name, there))  # fmt: skip
    hints: list[str] = []
    # A label that is given, or has a label's name, is not taken for text, however wordy.
    sure = label or next(
        (n for n in sorted(every, key=_rank) if every[n].known and every[n].is_label), None
    )
    if text:
        chosen, why_text = tuple(text), "as you said"
    else:
        known = [c for c in every.values() if c.is_text and not c.is_id and c.name != sure]
        chosen, why_text = _texts(known, source, list(every), hints)
    if label:
        return Guess(chosen, label, why_text, "as you said", tuple(hints))
    candidates = [c for c in every.values() if c.is_label and c.name not in chosen and not c.is_id]
    flat = next((c for c in every.values() if c.known and c.plain and len(c.classes) == 1), None)
    if not candidates and flat is not None:
        raise UserError(
            f"{source}: column {flat.name!r} has only the value {flat.classes[0]!r} in "
            f"{len(flat.cells):,} rows; a label needs two or more"
        )
    picked = _label(candidates, source, list(every), chosen, hints)
    return Guess(chosen, picked.name, why_text, _seen(picked), tuple(hints))


def _texts(
    candidates: Sequence[Column], source: str, names: Sequence[str], hints: list[str]
) -> tuple[tuple[str, ...], str]:
    if not candidates:
        raise UserError(
            f"{source}: no column looks like text (it has {listed([n for n in names if n])}); "
            "name it with --text COLUMN, or two with --text A --text B"
        )
    by_name = {column.name: column for column in candidates}
    chosen: tuple[str, ...]
    pair = next((pair for pair in _pairs(list(by_name)) if pair is not None), None)
    if pair is not None:
        chosen = pair
        why = f"two texts whose names belong together, {_length(by_name[n] for n in pair)}"
    else:
        # A known name first, then the longest texts.
        best = min(candidates, key=lambda c: (_place(_base(c.name), TEXTS), -c.words))
        chosen = (best.name,)
        why = f"{_length([best])}"
    for column in candidates:
        if column.name not in chosen:
            both = " ".join(f"--text {name}" for name in (*chosen[:1], column.name))
            hints.append(f"column {column.name!r} is text, too; to judge it as a pair: {both}")
    return chosen, why


def _pairs(names: Sequence[str]) -> Iterable[tuple[str, str] | None]:
    for one, two in PAIRS:
        by_base = {_base(name): name for name in names}
        if one in by_base and two in by_base:
            yield by_base[one], by_base[two]
    for i, one in enumerate(names):
        for two in names[i + 1 :]:
            if len(one) == len(two) and one[:-1] == two[:-1] and one[-1] + two[-1] in (
                "12", "01", "ab", "AB", "lr", "LR"
            ):  # fmt: skip
                yield one, two


def _label(
    candidates: Sequence[Column],
    source: str,
    names: Sequence[str],
    texts: Sequence[str],
    hints: list[str],
) -> Column:
    if not candidates:
        rest = [name for name in names if name and name not in texts]
        what = f"none of {listed(rest)}" if rest else f"beside {listed(list(texts))} nothing"
        raise UserError(
            f"{source}: {what} looks like a label (classes or numbers); name it with --label COLUMN"
        )
    first, *others = sorted(candidates, key=lambda c: (_rank(c.name), len(c.classes)))
    if others and not first.known:
        raise UserError(
            f"{source}: the label may be any of {listed([c.name for c in candidates])}; choose "
            f"with --label {first.name}, or make a task of each with several --label"
        )
    more = f"could be learned, too: --label {first.name} --label"
    hints += [f"column {column.name!r} {more} {column.name}" for column in others]
    return first


def kind(label: Column, source: str) -> tuple[str, str]:
    """classify or regress, and why."""
    number = len(label.classes)
    for name in label.classes if label.values is None else ():
        if not _encodable(name):
            raise UserError(
                f"{source}, column {label.name!r}: the label {shorten(name)} is not UTF-8; save "
                "the file as UTF-8"
            )
    summary = f"{number:,} different values in {len(label.cells):,} rows"
    if number < 2:
        what = f"only the value {label.classes[0]!r}" if number else "no value at all"
        raise UserError(f"{source}, column {label.name!r}: {what}; a label needs two or more")
    if label.values is None:
        _all_or_no_numbers(label, source)
        if number > _MOST or (number > 50 and number > len(label.cells) / 2):
            raise UserError(
                f"{source}, column {label.name!r}: {summary} are too many for classes "
                f"(such as {shorten(label.classes[0])}); name another with --label COLUMN"
            )
        return "classify", summary
    if not label.whole:
        return "regress", "numbers with fractions"
    low, high = min(label.values), max(label.values)
    dense = low in (0, 1) and high - low + 1 == number
    named = _base(label.name) in SCORES
    if number <= _MOST and ((number <= _FEW and not (named and number > 10)) or (
        dense and not named
    )):  # fmt: skip
        return "classify", f"{summary}, whole numbers from {low:g} to {high:g}"
    return "regress", f"{summary}, numbers from {low:g} to {high:g}"


def _all_or_no_numbers(label: Column, source: str) -> None:
    """A measurement with a stray word in it would be taken for as many classes as it has values."""
    numbers = [value for cell in label.cells if (value := number(cell)) is not None]
    if len(numbers) < 0.9 * len(label.cells) or all(value.is_integer() for value in numbers):
        return
    odd = next(cell for cell in label.cells if number(cell) is None)
    raise UserError(
        f"{source}, column {label.name!r}: {len(numbers):,} of {len(label.cells):,} labels are "
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


def _look_like_header(names: Sequence[str], source: str) -> None:
    """A file without a header would have its first row taken for names."""
    real = [name for name in names if name]
    odd = next(
        (name for name in real if len(name.split()) > 5 or re.fullmatch(r"-?\d+(\.\d+)?", name)),
        None,
    )
    # Saved data frames call their index 0 and have proper names beside it.
    if odd is not None and not any(_rank(n) < len(LABELS) or _base(n) in TEXTS for n in real):
        raise UserError(
            f"{source}: the first line looks like a row, not a header (it has {shorten(odd)}); "
            "put a line with the columns' names above it, for example label and text"
        )


def _seen(label: Column) -> str:
    return "by its name" if label.known else "the only column with few values"


def _length(columns: Iterable[Column]) -> str:
    words = [column.words for column in columns]
    return f"{sum(words) / len(words):.0f} words on average"


def _base(name: str) -> str:
    """A name without case and a last number: Sentence_1 is a sentence."""
    return re.sub(r"[\s_-]*[0-9]*$", "", name.strip().lower())


def _rank(name: str) -> int:
    return _place(name.strip().lower(), LABELS)


def _place(name: str, known: Sequence[str]) -> int:
    return known.index(name) if name in known else len(known)


def _encodable(text: str) -> bool:
    """Whether it is whole characters: bytes that were not UTF-8 are read as halves."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
