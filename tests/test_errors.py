"""Words of messages: near misses, long values and many names stay readable."""

from __future__ import annotations

from bough.errors import listed, nearest, shorten


def test_a_near_miss_is_offered_and_a_far_one_not() -> None:
    assert nearest("tran", ["train", "plan"]) == "; did you mean 'train'?"
    assert nearest("xyz", ["train", "plan"]) == ""
    assert nearest("train", []) == ""
    assert nearest("frst", ["first"], "runs/") == "; did you mean 'runs/first'?"


def test_a_long_value_is_cut() -> None:
    assert shorten("short") == "'short'"
    cut = shorten("x" * 500)
    assert len(cut) == 60
    assert cut.endswith("...")
    assert shorten(10**5000) == "a int too long to print"


def test_many_names_are_counted() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed([str(n) for n in range(13)]).endswith("8, 9 and 3 more")
    assert listed(["x" * 50]) == "x" * 37 + "..."
