"""The report's closer looks: how the runs learned, where gradients fought, what was answered."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bough.comparison.compare import Comparison
from bough.comparison.groups import Variant
from bough.formatting import number
from bough.reports import plots
from bough.reports.hard_examples import WORST, Contradictions, Example
from bough.reports.html import Markup, Part, element, figure, sortable
from bough.reports.plots import Point, Series
from bough.runs.predictions import Answers
from bough.scoring.statistics import Floats

MOST = 12  # variants whose answers are shown one by one
COLUMNS = 32  # moments of a heat map
BINS = 10


def chooser(key: str, labels: Sequence[str], chosen: int = 0) -> Markup:
    """Which variant's panels are shown."""
    options = [
        element("option", label, value=i, selected=i == chosen) for i, label in enumerate(labels)
    ]
    return element("p", "Variant: ", element("select", options, data_panels=key))


# --- learning ------------------------------------------------------------------------------------


Logs = Mapping[str, Sequence[Sequence[dict[str, Any]]]]  # variant -> seed -> lines


def read_logs(found: Comparison) -> Logs:
    return {v.label: [list(run.metrics()) for run in v.runs] for v in found.variants}


def curves(found: Comparison, logs: Logs) -> list[Markup]:
    """Per task: dev score and training loss over the steps, mean of the seeds."""
    out = []
    fewer = 40 if len(found.variants) <= 20 else 16
    for name, metric in found.metrics.items():
        for what, words in (("dev", f"{metric} on dev"), ("loss", "training loss")):
            series = []
            for n, v in enumerate(found.variants):
                own = _course(logs[v.label], name, metric, what)
                points = [
                    Point(step, value, f"{v.label}\nstep {step}: {number(value)} ({seeds} seeds)")
                    for step, value, seeds in _thinned(own, fewer)
                ]
                if points:
                    series.append(Series(n, v.label, points))
            if series:
                title = f"{name}: {words} over steps"
                plot = plots.lines(series, "step", "", _whole, _score, title)
                out.append(figure([name, element("small", f" {words}")], plot))
    return out


def _course(
    seeds: Sequence[Sequence[dict[str, Any]]], name: str, metric: str, what: str
) -> list[tuple[int, float, int]]:
    """Step, mean over seeds, number of seeds."""
    values: dict[int, list[float]] = {}
    for lines in seeds:
        for entry in lines:
            if what == "loss":
                value = entry.get("loss", {}).get(name)
            else:
                value = entry.get("dev", {}).get("tasks", {}).get(name, {}).get(metric)
            if isinstance(value, int | float) and math.isfinite(value):
                values.setdefault(int(entry["step"]), []).append(float(value))
    return [(step, float(np.mean(own)), len(own)) for step, own in sorted(values.items())]


def _thinned(points: list[tuple[int, float, int]], most: int) -> list[tuple[int, float, int]]:
    if len(points) <= most:
        return points
    return [points[i] for i in np.linspace(0, len(points) - 1, most).round().astype(int)]


def _whole(value: float) -> str:
    return f"{value:,.0f}" if value < 10_000 else f"{value / 1000:,.0f}k"


def _score(value: float) -> str:
    return number(value, 2)


# --- gradients -----------------------------------------------------------------------------------


def cosines(found: Comparison, logs: Logs) -> Markup | None:
    """A map per pair of tasks: places down, time across, the cosine as colour."""
    having = [v for v in found.variants if any("cosines" in e for s in logs[v.label] for e in s)]
    if not having:
        return None
    panels = []
    for i, v in enumerate(having):
        lines = [e for seed in logs[v.label] for e in seed if e.get("cosines")]
        pairs = dict.fromkeys(pair for e in lines for own in e["cosines"].values() for pair in own)
        maps = [_cosine_map(lines, pair, v.label) for pair in pairs]
        panels.append(element("div", maps, class_="two", data_panel=f"cosines:{i}", hidden=i > 0))
    pick = chooser("cosines", [v.label for v in having]) if len(having) > 1 else None
    return element("div", pick, panels)


