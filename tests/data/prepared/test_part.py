"""A part of a table, checked and tokenised."""

from __future__ import annotations

from typing import Any

import numpy as np

from bough.data.prepared.part import BAD, GOOD, UNLABELLED, PartReader, Reading, hashes
from bough.data.tables import Table
from tests import tiny

TEXTS = [" a tree ", "", "the leaf", 7, None, "who is it"]


def table(**columns: list[Any]) -> Table:
    lines = list(range(2, 2 + len(next(iter(columns.values())))))
    return Table("t.csv", "line", tuple(columns), columns, lines)


def test_rows_without_a_text_are_left_out_of_everything() -> None:
    task = tiny.task(labels=("x", "y"))
    given = table(text=TEXTS, label=["x", "x", "", "z", "y", "y"], id=list("abcdef"))
    reading = Reading(("text",), {"t": task}, tokenizer=tiny.tokenizer().to_str(), longest=9)
    part = PartReader(reading)(given)
    assert part.lines.tolist() == [2, 4, 5, 7]
    assert part.texts.tobytes() == b"a treethe leaf7who is it"
    assert part.ids == ["a", "c", "d", "f"]
    assert [(row.line, row.column) for row in part.faults] == [(3, "text"), (6, "text")]
    labels = part.labels["t"]
    assert labels.status.tolist() == [GOOD, UNLABELLED, BAD, GOOD]
    assert np.asarray(labels.values)[[0, 3]].tolist() == [0, 1]
    assert [row.line for row in labels.faults] == [5]
    assert [row.line for row in labels.empty] == [4]
    assert part.tokens is not None
    assert len(part.tokens.sizes) == 4
    gaps = PartReader(Reading(("text",), {"t": task}, gaps=("t",)))(given)
    assert not gaps.labels["t"].empty
    assert gaps.labels["t"].status.tolist() == [GOOD, UNLABELLED, BAD, GOOD]
    assert gaps.tokens is None


def test_cells_of_a_task_whose_classes_are_not_known_come_once() -> None:
    given = table(text=["a"] * 6, label=["x", 1, "1", "x", None, 1])
    labels = PartReader(Reading(("text",), {"t": tiny.task(labels=None)}))(given).labels["t"]
    assert labels.cells == ["x", 1, "1", None]
    assert np.asarray(labels.values).tolist() == [0, 1, 2, 0, 3, 1]


def test_hashes_tell_rows_apart() -> None:
    rows = [("a", "b"), ("ab",), ("b", "a"), ("a", "b"), ("a", "B")]
    found = hashes(rows)
    assert len(set(found.tolist())) == 4
    assert found[0] == found[3]
    pairs = PartReader(Reading(("a", "b")))(table(a=["x", "y"], b=["y", "x"]))
    assert pairs.hashes.tolist() == pairs.turned.tolist()[::-1]
