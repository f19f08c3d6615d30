"""What classes are called, and which cells hold a label."""

from __future__ import annotations

import math

import pytest

from bough.recipe.labels import class_name, in_order, is_missing, number


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
