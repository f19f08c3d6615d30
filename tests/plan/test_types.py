"""Names of groups, places of adapters, and heads of a PAL."""

from __future__ import annotations

import pytest

from bough.plan.types import Adapter, adapter_order, named, pal_heads, span


def test_groups_are_named_by_their_members() -> None:
    assert named("abc", [0, 0, 0]) == ("all",) * 3
    assert named("abc", [0, 1, 0]) == ("a+c", "b", "a+c")
    assert named("abc", [None, 1, 1]) == (None, "b+c", "b+c")
    assert named("a", [7]) == ("all",)


@pytest.mark.parametrize(
    ("size", "heads", "most"), [(204, 12, 12), (324, 12, 12), (326, 12, 0), (64, 12, 8), (3, 12, 3)]
)
def test_a_pal_has_as_many_heads_as_divide_it(size: int, heads: int, most: int) -> None:
    assert pal_heads(size, heads) == most


def test_a_place_says_what_is_not_usual() -> None:
    assert Adapter("pal", 204, 1, 12, ("a",), 12).place == "pal:204@1-12"
    assert Adapter("pal", 204, 1, 12, ("a",), 6).place == "pal:204x6@1-12"
    assert Adapter("lora", 8, 5, 5, ("a",), matrices="qv").place == "lora:8:qv@5"
    assert Adapter("pal", 64, 1, 6, ("a",), 8).label == "pal 64 @ 1-6"
    assert (span(4, 6), span(5, 5)) == ("4-6", "5")


def test_adapters_have_one_order() -> None:
    low, high = Adapter("lora", 4, 1, 2, ("a",)), Adapter("pal", 64, 1, 2, ("a",))
    assert sorted([low, high], key=adapter_order) == [high, low]
