"""What a table's columns are for: which is the text, which the label.

A guess is only ever made from names and values that can be told to the user; every choice carries
its reason. Where two readings are as good as each other there is no guess but a `UserError`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from bough.data.drafting.column import PAIRS, TEXTS, Column, base, encodable, label_rank, place
from bough.errors import UserError, listed, nearest, shorten


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
    every = {name: Column.of(name, cells) for name, cells in table.items() if encodable(name)}
    _check_header([column for column in every.values() if column.name], source)
    there = [name for name in every if name]
    for name in (*text, *((label,) if label else ())):
        if name not in every:
            raise UserError(
                f"{source} has no column {name!r}; it has {listed(there)}{nearest(name, there)}"
            )
    hints: list[str] = []
    # A label that is given, or has a label's name, is not taken for text, however wordy.
    named = sorted((c for c in every.values() if c.known and c.is_label), key=label_rank)
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
    first, *rest = sorted(candidates, key=lambda c: (label_rank(c), len(c.classes)))
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
    every = [Column.of(name, cells) for name, cells in table.items() if encodable(name)]
    labels = [c for c in every if c.known and c.is_label and not c.is_id and c.name not in text]
    found: list[str] = []
    for column in sorted(labels, key=label_rank):
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
    elif len(by_name) == 2 and not any(base(name) in TEXTS for name in by_name):
        one, two = by_name
        raise UserError(
            f"{source}: {one!r} and {two!r} are both text; choose the one to judge with --text "
            f"{shlex.quote(one)}, or both as a pair with --text {shlex.quote(one)} --text "
            f"{shlex.quote(two)}"
        )
    else:
        # A known name first, then the longest texts.
        best = min(candidates, key=lambda c: (place(base(c.name), TEXTS), -c.words))
        chosen = (best.name,)
        why = f"{best.words:.0f} words on average"
    return chosen, why


def _pairs(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    by_base = {base(name): name for name in names}
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


def _check_header(columns: Sequence[Column], source: str) -> None:
    """A file without a header would have its first row taken for names."""
    number = re.compile(r"-?\d+(\.\d+)?")
    odd = [c.name for c in columns if len(c.name.split()) > 5 or number.fullmatch(c.name)]
    # Saved data frames call their index 0 and have proper names beside it.
    if odd and not any(column.known or base(column.name) in TEXTS for column in columns):
        raise UserError(
            f"{source}: the first line looks like a row, not a header (it has {shorten(odd[0])}); "
            "put a line with the columns' names above it, for example label and text"
        )
