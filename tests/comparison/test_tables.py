"""What is printed: the terminal's tables, Markdown's, and how to read them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bough.comparison import tables
from bough.comparison.compare import Comparison, compare
from bough.comparison.verdict import verdict
from tests import simulated


def test_the_foot_tells_of_nothing_that_is_not_there(
    make: simulated.Make, comparison: Comparison
) -> None:
    alone, other = make("a", "full"), make("b", "separate")
    one = tables.foot(compare([alone]))
    assert "new examples" in one
    assert not any(word in one for word in ("new seeds", "Holm", "TM", "±"))
    both = tables.foot(compare([alone, other]))
    assert "TM" in both
    assert "Holm" not in both
    every = tables.foot(comparison)
    assert all(word in every for word in ("new seeds", "Holm", "TM", "±"))


def test_markdown_has_every_variant_and_is_escaped(comparison: Comparison) -> None:
    text = tables.markdown(comparison)
    assert "| separate (baseline) | 3 |" in text
    assert "Differences from separate:" in text
    noted = tables.markdown(replace(comparison, notes=("a_b|c*",)))
    assert noted.endswith("- a\\_b\\|c\\*\n")


def test_a_comparison_prints_itself_as_the_command_does(
    comparison: Comparison, capsys: pytest.CaptureFixture[str]
) -> None:
    tables.show(comparison)
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert str(comparison).splitlines() == shown
    assert shown[0] == verdict(comparison).headline
    for words in ("scores on dev", "differences from separate", "costs", "separate", "(accuracy)"):
        assert any(words in line for line in shown)


def test_a_star_is_what_the_verdict_may_say(comparison: Comparison) -> None:
    """The raw mean stands in no sentence, so it has neither p nor star."""
    text = tables.markdown(comparison)
    lines = [line for line in text.split("Differences")[1].splitlines() if line.startswith("|")]
    head, _, row = (line.strip("| ").split(" | ") for line in lines[:3])
    cells = dict(zip(head, row, strict=True))
    words = verdict(comparison).tasks
    for name in comparison.columns():
        named = any(word in words.get(name, "") for word in (" gains ", " loses "))
        assert cells[name].endswith("\\*") == named
    assert ", p" not in cells["raw"]
    assert ", p" in cells["normalised"]
