"""What kind of task a column makes, and on what scale its numbers are."""

from __future__ import annotations

from typing import Any

import pytest

from bough.data.drafting import infer_kind
from bough.data.drafting.column import Column
from bough.errors import UserError


@pytest.mark.parametrize(
    ("cells", "kind", "settings"),
    [
        (["a", "b", "a"], "classify", {"labels": ("a", "b")}),
        ([3, 1, 2, 3], "classify", {"labels": ("1", "2", "3")}),
        ([0.25, 4.75, 2.5], "regress", {"range": (0.0, 5.0)}),
        (["a;b", "a", "b;c", "c"] * 3, "multilabel", {"labels": ("a", "b", "c"), "separator": ";"}),
    ],
)
def test_kinds_and_their_settings(cells: list[Any], kind: Any, settings: dict[str, Any]) -> None:
    column = Column.of("label", cells)
    assert infer_kind.kind(column, "f.csv")[0] == kind
    assert infer_kind.settings(kind, column)[0] == settings


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["x"] * 9, "only the value 'x'"),
        ([], "no value at all"),
        ([f"name {n}" for n in range(300)], "too many for classes"),
        ([0.5, 1.5, *([2.5] * 20), "none"], "'none' is not"),
    ],
)
def test_columns_that_are_no_label(cells: list[Any], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        infer_kind.kind(Column.of("label", cells), "f.csv")
    assert str(caught.value).startswith("f.csv, column 'label': ")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.1, 0.95], (0, 1)),
        ([0, 2.2, 5], (0, 5)),
        ([1, 3.5, 5], (0, 5)),
        ([-0.9, 0.8], (-1, 1)),
        ([3, 97.5], (0, 100)),
        ([12.3, 4500], (0, 4500)),
        ([20.05, 20.31], (20.05, 20.31)),
    ],
)
def test_scales(values: list[float], expected: tuple[float, float]) -> None:
    low, high = infer_kind.scale(values)
    assert (low, high) == pytest.approx(expected)
    assert low <= min(values) < max(values) <= high
