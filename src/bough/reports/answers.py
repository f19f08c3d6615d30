"""What variants answer to one task: confusions, predicted against true, spans, and calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np
from markupsafe import Markup

from bough.comparison.compare import Comparison
from bough.comparison.groups import Variant
from bough.formatting import number
from bough.recipe.kinds import Kind
from bough.reports import plots
from bough.reports.hard_examples import Example, Texts, worst
from bough.reports.plots import Axis, Point, Series
from bough.runs.predictions import Answers
from bough.scoring import entities
from bough.scoring.calibration import distance_from_right
from bough.scoring.classes import confusion, most_confused, per_label
from bough.scoring.entities import span_confidence
from bough.scoring.statistics import Floats

MOST = 12  # variants whose answers are shown one by one
CELLS = 12  # classes whose confusions fit in a table; of more, the commonest mistakes are shown
BINS = 10  # of the diagram, which has all seeds' answers together


@dataclass(frozen=True)
class Mistake:
    """One class taken for another."""

    truth: str
    answer: str
    rows: float  # the mean over the seeds
    share: float  # of the true class


@dataclass(frozen=True)
class VariantAnswers:
    """As a map, or as a table: of confusions, a row per true class and a column per answer; of the
    commonest mistakes; or of the labels of a tag or multilabel task."""

    label: str
    seeds: int
    map: Markup | None = None
    classes: tuple[str, ...] = ()
    shares: Sequence[Sequence[float]] = ()  # of the true class
    mistakes: Sequence[Mistake] | None = None  # the commonest first
    labels: Mapping[str, Mapping[str, float]] | None = None  # of each label, means over the seeds


@dataclass(frozen=True)
class TaskAnswers:
    name: str
    rows: int
    kind: Kind
    variants: list[VariantAnswers]  # the best first
    calibration: Markup
    calibration_errors: list[tuple[str, float]]  # of the best variants, means over the seeds
    worst: list[Example]


def task_answers(comparison: Comparison, name: str, texts: Texts) -> TaskAnswers:
    shown = _shown(comparison, name)
    runs = {v.label: comparison.answers[v.label, name] for v in shown}
    kind = runs[shown[0].label][0].kind
    graded = kind == "regress"
    answered = [_answered(kind)(v, name, runs[v.label]) for v in shown]
    told = {(m.truth, m.answer) for one in answered for m in one.mistakes or ()}
    return TaskAnswers(
        name,
        comparison.rows[name],
        kind,
        answered,
        _calibration(comparison, name, shown, graded),
        [] if graded else [(v.label, _calibration_error(runs[v.label])) for v in shown[:6]],
        worst(comparison, name, texts, told),
    )


def _answered(kind: Kind) -> Callable[[Variant, str, Sequence[Answers]], VariantAnswers]:
    match kind:
        case "classify" | "ordinal":
            return _classified
        case "multilabel":
            return _labelled
        case "regress":
            return _graded
        case "tag":
            return _marked
        case _:
            assert_never(kind)


def _shown(comparison: Comparison, name: str) -> list[Variant]:
    """The best first; of many variants only the best ones, and the baseline."""
    having = [v for v in comparison.variants if name in comparison.scores[v.label]]
    best = sorted(having, key=lambda v: -comparison.scores[v.label][name].value)[:MOST]
    if comparison.baseline in having and comparison.baseline not in best:
        best[-1] = comparison.baseline
    return best


def _classified(variant: Variant, name: str, runs: Sequence[Answers]) -> VariantAnswers:
    classes = runs[0].labels
    each = [confusion(run.said, run.truth, len(classes)) for run in runs]
    counts = np.sum(each, axis=0)
    there = np.maximum(counts.sum(1), 1)
    if len(classes) > CELLS:
        rows_of = dict(zip(classes, there.tolist(), strict=True))
        mistakes = [
            Mistake(truth, answer, rows / len(runs), rows / rows_of[truth])
            for truth, answer, rows in most_confused(counts, classes)
        ]
        return VariantAnswers(variant.label, len(runs), mistakes=mistakes)
    shares = counts / there[:, None]
    return VariantAnswers(variant.label, len(runs), None, classes, shares.tolist())


def _labelled(variant: Variant, name: str, runs: Sequence[Answers]) -> VariantAnswers:
    """How well each label is given."""
    return _by_label(variant, [per_label(run.said, run.truth, run.labels) for run in runs])


def _marked(variant: Variant, name: str, runs: Sequence[Answers]) -> VariantAnswers:
    """How well each label's spans are found."""
    labels = variant.recipe.tasks[name].labels or ()
    of_spans = [entities.per_label(run.said.tolist(), run.truth.tolist(), labels) for run in runs]
    return _by_label(variant, of_spans)


