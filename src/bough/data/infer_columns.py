"""What a table's columns are for, and what kind of task they make.

A guess is only ever made from names and values that can be told to the user; every choice carries
its reason. Where two readings are as good as each other there is no guess but a `UserError`.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from typing import Any, assert_never

from bough.data.label_cells import CellError, SetCells
from bough.errors import UserError, listed, nearest, shorten
from bough.recipe.kinds import Kind
from bough.recipe.labels import class_name, in_order, is_missing, number
from bough.recipe.tasks import Task
from bough.spans.cells import labels_of
from bough.spans.cells import text_of as joined_words

LABELS = (
    "label", "labels", "gold_label", "gold", "class", "category", "target", "y", "sentiment",
    "polarity", "is_duplicate", "duplicate", "similarity", "score", "rating", "stars", "topic",
    "intent", "emotion", "genres", "topics", "emotions", "entailment", "relatedness",
    "acceptability", "spans", "entities", "ner_tags", "tags",
)  # fmt: skip
TEXTS = (
    "text", "sentence", "review", "content", "body", "comment", "message", "document", "utterance",
    "question", "query", "tweet", "post", "headline", "title", "description", "input",
)  # fmt: skip
PAIRS = (
    ("premise", "hypothesis"), ("question", "passage"), ("question", "sentence"),
    ("question", "answer"), ("query", "document"), ("query", "passage"), ("text", "hypothesis"),
    ("anchor", "positive"), ("left", "right"), ("passage", "claim"), ("claim", "evidence"),
    ("context", "question"), ("context", "response"), ("premise", "claim"),
)  # fmt: skip
SCORES = ("score", "similarity", "rating", "value")  # names of numbers rather than of classes
SCALES = ((0, 1), (-1, 1), (0, 5), (1, 5), (0, 10), (1, 10), (0, 100))
_ID = re.compile(
    r"(.*[_-])?(id|idx|index|guid|uuid|uid|key|hash)s?\d?|qid\d?|pairid|promptid", re.I
)
SEVERAL = 0.1  # of the cells have more than one label, where a task is of many labels
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
    def numbers(self) -> list[float]:
        """Those of the cells that are numbers."""
        return [value for cell in self.cells if (value := number(cell)) is not None]

    @property
    def values(self) -> list[float] | None:
        """The cells as numbers, if all are."""
        return self.numbers if self.numbers and len(self.numbers) == len(self.cells) else None

    @cached_property
    def classes(self) -> tuple[str, ...]:
        return in_order({class_name(cell) for cell in self.cells})

    @cached_property
    def separator(self) -> str:
        """What stands between the labels, where cells have several of them; `[` of lists."""
        texts = [str(cell) for cell in self.cells]
        if texts and all(text.strip().startswith("[") for text in texts):
            return "["
        for mark in ("|", ";", ","):
            some = sum(mark in text for text in texts) >= SEVERAL * len(texts)
            parts = {part.strip() for text in texts for part in text.split(mark)}
            few = 1 < len(parts) < min(len(self.classes), _MOST)
            if some and few and max(len(part.split()) for part in parts) <= 3:
                return mark
        return ""

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """All labels, where cells have several of them."""
        cells = SetCells(Task(kind="multilabel", text="text", separator=self.separator or ","))
        named: set[str] = set()
        for cell in self.cells:
            try:
                named |= set(map(class_name, cells.parts(cell)))
            except CellError:  # said by its line when the rows are read
                continue
        return in_order(named)

    @cached_property
    def words(self) -> float:
        """Words per cell, on average."""
        return sum(len(str(cell).split()) for cell in self.cells) / max(1, len(self.cells))

    @property
    def known(self) -> bool:
        """Whether it is called what labels are called."""
        return _label_rank(self) < len(LABELS)

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
        if self.cells and not self.span_labels and not self.plain:
            return all(isinstance(joined_words(cell), str) for cell in self.cells)
        if not self.plain or self.values is not None or not self.cells:
            return False
        known = _base(self.name) in (*TEXTS, *chain(*PAIRS))
        wordy = self.words >= 3 and len(self.classes) > 0.3 * len(self.cells)
        return wordy or (known and self.words > 1)

    @cached_property
    def span_labels(self) -> list[str]:
        """The labels of spans, or of words' tags, if all cells are lists of such."""
        if self.plain or not all(isinstance(cell, list | tuple) for cell in self.cells):
            return []
        return sorted({label for cell in self.cells for label in labels_of(cell)})

    @property
    def is_label(self) -> bool:
        """Whether it could be what is to be learned: a few classes, numbers, or spans."""
        if self.span_labels:
            return True
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
    _check_header([column for column in every.values() if column.name], source)
    there = [name for name in every if name]
    for name in (*text, *((label,) if label else ())):
        if name not in every:
            raise UserError(
                f"{source} has no column {name!r}; it has {listed(there)}{nearest(name, there)}"
            )
    hints: list[str] = []
    # A label that is given, or has a label's name, is not taken for text, however wordy.
    named = sorted((c for c in every.values() if c.known and c.is_label), key=_label_rank)
    sure = label or (named[0].name if named else None)
    chosen, why_text = tuple(text), "as you said"
    if not text:
        texts = [c for c in every.values() if c.is_text and not c.is_id and c.name != sure]
        if not texts:
            raise UserError(
                f"{source}: no column looks like text (it has {listed(there)}); "
                "name it with --text COLUMN, or two with --text A --text B"
            )
        chosen, why_text = _texts(texts, source)
        pair = f"is text, too; to judge it as a pair: --text {shlex.quote(chosen[0])} --text"
        others = [c.name for c in texts if c.name not in chosen]
        hints += [f"column {name!r} {pair} {shlex.quote(name)}" for name in others]
    if label:
        return Guess(chosen, label, why_text, "as you said", tuple(hints))
    candidates = [c for c in every.values() if c.is_label and c.name not in chosen and not c.is_id]
    if not candidates:
        raise UserError(f"{source}: {_without_label(list(every.values()), chosen)}")
    first, *rest = sorted(candidates, key=lambda c: (_label_rank(c), len(c.classes)))
    if rest and not first.known:
        raise UserError(
            f"{source}: the label may be any of {listed([c.name for c in candidates])}; choose "
            f"with --label {shlex.quote(first.name)}, or make a task of each with several --label"
        )
    more = f"could be learned, too: --label {shlex.quote(first.name)} --label"
    hints += [f"column {c.name!r} {more} {shlex.quote(c.name)}" for c in rest]
    why_label = "by its name" if first.known else "the only column with few values"
    return Guess(chosen, first.name, why_text, why_label, tuple(hints))


