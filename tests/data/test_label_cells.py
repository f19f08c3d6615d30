"""Label cells by kind: what they say of the task, read, and written back."""

from __future__ import annotations

import pytest

from bough.data.label_cells import CellError, label_cells
from bough.errors import UserError
from bough.recipe.tasks import Task

MOOD = Task(kind="classify", text="x", labels=("bad", "good"), label_values=("0", "1"))
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


def test_the_train_cells_say_what_the_recipe_leaves_open() -> None:
    found = label_cells(Task(kind="classify", text="x")).found("t", ["b", "a", 10, 9, "b"], None)
    assert found.labels == ("10", "9", "a", "b")
    named = label_cells(Task(kind="classify", text="x")).found("t", [0, 1], ("no", "yes"))
    assert named.labels == ("no", "yes")
    with pytest.raises(UserError, match="only the class 'a'"):
        label_cells(Task(kind="classify", text="x")).found("t", ["a", "a"], None)
    with pytest.raises(UserError, match=r"set tasks.t.range to \[1, 4\]"):
        label_cells(Task(kind="regress", text="x")).found("t", ["1", "4"], None)
