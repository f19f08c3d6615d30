"""Label cells by kind: what they say of the task, read, and written back."""

from __future__ import annotations

import pytest

from bough.data.label_cells import CellError, label_cells
from bough.errors import UserError
from bough.recipe.tasks import Task
from bough.spans.schemes import Span

MOOD = Task(kind="classify", text="x", labels=("bad", "good"), label_values=("0", "1"))
NAMES = Task(kind="tag", text="text", labels=("person", "place"), label_values=("PER", "LOC"))
LIKE = Task(kind="regress", text="x", range=(0, 5))


def test_classes_by_value_and_by_name() -> None:
    cells = label_cells(MOOD)
    assert [cells.read(cell) for cell in ("0", 1, "1.0", "good", " bad ")] == [0, 1, 1, 1, 0]
    assert [cells.written(label) for label in (0, 1)] == ["bad", "good"]
    assert [cells.classes(1), cells.stratum(1)] == [(1,), 1]
    for cell, why in ((None, "the label is empty"), ("2", "no class of this task"), ([], "no cl")):
        with pytest.raises(CellError, match=why):
            cells.read(cell)


def test_numbers_within_their_range() -> None:
    cells = label_cells(LIKE)
    assert [cells.read(cell) for cell in ("0", 2.5, "5.0")] == [0.0, 2.5, 5.0]
    assert cells.read(cells.written(1 / 3)) == 1 / 3
    assert [cells.classes(1.0), cells.stratum(1.0)] == [(), cells.stratum(4.0)]
    for cell, why in (("", "empty"), ("much", "no number"), ("5.1", "outside the range")):
        with pytest.raises(CellError, match=why):
            cells.read(cell)


def test_spans_of_their_text() -> None:
    cells = label_cells(NAMES)
    text = "Was in Paris."
    place = (Span(7, 12, "place"),)
    assert cells.read([[7, 12, "LOC"]], text) == cells.read([[7, 12, "place"]], text) == place
    assert cells.read([], text) == ()
    assert cells.read(cells.written(place), text) == place
    assert [cells.classes(place), cells.stratum(place), cells.stratum(())] == [(1,), True, False]
    assert cells.missing(None)
    assert cells.missing(" ")
    assert not cells.missing([])
    for cell, why in (
        (None, "the label is empty; expected a list of spans, or"),
        ([[7, 99, "LOC"]], r"span 1: \[7, 99\) is not within the text's 13 characters"),
        ([[0, 3, "LOK"]], r"has the label 'LOK'; expected one of PER, LOC, .*did you mean 'LOC'"),
    ):
        with pytest.raises(CellError, match=why):
            cells.read(cell, text)
    found = label_cells(Task(kind="tag", text="text")).found(
        "t", [[[0, 1, "b"]], [], [(0, 1, "a")]], None
    )
    assert found.labels == ("a", "b")
    with pytest.raises(UserError, match="no train row holds a span"):
        label_cells(Task(kind="tag", text="text")).found("t", [[], []], None)


def test_the_train_cells_say_what_the_recipe_leaves_open() -> None:
    found = label_cells(Task(kind="classify", text="x")).found("t", ["b", "a", 10, 9, "b"], None)
    assert found.labels == ("10", "9", "a", "b")
    named = label_cells(Task(kind="classify", text="x")).found("t", [0, 1], ("no", "yes"))
    assert named.labels == ("no", "yes")
    with pytest.raises(UserError, match="only the class 'a'"):
        label_cells(Task(kind="classify", text="x")).found("t", ["a", "a"], None)
    with pytest.raises(UserError, match=r"set tasks.t.range to \[1, 4\]"):
        label_cells(Task(kind="regress", text="x")).found("t", ["1", "4"], None)
