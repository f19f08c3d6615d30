"""The scores of a comparison as plots: against costs, as differences, by depth of the split."""

from __future__ import annotations

from functools import partial

from bough.comparison.compare import AXES, Comparison
from bough.comparison.scores import Score
from bough.formatting import chance, number, seconds, size
from bough.reports import plots
from bough.reports.plans import shared_layers
from bough.reports.plots import Axis, Figure, Interval, Point, Series

# How costs are written, and in which units they are plotted.
FORMS = {"bytes_to_serve": size, "step_seconds": seconds}
UNITS = {"bytes_to_serve": (2**20, "MiB"), "step_seconds": (1e-3, "ms")}


def against_cost(comparison: Comparison) -> list[Figure]:
    """The overall score over each cost, with the Pareto fronts."""
    column = comparison.overall
    figures = []
    for axis, (unit, sign) in UNITS.items():
        words = AXES[axis]
        series = []
        for n, v in enumerate(comparison.variants):
            score = comparison.scores[v.label].get(column)
            if score is not None and axis in v.cost:
                tip = f"{_tip(v.label, column, score)}\n{words} {FORMS[axis](v.cost[axis])}"
                point = Point(v.cost[axis] / unit, score.value, tip, *score.interval)
                series.append(Series(n, v.label, [point]))
        if not series:
            continue
        spots = {s.name: (s.points[0].x, s.points[0].y) for s in series}
        front = [spots[label] for label in comparison.fronts.get(axis, ())]
        across = Axis(f"{words}, {sign}", lambda value, _: f"{value:,.6g}")
        title = f"{column} score against {words}, with the Pareto front"
        plot = plots.scatter(series, front, across, Axis(f"{column} score", number), title)
        figures.append(Figure(f"Score against {words}", "", plot))
    return figures


def differences(comparison: Comparison) -> list[Figure]:
    """Each column's differences from the baseline as bars."""
    figures = []
    for column in comparison.columns():
        rows = []
        for n, v in enumerate(comparison.variants):
            score = comparison.scores[v.label].get(column)
            if score is None or (d := score.difference) is None:
                continue
            low, high = d.interval
            tip = (
                f"{v.label}\n{number(d.value, signed=True)} "
                f"({number(low, signed=True)} to {number(high, signed=True)})"
            )
            if d.holm is not None:
                tip += f"\np {chance(d.p, d.seeds)}, corrected {chance(d.holm, d.seeds)}"
            rows.append(Interval(n, v.label, d.value, low, high, d.real, tip))
        if rows:
            title = f"{column}: differences from {comparison.baseline.label}"
            plot = plots.forest(rows, partial(number, signed=True), title)
            figures.append(Figure(column, comparison.metrics.get(column, "aggregate"), plot))
    return figures


def by_depth(comparison: Comparison) -> list[Figure]:
    """Each score over the number of shared layers, where that is what varies."""
    variants = comparison.variants
    if any(set(v.settings) - {"plan"} for v in variants):
        return []
    depths = sorted((d, v.label) for v in variants if (d := shared_layers(v)) is not None)
    if len(depths) < 4:
        return []
    ticks = [float(depth) for depth, _ in depths[:: 1 + len(depths) // 14]]
    across = Axis("shared layers", lambda value, _: "none" if value == -1 else f"{value:g}", ticks)
    figures = []
    for n, column in enumerate(comparison.columns()):
        points = []
        for depth, label in depths:
            if (score := comparison.scores[label].get(column)) is not None:
                tip = _tip(label, column, score)
                points.append(Point(depth, score.value, tip, *score.interval))
        if points:
            # Numbers beyond the variants': the legend must not hide a task.
            series = [Series(1000 + n, column, points)]
            title = f"{column} over the number of shared layers"
            plot = plots.lines(series, across, Axis("", number), title)
            figures.append(Figure(column, comparison.metrics.get(column, "aggregate"), plot))
    return figures


def _tip(label: str, column: str, score: Score) -> str:
    low, high = score.interval
    return f"{label}\n{column} {number(score.value)} ({number(low)} to {number(high)})"
