"""One column of a table, with what can be seen of it: text, label, or neither."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from bough.data.label_cells import CellError, SetCells
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
_ID = re.compile(
    r"(.*[_-])?(id|idx|index|guid|uuid|uid|key|hash)s?\d?|qid\d?|pairid|promptid", re.I
)
SEVERAL = 0.1  # of the cells have more than one label, where a task is of many labels
MOST_CLASSES = 200  # classes


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
            few = 1 < len(parts) < min(len(self.classes), MOST_CLASSES)
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
        return label_rank(self) < len(LABELS)

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
        known = base(self.name) in (*TEXTS, *chain(*PAIRS))
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
        return number <= MOST_CLASSES and (self.known or number <= len(self.cells) / 2)


def base(name: str) -> str:
    """A name without case and a last number: Sentence_1 is a sentence."""
    return re.sub(r"[\s_-]*[0-9]*$", "", name.strip().lower())


def label_rank(column: Column) -> int:
    return place(column.name.strip().lower(), LABELS)


def place(name: str, known: Sequence[str]) -> int:
    return known.index(name) if name in known else len(known)


def encodable(text: str) -> bool:
    """Whether it is whole characters: bytes that were not UTF-8 are read as halves."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
