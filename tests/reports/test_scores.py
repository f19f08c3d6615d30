"""Plots of scores: a mark per variant, a bar per difference, depths where depth is what varies."""

from __future__ import annotations

from pathlib import Path

from bough.comparison.compare import Comparison, compare
from bough.reports import scores
from tests import simulated


def test_a_plot_per_cost_with_a_mark_per_variant(comparison: Comparison) -> None:
    figures = scores.against_cost(comparison)
    titles = [figure.title for figure in figures]
    assert titles == ["Score against bytes to serve", "Score against step time"]
    for figure in figures:
        assert figure.plot.count('class="mark"') == len(comparison.variants)
        assert figure.plot.count('class="front"') == 1


def test_a_bar_per_difference_thick_where_it_shows(tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 120)
    for seed in range(3):
        for plan, skill in (("separate", 0.0), ("full", 3.0), ("split@2", 0.0)):
            recipe = simulated.recipe(source, plan, seed)
            simulated.run(tmp_path / "runs" / f"{plan}-{seed}", recipe, {"sst": skill})
    comparison = compare([tmp_path])
    figures = scores.differences(comparison)
    assert [figure.title for figure in figures] == comparison.columns()
    assert [figure.note for figure in figures[:3]] == ["accuracy", "accuracy", "pearson"]
    for figure in figures:
        assert figure.plot.count('class="bar') == 2
        apart = [comparison.scores[v.label][figure.title].difference for v in comparison.others]
        assert figure.plot.count("bar strong") == sum(d is not None and d.real for d in apart)
    assert "bar strong" in figures[0].plot


def test_depths_are_shown_where_only_they_vary(comparison: Comparison, tmp_path: Path) -> None:
    figures = scores.by_depth(comparison)
    assert [figure.title for figure in figures] == comparison.columns()
    assert all(">none</text>" in figure.plot for figure in figures)
    simulated.survey(tmp_path, ["separate", "full", "split@2", "pal:16"], 1, rows=30)
    assert scores.by_depth(compare([tmp_path])) == []  # three of them have a depth