def _by_label(
    variant: Variant, each: Sequence[Mapping[str, Mapping[str, float | int]]]
) -> VariantAnswers:
    """Each label's scores, the mean over the seeds."""
    means = {
        label: {key: sum(float(one[label][key]) for one in each) / len(each) for key in scores}
        for label, scores in each[0].items()
    }
    return VariantAnswers(variant.label, len(each), labels=means)


def _graded(variant: Variant, name: str, runs: Sequence[Answers]) -> VariantAnswers:
    """How often which number was answered to which."""
    truth = runs[0].truth
    low, high = _ends(truth, variant.recipe.tasks[name].range)
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
    plot = plots.heat(
        counts[::-1], names, names[::-1], "true value", title, reach=reach, digits=1, corner=True
    )
    return VariantAnswers(variant.label, len(runs), plot)


def _ends(truth: Floats, ends: tuple[float, float] | None) -> tuple[float, float]:
    """The task's range, or the labels' own; never empty, as answers are told as shares of it."""
    low, high = ends or (float(truth.min()), float(truth.max()))
    if low < high:
        return low, high
    half = max(1.0, abs(low)) / 2  # so wide that it is not lost beside a large number
    return low - half, low + half


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
    across, up = ("confidence", "right")
    if graded:
        across, up = ("predicted, as a share of the range", "true, mean")
    title = f"{name}: calibration"
    return plots.lines(series, Axis(across, _tick), Axis(up, _tick), title, square=True)


def _tick(value: float, digits: int) -> str:
    return number(value, digits) if value < 1 else "1"


def _confidence(runs: Sequence[Answers]) -> tuple[Floats, Floats]:
    marked = [
        span_confidence(a.said.tolist(), a.scores.tolist(), a.truth.tolist())
        for a in runs
        if a.scores is not None
    ]
    if marked:
        sure, right = (np.concatenate(part).astype(float) for part in zip(*marked, strict=True))
        return sure, right
    each = []
    for run in runs:
        assert run.probabilities is not None
        shares = run.probabilities
        each.append(np.maximum(shares, 1 - shares) if run.kind == "multilabel" else shares.max(1))
    right = np.concatenate([(run.said == run.truth).astype(float) for run in runs])
    return np.concatenate(each).ravel(), right.ravel()


def _points(runs: Sequence[Answers]) -> list[Point]:
    what = {"tag": "spans", "multilabel": "labels"}.get(runs[0].kind, "rows")
    points = []
    for x, y, count in _binned(*_confidence(runs)):
        tip = f"confidence {x * 100:.0f} %, right {y * 100:.0f} %"
        points.append(Point(x, y, f"{tip} ({count / len(runs):,.0f} {what})"))
    return points


def _graded_points(runs: Sequence[Answers], ends: tuple[float, float] | None) -> list[Point]:
    answers, truth = (
        np.concatenate(a) for a in zip(*((a.said, a.truth) for a in runs), strict=True)
    )
    low, high = _ends(truth, ends)
    points = []
    for x, mean, rows in _binned(np.clip((answers - low) / (high - low), 0, 1), truth):
        tip = f"predicted {low + x * (high - low):.2f}, true {mean:.2f}"
        tip += f" ({rows / len(runs):,.0f} rows)"
        points.append(Point(x, (mean - low) / (high - low), tip))
    return points


def _calibration_error(runs: Sequence[Answers]) -> float:
    """The expected one as every run has it in its scores, the mean over the seeds."""
    return float(np.mean([distance_from_right(*_confidence([run])) for run in runs]))


def _binned(xs: Floats, ys: Floats) -> list[tuple[float, float, int]]:
    """Means of both and the number of rows, in equal parts of 0 to 1 in x that hold any."""
    part = np.minimum((xs * BINS).astype(int), BINS - 1)
    masks = [part == n for n in np.unique(part)]
    return [(float(xs[m].mean()), float(ys[m].mean()), int(m.sum())) for m in masks]
