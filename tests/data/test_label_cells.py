"""Label cells by kind: what they say of the task, read, and written back."""

from __future__ import annotations

from typing import Any

import pytest

from bough.data import label_cells as module
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


@pytest.mark.parametrize("labels", [[True, False], ["True", "False"], {"TRUE": "yes", True: "no"}])
def test_truth_is_written_in_several_ways(labels: Any) -> None:
    """As YAML and JSON have it, as Python writes it into a CSV file, and as spreadsheets do."""
    cells = label_cells(Task.model_validate({"kind": "classify", "text": "x", "labels": labels}))
    if isinstance(labels, dict):
        assert [cells.read(cell) for cell in ("TRUE", True, "true", "True", "no")] == [
            0,
            1,
            1,
            0,
            1,
        ]
        return
    assert [cells.read(cell) for cell in (True, "True", "true", "TRUE")] == [0] * 4
    assert [cells.read(cell) for cell in (False, "False", "false", "FALSE")] == [1] * 4
    with pytest.raises(CellError):
        cells.read("tRue")


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
    number = label_cells(Task(kind="regress", text="x")).found("t", ["10", "30", "20"], None)
    assert number.scale == pytest.approx((20 - 2 * 8.16497, 20 + 2 * 8.16497), rel=1e-5)
    for cells, why in ((["x"], "no label is a number"), (["2", "2.0"], "all labels are 2")):
        with pytest.raises(UserError, match=why):
            label_cells(Task(kind="regress", text="x")).found("t", cells, None)


@pytest.mark.parametrize("middle", [0.0, -1e6, 1e7, 1e9])
def test_the_scale_is_as_wide_wherever_the_labels_lie(middle: float) -> None:
    task = label_cells(Task(kind="regress", text="x"))
    low, high = task.found("t", [middle - 1, middle + 1], None).scale or (0, 0)
    assert (low - middle, high - middle) == pytest.approx((-2, 2))


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        (["-1e308", "1e308"], "the labels run from -1e+308 to 1e+308, too far to compute with"),
        (["1e-200", "2e-200"], "too near to each other to compute with"),
    ],
)
def test_numbers_without_a_scale(cells: list[str], why: str) -> None:
    with pytest.raises(UserError) as caught:
        label_cells(Task(kind="regress", text="x")).found("t", cells, None)
    assert why in str(caught.value)


def test_a_wrong_name_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def nearest(word: str, known: object) -> str:
        asked.append(word)
        return f"; near {word}"

    monkeypatch.setattr(module, "nearest", nearest)
    monkeypatch.setattr(module, "SUGGESTED", 2)
    for cells, cell in ((label_cells(MOOD), "{}"), (label_cells(NAMES), '[[0, 1, "{}"]]')):
        asked.clear()
        said = []
        for wrong in ("x", "y", "x", "z", "y"):
            with pytest.raises(CellError) as caught:
                cells.read(cell.format(wrong), "a text")
            said.append(str(caught.value).partition("; near ")[2])
        assert asked == ["x", "y"]
        assert said == ["x", "y", "x", "", "y"]


BYTE = b"\xf6".decode(errors="surrogateescape")


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        ("classify", ["a", "b", f"sch{BYTE}n"]),
        ("ordinal", ["1", "2", BYTE]),
        ("multilabel", ["a,b", "b", f"a,{BYTE}"]),
    ],
)
def test_a_class_that_no_file_can_hold(kind: Any, cells: list[str]) -> None:
    """It is a bad row, as a text would be, and found before anything is learned."""
    found = label_cells(Task(kind=kind, text="x")).found("t", cells, None)
    assert len(found.labels or ()) == 2
    for cell in cells[:2]:
        label_cells(found).read(cell)
    with pytest.raises(CellError, match="byte 0xf6 is not UTF-8; save the file as UTF-8"):
        label_cells(found).read(cells[2])
    with pytest.raises(UserError, match="byte 0xf6 is not UTF-8; save the file as UTF-8"):
        label_cells(Task(kind=kind, text="x")).found("t", cells[2:], None)