def _cosine_map(lines: Sequence[dict[str, Any]], pair: str, label: str) -> Markup:
    places = list(dict.fromkeys(p for e in lines for p, own in e["cosines"].items() if pair in own))
    steps = sorted({int(e["step"]) for e in lines})
    many = min(COLUMNS, len(steps))
    column = {step: i * many // len(steps) for i, step in enumerate(steps)}
    total, count = np.zeros((len(places), many)), np.zeros((len(places), many))
    for entry in lines:
        for row, place in enumerate(places):
            value = entry["cosines"].get(place, {}).get(pair)
            if value is not None and math.isfinite(value):
                total[row, column[int(entry["step"])]] += value
                count[row, column[int(entry["step"])]] += 1
    means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    heads = [""] * many
    for step in reversed(steps):
        heads[column[step]] = _whole(step)
    a, _, b = pair.partition("+")
    mean, reach = float(np.nanmean(means)), max(0.1, float(np.nanquantile(np.abs(means), 0.98)))
    words = f" mean {number(mean, 2, signed=True)}, full colour at ±{number(reach, 2)}"
    caption = [f"{a} and {b}", element("small", words)]
    title = f"{label}: cosine between the gradients of {a} and {b}, per place over steps"
    return figure(caption, plots.heat(means, heads, places, "step", title, reach=reach))


# --- answers -------------------------------------------------------------------------------------


def answers(found: Comparison, name: str, examples: Sequence[Example]) -> Markup:
    """Confusions or predicted against true, calibration, and the worst-predicted rows of a task."""
    shown = _shown(found, name)
    panels = []
    for i, v in enumerate(shown):
        own = found.answers[v.label, name]
        plot = _confusion(name, own) if own[0].labels else _against(v, name, own)
        what = "true class down, answer across" if own[0].labels else "predicted against true"
        caption = [v.label, element("small", f" {what}, {len(own)} seed{'s' * (len(own) > 1)}")]
        panels.append(figure(caption, plot, data_panel=f"{name}:{i}", hidden=i > 0))
    parts: list[Part] = []
    if len(shown) > 1:
        parts.append(chooser(name, [v.label for v in shown]))
    calibration = _calibration(found, name, shown)
    parts.append(element("div", element("div", panels), calibration, class_="two"))
    parts.append(_worst(found, name, examples))
    return element("div", parts)


def _shown(found: Comparison, name: str) -> list[Variant]:
    """The best first; of many variants only the best ones, and the baseline."""
    having = [v for v in found.variants if name in found.scores[v.label]]
    order = sorted(having, key=lambda v: -found.scores[v.label][name].value)
    kept = order[:MOST]
    if found.baseline in having and found.baseline not in kept:
        kept[-1] = found.baseline
    return kept


def _confusion(name: str, own: Sequence[Answers]) -> Markup:
    labels = own[0].labels
    many = len(labels)
    counts = np.zeros((many, many))
    for one in own:
        np.add.at(counts, (one.truth, one.said), 1)
    parts = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    if many > 15:
        title = f"{name}: confusion matrix"
        return plots.heat(parts, labels, labels, "answer", title, reach=1.0)
    head = element("tr", element("th", ""), [element("th", label, title=label) for label in labels])
    rows = []
    for t, label in enumerate(labels):
        cells = []
        for s, answer in enumerate(labels):
            wrong = {"data_true": label, "data_said": answer, "data_list": f"worst-{name}"}
            tip = f"{label} answered as {answer}\n{parts[t, s] * 100:.1f} % of {label}"
            cells.append(
                element(
                    "td", f"{parts[t, s] * 100:.0f}", style=f"--s:{parts[t, s]:.3f}", data_tip=tip,
                    **(wrong if t != s else {}),
                )
            )  # fmt: skip
        rows.append(element("tr", element("th", label, title=label), cells))
    note = "Percent of each true class. Click a wrong cell for examples of it below."
    table = element("table", element("thead", head), element("tbody", rows), class_="confusion")
    return element("div", element("div", table, class_="scroll"), element("p", note, class_="pale"))


def _against(v: Variant, name: str, own: Sequence[Answers]) -> Markup:
    """How often which number was answered to which."""
    low, high = v.recipe.tasks[name].range or (
        float(min(own[0].truth)),
        float(max(own[0].truth)),
    )
    middles = _grades(own[0].truth, low, high)
    half = (middles[1] - middles[0]) / 2
    edges = np.append(middles - half, high + half)
    counts = np.zeros((len(middles), len(middles)))
    for one in own:
        counts += np.histogram2d(np.clip(one.said, low, high), one.truth, [edges, edges])[0]
    counts /= len(own)
    names = [f"{value:.3g}" for value in middles]
    title = f"{v.label}, {name}: predicted (up) against true (right)"
    reach = float(np.quantile(counts[counts > 0], 0.9)) if counts.any() else 1.0
    return plots.heat(
        counts[::-1], names, names[::-1], "true value", title,
        reach=reach, digits=1, corner=True,
    )  # fmt: skip


def _grades(truth: Floats, low: float, high: float) -> Floats:
    """The grades that the labels take, where they are evenly spaced; else twenty steps."""
    values = np.unique(truth)
    step = float(np.diff(values).min()) if len(values) > 1 else 0.0
    many = round((high - low) / step) if step > (high - low) / 40 else 20
    return np.linspace(low, high, many + 1)


def _calibration(found: Comparison, name: str, shown: Sequence[Variant]) -> Markup:
    """Of answers given with so much confidence, how many are right."""
    series, names = [], [v.label for v in found.variants]
    first = found.answers[shown[0].label, name][0]
    for v in shown:
        own = found.answers[v.label, name]
        made = _reliability(own) if first.labels else _centred(own, v.recipe.tasks[name].range)
        points = [
            Point(x, y, f"{v.label}\n{words} ({rows:,.0f} rows)") for x, y, rows, words in made
        ]
        series.append(Series(names.index(v.label), v.label, points))
    if first.labels:
        plot = plots.lines(
            series, "confidence", "right", _share, _share, f"{name}: calibration", square=True
        )
        caption = ["Calibration", element("small", " below the diagonal: too sure of itself")]
        gaps = [(v.label, _gap(found.answers[v.label, name])) for v in shown]
        words = "Expected calibration error: " + ", ".join(
            f"{label} {number(gap)}" for label, gap in gaps[:6]
        )
        return figure(caption, [plot, element("p", words, class_="pale")])
    plot = plots.lines(
        series, "predicted, as a share of the range", "true, mean", _share, _share,
        f"{name}: calibration", square=True,
    )  # fmt: skip
    caption = ["Calibration", element("small", " mean truth of rows with like predictions")]
    return figure(caption, plot)


def _share(value: float) -> str:
    return number(value, 1) if value < 1 else "1"


def _confidence(own: Sequence[Answers]) -> tuple[Floats, Floats]:
    sure = np.concatenate([a.probabilities.max(1) for a in own if a.probabilities is not None])
    right = np.concatenate([(a.said == a.truth).astype(float) for a in own])
    return sure, right


def _reliability(own: Sequence[Answers]) -> list[tuple[float, float, float, str]]:
    sure, right = _confidence(own)
    out = []
    for inside in _bins(sure):
        x, y = float(sure[inside].mean()), float(right[inside].mean())
        words = f"confidence {x * 100:.0f} %, right {y * 100:.0f} %"
        out.append((x, y, inside.sum() / len(own), words))
    return out


def _centred(
    own: Sequence[Answers], ends: tuple[float, float] | None
) -> list[tuple[float, float, float, str]]:
    said, truth = np.concatenate([a.said for a in own]), np.concatenate([a.truth for a in own])
    low, high = ends or (float(truth.min()), float(truth.max()))
    place = np.clip((said - low) / (high - low), 0, 1)
    out = []
    for inside in _bins(place):
        x, y = float(place[inside].mean()), float((truth[inside].mean() - low) / (high - low))
        words = f"predicted {low + x * (high - low):.2f}, true {low + y * (high - low):.2f}"
        out.append((x, y, inside.sum() / len(own), words))
    return out


def _bins(values: Floats) -> Iterable[Any]:
    """Masks of equal parts of 0 to 1 that hold anything."""
    place = np.minimum((values * BINS).astype(int), BINS - 1)
    for i in range(BINS):
        inside = place == i
        if inside.any():
            yield inside


def _gap(own: Sequence[Answers]) -> float:
    sure, right = _confidence(own)
    return float(sum(abs(right[m].sum() - sure[m].sum()) for m in _bins(sure)) / len(sure))


# --- single examples -----------------------------------------------------------------------------


def _worst(found: Comparison, name: str, examples: Sequence[Example]) -> Markup:
    numbers = found.metrics[name] in ("pearson", "spearman")
    head = ["row", "text", "true", "answered", "off by" if numbers else "wrong in"]
    rows = []
    for i, e in enumerate(examples):
        texts: Part = [element("div", text, class_="text") for text in e.texts]
        miss = f"{e.miss:.2f}" if numbers else f"{e.wrong} of {e.runs} runs"
        rows.append(
            element(
                "tr",
                element("td", e.id, class_="short", data_name="row", title=f"row {e.number + 1}"),
                element("td", texts if e.texts else "(text not at hand)"),
                element("td", e.truth, class_="short", data_name="true"),
                element("td", e.said, class_="short", data_name="answered"),
                element("td", miss, class_="short number", data_name=head[-1],
                        data_sort=f"{e.miss:.4f}"),
                hidden=i >= WORST, data_more=1 if i >= WORST else None,
                data_true=e.truth, data_said=e.said,
            )
        )  # fmt: skip
    table = sortable(head, rows, "words", id=f"worst-{name}")
    none = element("p", "No example of this confusion is kept.", class_="pale", hidden=True)
    return element(
        "div",
        element("h3", f"Worst-predicted rows of {name}"),
        element("p", "By the mean over all runs of all variants.", class_="pale"),
        element("div", table, none, class_="card scroll"),
    )


def contradictions(found: Sequence[Contradictions], label: str) -> Markup:
    parts: list[Part] = []
    for one in found:
        a, b = one.tasks
        parts.append(element("h3", f"{a} and {b}"))
        parts.append(
            element(
                "p",
                f"{label} was asked both about {one.asked} pairs. The answers go together "
                f"(rank correlation {number(one.correlation, 2)}); on {one.apart} pairs they are "
                "more than half of the scale apart.",
            )
        )
        if one.worst:
            head = ["pair", a, b, "truth"]
            rows = [
                element(
                    "tr",
                    element("td", [element("div", t, class_="text") for t in c.texts]),
                    [element("td", answer, class_="short") for answer in c.answers],
                    element("td", f"{c.source} {c.truth}", class_="short", data_name="truth"),
                )
                for c in one.worst
            ]
            parts.append(element("div", sortable(head, rows, "words"), class_="card scroll"))
    return element("div", parts)
