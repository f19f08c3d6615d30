"""How the runs learned: dev scores and training losses over the steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bough.comparison.compare import Comparison
from bough.formatting import number
from bough.reports import plots
from bough.reports.plots import Axis, Figure, Point, Series

Logs = Mapping[str, Sequence[Sequence[dict[str, Any]]]]  # variant -> seed -> lines


def read_logs(comparison: Comparison) -> Logs:
    return {v.label: [list(run.metrics()) for run in v.runs] for v in comparison.variants}


def curves(comparison: Comparison, logs: Logs) -> list[Figure]:
    """Per task: dev score and training loss over the steps, mean of the seeds."""
    figures = []
    most = 40 if len(comparison.variants) <= 20 else 16
    across, up = Axis("step", lambda value, _: whole(value), whole=True), Axis("", number)
    for name, metric in comparison.metrics.items():
        keys = {f"{metric} on dev": ("dev", "tasks", name, metric), "training loss": ("loss", name)}
        for words, path in keys.items():
            series = []
            for n, v in enumerate(comparison.variants):
                points = [
                    Point(step, value, f"{v.label}\nstep {step}: {number(value)} ({seeds} seeds)")
                    for step, value, seeds in _thinned(_means(logs[v.label], path), most)
                ]
                if points:
                    series.append(Series(n, v.label, points))
            if series:
                plot = plots.lines(series, across, up, f"{name}: {words} over steps")
                figures.append(Figure(name, words, plot))
    return figures


def _means(
    seeds: Sequence[Sequence[dict[str, Any]]], path: Sequence[str]
) -> list[tuple[int, float, int]]:
    """Step, mean over seeds, number of seeds of the value at the path of the log's lines."""
    values: dict[int, list[float]] = {}
    for lines in seeds:
        for entry in lines:
            value: Any = entry
            for key in path:
                value = value.get(key, {})
            if isinstance(value, int | float) and math.isfinite(value):
                values.setdefault(int(entry["step"]), []).append(float(value))
    return [(step, float(np.mean(v)), len(v)) for step, v in sorted(values.items())]


def _thinned(points: list[tuple[int, float, int]], most: int) -> list[tuple[int, float, int]]:
    if len(points) <= most:
        return points
    return [points[i] for i in np.linspace(0, len(points) - 1, most).round().astype(int)]


def whole(value: float) -> str:
    """1,250 or 12.5k: short where nothing is lost, else a tick would not say where it stands."""
    short = value >= 10_000 and value % 100 == 0
    return f"{value / 1000:,.10g}k" if short else f"{value:,.0f}"