def test_cells_may_be_told_once_with_their_counts() -> None:
    number = label_cells(Task(kind="regress", text="x"))
    every = number.found("t", ["0.1", "0.1", "0.1", "x", "7", "7"], None)
    assert number.found("t", ["0.1", "x", "7"], None, [3, 1, 2]) == every
    with pytest.raises(UserError, match=r"all labels are 0\.1"):
        number.found("t", ["0.1", "0.10"], None, [3, 4])
    named = label_cells(Task(kind="classify", text="x"))
    many = [f"class {n}" for n in range(60)]
    assert len(named.found("t", many, None, [2] * 60).labels or ()) == 60
    with pytest.raises(UserError, match="60 different labels in 60 rows look like no classes"):
        named.found("t", many, None)


def test_numbers_without_a_range_are_any() -> None:
    cells = label_cells(Task(kind="regress", text="x", scale=(0, 1)))
    assert [cells.read(cell) for cell in ("-1e6", 3)] == [-1e6, 3.0]
    with pytest.raises(CellError, match=r"the label is no number; expected a number$"):
        cells.read("inf")


def test_words_in_an_order_have_to_be_told() -> None:
    open_ended = Task(kind="ordinal", text="x")
    assert label_cells(open_ended).found("t", ["10", "9", 8.0], None).labels == ("8", "9", "10")
    with pytest.raises(UserError, match=r"order is not known; set tasks.t.labels to all of them"):
        label_cells(open_ended).found("t", ["low", "high"], None)
    told = label_cells(Task(kind="ordinal", text="x", labels=("low", "high")))
    assert [told.read("low"), told.written(1)] == [0, "high"]


TAGS = Task(kind="multilabel", text="x", labels=("a", "b", "c"), separator=";")


@pytest.mark.parametrize(
    ("cell", "label"),
    [
        ("a;b", (0, 1)), ("c ; a;a;", (0, 2)), ("[]", ()), ('["b", "c"]', (1, 2)), (["c"], (2,)),
        ([], ()), ("b", (1,)),
    ],
)  # fmt: skip
def test_labels_of_a_cell(cell: object, label: tuple[int, ...]) -> None:
    cells = label_cells(TAGS)
    assert not cells.missing(cell)
    assert cells.read(cell) == label
    assert cells.read(cells.written(label)) == label
    assert cells.classes(label) == label


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("a;d", "no class of this task; expected one of a, b, c"), ("", "is empty; write []"),
        ("[a", "no JSON list"), ("[[1]]", "a list of names"), (None, "is empty"),
        ({"a": 1}, "a list of names"),
    ],
)  # fmt: skip
def test_cells_that_hold_no_labels(cell: object, why: str) -> None:
    with pytest.raises(CellError) as caught:
        label_cells(TAGS).read(cell)
    assert why in str(caught.value)


def test_a_column_for_each_label() -> None:
    task = Task(kind="multilabel", text="x", label=("red", "blue"))
    found = label_cells(task).found("t", [], None)
    assert found.labels == ("red", "blue")
    cells = label_cells(found)
    given = (("1", 0), (False, True), ("0.0", "1.0"), ("False", "True"))
    assert [cells.read(cell) for cell in given] == [(0,), (1,), (1,), (1,)]
    assert cells.missing(("", None))
    for cell in (("1", ""), ("2", "0")):
        with pytest.raises(CellError, match="expected 0 or 1"):
            cells.read(cell)


def test_labels_are_found_in_cells_of_several() -> None:
    task = Task(kind="multilabel", text="x")
    assert label_cells(task).found("t", ["b,a", '["c"]', "[]"], None).labels == ("a", "b", "c")
    with pytest.raises(UserError, match="a multilabel task needs two or more"):
        label_cells(task).found("t", ["a", "a"], None)
