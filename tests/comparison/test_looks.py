"""A survey that grows is corrected for the looks at it; what is no survey cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bough.comparison.compare import Comparison, compare
from bough.comparison.looks import FILE
from bough.comparison.scores import Difference
from tests import simulated


@pytest.fixture
def growing(tmp_path: Path) -> Path:
    simulated.data(tmp_path / "data", 40)
    (tmp_path / "survey.yaml").write_text("seeds: [0, 1, 2]\n")
    grow(tmp_path, 0, 3)
    return tmp_path


def grow(survey: Path, first: int, last: int, *plans: str) -> None:
    for plan in plans or ("full", "separate"):
        for seed in range(first, last):
            recipe = simulated.recipe(survey / "data", plan, seed)
            simulated.run(
                survey / "runs" / f"{plan}-{seed}", recipe, {"sts": 1.0 * (plan == "full")}
            )


def difference(comparison: Comparison, label: str = "full") -> Difference:
    d = comparison.scores[label]["sts"].difference
    assert d is not None
    return d


def lines(survey: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (survey / FILE).read_text().splitlines()]


def test_seeds_that_were_added_are_a_further_look(growing: Path) -> None:
    once, again = compare(growing), compare(growing)
    assert difference(once) == difference(again), "the same runs again are no further look"
    assert len(lines(growing)) == 1
    grow(growing, 3, 5)
    more = compare(growing)
    plain = compare(growing / "runs")  # no survey: nobody knows how it grew
    assert difference(plain).looks == 1
    assert difference(more).looks == 2
    assert difference(more).p == difference(plain).p
    holm, alone = difference(more).holm, difference(plain).holm
    assert holm is not None
    assert alone is not None
    assert holm == pytest.approx(min(1, 6 * alone)) or alone * 6 > 1
    assert holm > alone
    (note,) = (note for note in more.notes if "look" in note)
    assert note.startswith("look 2 at a survey that grew: it was compared with 3 seeds on 20")
    assert note.endswith("so p is raised 6-fold")
    assert not any("look" in note for note in (*once.notes, *again.notes, *plain.notes))
    grow(growing, 5, 6)
    assert difference(compare(growing)).looks == 3
    assert difference(compare(growing)).looks == 3


def test_each_variant_has_its_own_looks(growing: Path) -> None:
    compare(growing)
    grow(growing, 3, 4)
    grow(growing, 0, 4, "split@3")
    comparison = compare(growing)
    assert difference(comparison, "full").looks == 2
    assert difference(comparison, "split@3").looks == 1


@pytest.mark.parametrize("grown", ["full", "separate"])
def test_seeds_of_one_side_are_a_further_look(growing: Path, grown: str) -> None:
    compare(growing)
    grow(growing, 3, 5, grown)
    assert difference(compare(growing)).looks == 2
    grow(growing, 5, 6, grown)
    more = compare(growing)
    assert difference(more).looks == 3
    (note,) = (note for note in more.notes if "look" in note)
    assert f"and with {'5 seeds against 3' if grown == 'full' else '3 seeds against 5'} on" in note


def test_an_anecdote_is_no_look(tmp_path: Path) -> None:
    simulated.data(tmp_path / "data", 40)
    (tmp_path / "survey.yaml").write_text("seeds: [0, 1, 2]\n")
    grow(tmp_path, 0, 2)
    compare(tmp_path)
    grow(tmp_path, 2, 3)
    assert difference(compare(tmp_path)).looks == 1


def test_other_rows_are_other_looks(growing: Path) -> None:
    (growing / FILE).write_text(
        json.dumps({"date": "2026-01-01", "split": "test", "runs": ["full-0"]}) + "\nnonsense\n"
    )
    assert difference(compare(growing)).looks == 1
    assert len((growing / FILE).read_text().splitlines()) == 3


def test_what_cannot_be_written_is_compared_all_the_same(growing: Path) -> None:
    (growing / FILE).mkdir()
    assert difference(compare(growing)).looks == 1
