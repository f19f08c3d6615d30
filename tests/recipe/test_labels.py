"""What classes are called, and which cells hold a label."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bough.data import checked_rows
from bough.recipe.labels import class_name, in_order, is_missing, number
from bough.recipe.recipe import Recipe
from tests.recipe.written import Write, mistake


@pytest.mark.parametrize("value", [0, 0.0, -0.0, "0", "0.0", " 0.00 ", "-0", "-0.0"])
def test_zero_is_one_class_however_written(value: object) -> None:
    assert class_name(value) == "0"


@pytest.mark.parametrize(
    ("value", "name"),
    [(3, "3"), (2.5, "2.5"), ("2.50", "2.50"), ("-1.0", "-1"), (True, "true"), ("007", "007"),
     (" good ", "good"), ("1e3", "1e3"), (1e20, "100000000000000000000")],
)  # fmt: skip
def test_class_names(value: object, name: str) -> None:
    assert class_name(value) == name


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("labels: [null, a]", "line 5: tasks.t.labels: a class is a word or a number; put null"),
        ("labels: [[a], b]", "no list within the list (found [['a'], 'b'])"),
        ("labels: {0: a, 1: null}", "tasks.t.labels: a class is a word or a number"),
        ("labels: [1, 2]\n    class_weights: {1: 2, 1.0: 3}", "1 and 1.0 are the same class; keep"),
    ],
)
def test_what_is_no_class(write: Write, settings: str, why: str) -> None:
    said = mistake(write(f"tasks:\n  t:\n    kind: classify\n    text: x\n    {settings}\n"))
    assert why in said


def test_truth_in_a_recipe_is_found_in_files(write: Write, tmp_path: Path) -> None:
    text = "tasks:\n  t: {kind: classify, text: x, labels: [True, False], train: FILE, dev: FILE}\n"
    (tmp_path / "a.csv").write_text("x,label\na,True\nb,False\n")
    (tmp_path / "a.jsonl").write_text('{"x": "a", "label": true}\n{"x": "b", "label": false}\n')
    for name in ("a.csv", "a.jsonl"):
        recipe = Recipe.read(write(text.replace("FILE", str(tmp_path / name))))
        task, rows = checked_rows.load("t", recipe.tasks["t"], root=recipe.root, policy="error")
        assert task.labels == ("true", "false")
        assert rows["train"].labels == [0, 1]


def test_classes_are_sorted_as_numbers_or_as_words() -> None:
    assert in_order(["10", "9", "-1", "9"]) == ("-1", "9", "10")
    assert in_order(["10", "9", "x"]) == ("10", "9", "x")
    assert in_order(["nan", "1"]) == ("1", "nan")


def test_a_cell_without_a_label() -> None:
    assert all(map(is_missing, ("", "  ", "nan", "NaN", None, math.nan)))
    assert not any(map(is_missing, ("0", 0, False, "none")))
    assert not is_missing("nan", ["nan", "curry"])


def test_numbers_are_finite_and_no_truth_values() -> None:
    assert [number(cell) for cell in ("2.5", 3, 1.5)] == [2.5, 3.0, 1.5]
    assert [number(cell) for cell in ("x", "inf", math.nan, True, None, 10**400)] == [None] * 6