def known_labels(table: Mapping[str, Sequence[Any]], text: Sequence[str]) -> list[str]:
    """All columns that are called what labels are called and look like some: a task of each.

    One that says in other words what another says already is no task of its own.
    """
    every = [Column.of(name, cells) for name, cells in table.items() if _encodable(name)]
    labels = [c for c in every if c.known and c.is_label and not c.is_id and c.name not in text]
    found: list[str] = []
    for column in sorted(labels, key=_label_rank):
        if not any(_same_classes(table[column.name], table[other]) for other in found):
            found.append(column.name)
    return [column.name for column in every if column.name in found]


def _same_classes(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether the cells of either column follow from those of the other."""
    both = [(a, b) for a, b in zip(map(str, one), map(str, other), strict=True)]
    return len(set(both)) == len({a for a, _ in both}) == len({b for _, b in both})


def _texts(candidates: Sequence[Column], source: str) -> tuple[tuple[str, ...], str]:
    by_name = {column.name: column for column in candidates}
    chosen: tuple[str, ...]
    if pair := next(_pairs(list(by_name)), None):
        chosen = pair
        words = sum(by_name[name].words for name in pair) / 2
        why = f"two texts whose names belong together, {words:.0f} words on average"
    elif len(by_name) == 2 and not any(_base(name) in TEXTS for name in by_name):
        one, two = by_name
        raise UserError(
            f"{source}: {one!r} and {two!r} are both text; choose the one to judge with --text "
            f"{shlex.quote(one)}, or both as a pair with --text {shlex.quote(one)} --text "
            f"{shlex.quote(two)}"
        )
    else:
        # A known name first, then the longest texts.
        best = min(candidates, key=lambda c: (_place(_base(c.name), TEXTS), -c.words))
        chosen = (best.name,)
        why = f"{best.words:.0f} words on average"
    return chosen, why


def _pairs(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    by_base = {_base(name): name for name in names}
    for one, two in PAIRS:
        if one in by_base and two in by_base:
            yield by_base[one], by_base[two]
    for one, two in combinations(names, 2):
        if one[:-1] == two[:-1] and one[-1] + two[-1] in ("12", "01", "ab", "AB", "lr", "LR"):
            yield one, two


def _without_label(every: Sequence[Column], texts: Sequence[str]) -> str:
    """What to say where no column can be the label."""
    flat = next((c for c in every if c.known and c.plain and len(c.classes) == 1), None)
    if flat is not None:
        return (
            f"column {flat.name!r} has only the value {flat.classes[0]!r} in "
            f"{len(flat.cells):,} rows; a label needs two or more"
        )
    rest = [column.name for column in every if column.name and column.name not in texts]
    what = f"none of {listed(rest)}" if rest else f"beside {listed(texts)} nothing"
    return f"{what} looks like a label (classes or numbers); name it with --label COLUMN"


def kind(label: Column, source: str) -> tuple[Kind, str]:
    """classify, regress or tag, and why."""
    if label.span_labels:
        return "tag", f"spans in {sum(map(bool, label.cells)):,} of {len(label.cells):,} rows"
    number = len(label.classes)
    where = f"{source}, column {label.name!r}"
    summary = f"{number:,} different values in {len(label.cells):,} rows"
    for name in label.classes:
        if not _encodable(name):
            reason = f"the label {shorten(name)} is not UTF-8"
            raise UserError(f"{where}: {reason}; save the file as UTF-8")
    if number < 2:
        what = f"only the value {label.classes[0]!r}" if number else "no value at all"
        raise UserError(f"{where}: {what}; a label needs two or more")
    if label.values is None:
        _all_or_no_numbers(label, where)
        if label.separator:
            return "multilabel", "several in a cell"
        if number > _MOST or (number > 50 and number > len(label.cells) / 2):
            raise UserError(
                f"{where}: {summary} are too many for classes "
                f"(such as {shorten(label.classes[0])}); name another with --label COLUMN"
            )
        return "classify", summary
    low, high = min(label.values), max(label.values)
    dense = low in (0, 1) and high - low + 1 == number
    named = _base(label.name) in SCORES
    if label.whole and number <= _MOST and ((number <= _FEW and not (named and number > 10)) or (
        dense and not named
    )):  # fmt: skip
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


def _check_header(columns: Sequence[Column], source: str) -> None:
    """A file without a header would have its first row taken for names."""
    number = re.compile(r"-?\d+(\.\d+)?")
    odd = [c.name for c in columns if len(c.name.split()) > 5 or number.fullmatch(c.name)]
    # Saved data frames call their index 0 and have proper names beside it.
    if odd and not any(column.known or _base(column.name) in TEXTS for column in columns):
        raise UserError(
            f"{source}: the first line looks like a row, not a header (it has {shorten(odd[0])}); "
            "put a line with the columns' names above it, for example label and text"
        )


def _base(name: str) -> str:
    """A name without case and a last number: Sentence_1 is a sentence."""
    return re.sub(r"[\s_-]*[0-9]*$", "", name.strip().lower())


def _label_rank(column: Column) -> int:
    return _place(column.name.strip().lower(), LABELS)


def _place(name: str, known: Sequence[str]) -> int:
    return known.index(name) if name in known else len(known)


def _encodable(text: str) -> bool:
    """Whether it is whole characters: bytes that were not UTF-8 are read as halves."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
