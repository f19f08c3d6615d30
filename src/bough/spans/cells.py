"""Spans as the cell of a table: what a JSON line, a hub set, a frame or a CSV file may hold.

A cell is a list of {"start": 0, "end": 5, "label": "person"} or of [0, 5, "person"], in characters
of the text; in CSV the same as JSON. Where the text is itself a list, of words, the cell is a list
of their tags.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bough.errors import shorten
from bough.spans.conll_reader import in_characters, join
from bough.spans.schemes import Span, TagError, is_label, spans_of_tags

EXPECTED = 'expected a list such as [{"start": 0, "end": 5, "label": "person"}]'


class SpanError(ValueError):
    """Why a cell holds no spans of its text."""


def text_of(cell: object) -> object:
    """A text that is given as a list of words, as one; any other cell as it is."""
    if isinstance(cell, list | tuple) and cell and all(isinstance(word, str) for word in cell):
        return join(map(str, cell))[0]
    return cell


def spans_of(cell: object, text: object) -> tuple[Span, ...]:
    """The spans of a text's characters that its label cell holds, in order."""
    found = _parsed(cell)
    if isinstance(text, list | tuple):
        return _of_tags(found, text)
    if not isinstance(text, str):
        raise SpanError("the text is none, so it has no spans")
    spans = sorted(_span(item, number, text) for number, item in enumerate(found, 1))
    for before, span in itertools.pairwise(spans):
        if span.start < before.end:
            raise SpanError(
                f"the spans {_shown(before)} and {_shown(span)} overlap; a character has one "
                "label: keep one of them, or make two tasks"
            )
    return tuple(spans)


def labels_of(cell: object) -> set[str]:
    """The labels of a cell's spans or tags, as far as they can be read."""
    try:
        found = _parsed(cell)
    except SpanError:
        return set()
    labels: set[str] = set()
    for item in found:
        label = item.get("label") if isinstance(item, Mapping) else None
        if isinstance(item, list | tuple) and len(item) == 3:
            label = item[2]
        if isinstance(item, str):
            try:
                label = next((span.label for span in spans_of_tags([item])), None)
            except TagError:
                continue
        if isinstance(label, str) and is_label(label):
            labels.add(label.strip())
    return labels


def as_json(spans: Sequence[Span], scores: Sequence[float] = ()) -> str:
    """Spans as a cell of a CSV file; with their scores if there are any."""
    plain: list[dict[str, Any]] = [span._asdict() for span in spans]
    for item, score in zip(plain, scores, strict=False):
        item["score"] = round(score, 6)
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _parsed(cell: object) -> Sequence[Any]:
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            raise SpanError(f"the label is no JSON; {EXPECTED}") from None
    if isinstance(cell, Mapping) and "entities" in cell:  # as spaCy writes them
        cell = cell["entities"]
    if not isinstance(cell, list | tuple):
        raise SpanError(f"the label is no list of spans; {EXPECTED}, or [] for none")
    return cell


def _span(item: object, number: int, text: str) -> Span:
    if isinstance(item, Mapping):
        parts = [item.get(key) for key in Span._fields]
    elif isinstance(item, list | tuple) and len(item) == 3:
        parts = list(item)
    else:
        raise SpanError(f"span {number} is {shorten(item)}; {EXPECTED}")
    start, end, label = parts
    for name, place in (("start", start), ("end", end)):
        if isinstance(place, bool) or not isinstance(place, int):
            raise SpanError(
                f"span {number}: its {name} is {shorten(place)}; expected a whole number of "
                "characters"
            )
    assert isinstance(start, int)
    assert isinstance(end, int)
    if not isinstance(label, str) or not is_label(label):
        raise SpanError(f"span {number}: its label is {shorten(label)}; expected a name")
    if not 0 <= start < end <= len(text):
        raise SpanError(
            f"span {number}: [{shorten(start)}, {shorten(end)}) is not within the text's "
            f"{len(text):,} characters; expected 0 <= start < end <= {len(text)}"
        )
    return _trimmed(Span(start, end, label.strip()), text, number)


def _trimmed(span: Span, text: str, number: int) -> Span:
    """Without blanks at its ends, which belong to no word."""
    inside = text[span.start : span.end]
    if not inside.strip():
        raise SpanError(f"span {number}: [{span.start}, {span.end}) holds nothing but blanks")
    start = span.start + len(inside) - len(inside.lstrip())
    return span._replace(start=start, end=start + len(inside.strip()))


def _of_tags(tags: Sequence[Any], words: Sequence[Any]) -> tuple[Span, ...]:
    if len(tags) != len(words):
        raise SpanError(f"there are {len(tags)} tags for {len(words)} words; expected one for each")
    try:
        return in_characters(spans_of_tags(tags), join(map(str, words))[1])
    except TagError as fault:
        raise SpanError(f"tag {fault.place + 1} is {shorten(fault.tag)}: {fault}") from None


def _shown(span: Span) -> str:
    return f"[{span.start}, {span.end}) {shorten(span.label, 40)}"
