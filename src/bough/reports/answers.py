"""What variants answer to one task: confusions, predicted against true, and calibration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from bough.comparison.compare import Comparison
from bough.comparison.groups import Variant
from bough.formatting import number
from bough.reports import plots
from bough.reports.hard_examples import Example, Texts, worst
from bough.reports.plots import Axis, Point, Series
from bough.runs.predictions import Answers
from bough.scoring.statistics import Floats

MOST = 12  # variants whose answers are shown one by one
CELLS = 15  # classes whose confusions fit in a table
BINS = 10


@dataclass(frozen=True)
class Confusion:
    """Shares of each true class: a row per truth, a column per answer."""

    labels: tuple[str, ...]
    shares: list[list[float]]


@dataclass(frozen=True)
class VariantAnswers:
    """Either as a table or as a map."""

    label: str
    seeds: int
    confusion: Confusion | None
    map: Markup | None


@dataclass(frozen=True)
class TaskAnswers:
    name: str
    rows: int
    graded: bool  # numbers, not classes
    variants: list[VariantAnswers]  # the best first
    calibration: Markup
    calibration_errors: list[tuple[str, float]]  # of the best variants
    worst: list[Example]


def task_answers(comparison: Comparison, name: str, texts: Texts) -> TaskAnswers:
    shown = _shown(comparison, name)
    runs = {v.label: comparison.answers[v.label, name] for v in shown}
    graded = not runs[shown[0].label][0].labels
    variants = []
    for v in shown:
        confusion = None if graded else _confusion(runs[v.label])
        drawn = None
        if confusion is None:
            drawn = _predicted_against_true(v, name, runs[v.label])
        elif len(confusion.labels) > CELLS:
            labels, title = confusion.labels, f"{name}: confusion matrix"
            shares = np.array(confusion.shares)
            drawn = plots.heat(shares, labels, labels, "answer", title, reach=1.0)
        variants.append(
            VariantAnswers(v.label, len(runs[v.label]), None if drawn else confusion, drawn)
        )
    return TaskAnswers(
        name,
        comparison.rows[name],
        graded,
        variants,
        _calibration(comparison, name, shown, graded),
        [] if graded else [(v.label, _calibration_error(runs[v.label])) for v in shown[:6]],
        worst(comparison, name, texts),
    )


def _shown(comparison: Comparison, name: str) -> list[Variant]:
    """The best first; of many variants only the best ones, and the baseline."""
    having = [v for v in comparison.variants if name in comparison.scores[v.label]]
    best = sorted(having, key=lambda v: -comparison.scores[v.label][name].value)[:MOST]
    if comparison.baseline in having and comparison.baseline not in best:
        best[-1] = comparison.baseline
    return best


def _confusion(runs: Sequence[Answers]) -> Confusion:
    labels = runs[0].labels
    counts = np.zeros((len(labels), len(labels)))
    for run in runs:
        np.add.at(counts, (run.truth, run.said), 1)
    return Confusion(labels, (counts / np.maximum(counts.sum(1, keepdims=True), 1)).tolist())


def _predicted_against_true(variant: Variant, name: str, runs: Sequence[Answers]) -> Markup:
    """How often which number was answered to which."""
    truth = runs[0].truth
    low, high = variant.recipe.tasks[name].range or (float(min(truth)), float(max(truth)))
    grades = _grades(truth, low, high)
    half = (grades[1] - grades[0]) / 2
    edges = np.append(grades - half, high + half)
    counts = np.zeros((len(grades), len(grades)))
    for run in runs:
        counts += np.histogram2d(np.clip(run.said, low, high), run.truth, [edges, edges])[0]
    counts /= len(runs)
    names = [f"{value:.3g}" for value in grades]
    title = f"{variant.label}, {name}: predicted (up) against true (right)"
    reach = float(np.quantile(counts[counts > 0], 0.9)) if counts.any() else 1.0
    return plots.heat(
        counts[::-1], names, names[::-1], "true value", title, reach=reach, digits=1, corner=True
    )


def _grades(truth: Floats, low: float, high: float) -> Floats:
    """The grades that the labels take, where they are evenly spaced; else twenty steps."""
    values = np.unique(truth)
    step = float(np.diff(values).min()) if len(values) > 1 else 0.0
    many = round((high - low) / step) if step > (high - low) / 40 else 20
    return np.linspace(low, high, many + 1)


# --- calibration ---------------------------------------------------------------------------------


def _calibration(
    comparison: Comparison, name: str, shown: Sequence[Variant], graded: bool
) -> Markup:
    """Of answers given with so much confidence, how many are right; of numbers, the mean truth of
    rows with like predictions."""
    order = [v.label for v in comparison.variants]
    series = []
    for v in shown:
        runs = comparison.answers[v.label, name]
        points = _graded_points(runs, v.recipe.tasks[name].range) if graded else _points(runs)
        points = [Point(p.x, p.y, f"{v.label}\n{p.tip}") for p in points]
        series.append(Series(order.index(v.label), v.label, points))
    names = ("predicted, as a share of the range", "true, mean") if graded else (
        "confidence", "right"
    )  # fmt: skip
    across, up = (Axis(axis, _tick) for axis in names)
    return plots.lines(series, across, up, f"{name}: calibration", square=True)


def _tick(value: float) -> str:
    return number(value, 1) if value < 1 else "1"


def _confidence(runs: Sequence[Answers]) -> tuple[Floats, Floats]:
    sure = np.concatenate([a.probabilities.max(1) for a in runs if a.probabilities is not None])
    right = np.concatenate([(a.said == a.truth).astype(float) for a in runs])
    return sure, right


def _points(runs: Sequence[Answers]) -> list[Point]:
    sure, right = _confidence(runs)
    points = []
    for inside in _bins(sure):
        x, y = float(sure[inside].mean()), float(right[inside].mean())
        rows = inside.sum() / len(runs)
        tip = f"confidence {x * 100:.0f} %, right {y * 100:.0f} % ({rows:,.0f} rows)"
        points.append(Point(x, y, tip))
    return points


def _graded_points(runs: Sequence[Answers], ends: tuple[float, float] | None) -> list[Point]:
    answers = np.concatenate([a.said for a in runs])
    truth = np.concatenate([a.truth for a in runs])
    low, high = ends or (float(truth.min()), float(truth.max()))
    place = np.clip((answers - low) / (high - low), 0, 1)
    points = []
    for inside in _bins(place):
        x, mean = float(place[inside].mean()), float(truth[inside].mean())
        rows = inside.sum() / len(runs)
        tip = f"predicted {low + x * (high - low):.2f}, true {mean:.2f} ({rows:,.0f} rows)"
        points.append(Point(x, (mean - low) / (high - low), tip))
    return points


def _bins(values: Floats) -> Iterator[NDArray[np.bool_]]:
    """Masks of equal parts of 0 to 1 that hold anything."""
    place = np.minimum((values * BINS).astype(int), BINS - 1)
    for n in np.unique(place):
        yield place == n


def _calibration_error(runs: Sequence[Answers]) -> float:
    """The expected one: mean distance of confidence and share of right answers."""
    sure, right = _confidence(runs)
    return float(sum(abs(right[m].sum() - sure[m].sum()) for m in _bins(sure)) / len(sure))
