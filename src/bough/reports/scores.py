"""The results of a comparison as a page shows them: plots of scores and differences, the table."""

from __future__ import annotations

from bough.comparison.compare import AXES, Comparison
from bough.comparison.groups import Variant
from bough.comparison.scores import Score
from bough.formatting import chance, number, seconds, share, size
from bough.reports import plots
from bough.reports.html import Markup, Part, element, figure, join, sortable
from bough.reports.plans import shared_layers
from bough.reports.plots import Point, Series

FORMS = {"bytes_to_serve": size, "step_seconds": seconds, "latency_seconds": seconds}
UNITS = {
    "bytes_to_serve": (2**20, "MiB"),
    "step_seconds": (1e-3, "ms"),
    "latency_seconds": (1e-3, "ms"),
}
LEGEND = (
    "Under each score: its 95 % interval, the difference from the baseline, and p corrected for "
    "the comparisons of its column; coloured where p < .05. TM is the raw score x (baseline's "
    "time / time) x (baseline's memory / memory). A click on a heading sorts."
)


def against_cost(found: Comparison) -> Markup | None:
    """The overall score over each cost, with the Pareto fronts."""
    column = found.overall
    out = []
    for axis, words in AXES.items():
        unit, sign = UNITS[axis]
        series = []
        for n, v in enumerate(found.variants):
            score = found.scores[v.label].get(column)
            if score is None or axis not in v.cost:
                continue
            low, high = score.interval
            tip = (
                f"{v.label}\n{column} {number(score.value)} ({number(low)} to {number(high)})\n"
                f"{words} {FORMS[axis](v.cost[axis])}"
            )
            point = Point(v.cost[axis] / unit, score.value, tip, low, high)
            series.append(Series(n, v.label, [point]))
        if not series:
            continue
        spots = {s.name: (s.points[0].x, s.points[0].y) for s in series}
        front = [spots[label] for label in found.fronts.get(axis, ())]
        title = f"{column} score against {words}, with the Pareto front"
        names = (f"{words}, {sign}", f"{column} score")
        plot = plots.scatter(series, front, *names, _plain, _score, title)
        out.append(figure(f"Score against {words}", plot))
    return join([element("div", out, class_="two"), _front_words(found)]) if out else None


def _plain(value: float) -> str:
    return f"{value:,.6g}"


def _front_words(found: Comparison) -> Markup | None:
    told = [
        f"by {AXES[axis]} {', '.join(labels)}" for axis, labels in found.fronts.items() if labels
    ]
    if not told:
        return None
    text = "On the dashed front no other variant is both cheaper and better: " + "; ".join(told)
    return element("p", f"{text}. Bars are 95 % intervals.", class_="pale")


def _score(value: float) -> str:
    return number(value, 3) if round(value * 100, 6) % 1 else number(value, 2)


def differences(found: Comparison) -> Markup:
    """Each column's differences from the baseline as bars."""
    out = []
    for column in found.columns():
        rows = []
        for n, v in enumerate(found.variants):
            score = found.scores[v.label].get(column)
            if score is None or (d := score.difference) is None:
                continue
            low, high = d.interval
            p = (
                ""
                if d.holm is None
                else f"\np {chance(d.p, d.seeds)}, corrected {chance(d.holm, d.seeds)}"
            )
            tip = (
                f"{v.label}\n{number(d.value, signed=True)} "
                f"({number(low, signed=True)} to {number(high, signed=True)}){p}"
            )
            rows.append((n, v.label, d.value, low, high, d.real, tip))
        if rows:
            title = f"{column}: differences from {found.baseline.label}"
            small = element("small", f" {found.metrics.get(column, 'aggregate')}")
            plot = plots.forest(rows, lambda v: number(v, 3, signed=True), title)
            out.append(figure([column, small], plot))
    words = "Thick bars: differences that show (corrected p < .05). Bars are 95 % intervals."
    return join([element("div", out, class_="two"), element("p", words, class_="pale")])


def depths(found: Comparison) -> Markup | None:
    """Each score over the number of shared layers, where that is what varies."""
    if any(set(v.settings) - {"plan"} for v in found.variants):
        return None
    deep = sorted((d, v.label) for v in found.variants if (d := shared_layers(v)) is not None)
    if len(deep) < 4:
        return None
    out = []
    for n, column in enumerate(found.columns()):
        points = []
        for depth, label in deep:
            if (score := found.scores[label].get(column)) is not None:
                low, high = score.interval
                tip = f"{label}\n{column} {number(score.value)} ({number(low)} to {number(high)})"
                points.append(Point(depth, score.value, tip, low, high))
        if points:
            title = f"{column} over the number of shared layers"
            small = element("small", f" {found.metrics.get(column, 'aggregate')}")
            # Numbers beyond the variants': the legend must not hide a task.
            series = [Series(1000 + n, column, points)]
            depths = [float(depth) for depth, _ in deep]
            at = depths[:: 1 + len(depths) // 14]
            plot = plots.lines(series, "shared layers", "", _layers, _score, title, at=at)
            out.append(figure([column, small], plot))
    words = (
        "From separate encoders (none) over shared embeddings only (0) to one encoder. Bars are "
        "95 % intervals of each score; the differences above are sharper, for they are paired."
    )
    return join([element("p", words, class_="pale"), element("div", out, class_="two")])


def _layers(value: float) -> str:
    return "none" if value == -1 else f"{value:g}"


# --- the table -----------------------------------------------------------------------------------


def table(found: Comparison) -> Markup:
    costs = [axis for axis in AXES if any(axis in v.cost for v in found.variants)]
    forms = ("printed", "steady") if found.others else ()
    heads = ["variant", "seeds", *found.columns(), *(AXES[axis] for axis in costs)]
    heads += [f"TM {form}" for form in forms]
    rows = []
    for n, v in enumerate(found.variants):
        base = v is found.baseline and bool(found.others)
        cells: list[Markup] = [
            element("td", v.label, element("small", "baseline") if base else None),
            element("td", str(len(v.seeds))),
        ]
        cells += [_cell(found.scores[v.label].get(column)) for column in found.columns()]
        cells += [_spent(v, axis, found.baseline) for axis in costs]
        for form in forms:
            value = found.relative(v, form)
            told = "" if value is None else number(value)
            cells.append(element("td", told, data_sort="" if value is None else f"{value:.6g}"))
        rows.append(element("tr", cells, class_="base" if base else None, data_v=n))
    scroll = element("div", sortable(heads, rows, "scores"), class_="card scroll")
    return join([scroll, element("p", LEGEND, class_="foot")])


def _cell(score: Score | None) -> Markup:
    if score is None:
        return element("td", "", data_sort="")
    low, high = score.interval
    parts: list[Part] = [number(score.value), element("small", f"{number(low)} to {number(high)}")]
    if (d := score.difference) is not None:
        way = ("up" if d.value > 0 else "down") if d.real else None
        text = f"{number(d.value, signed=True)} ± {number(d.half)}"
        parts.append(element("small", element("span", text, class_=way)))
        if d.holm is not None:
            parts.append(element("small", f"p {chance(d.holm, d.seeds)}"))
    each = ", ".join(number(value) for value in score.runs)
    return element("td", parts, data_sort=f"{score.value:.6f}", data_tip=f"each seed: {each}")


def _spent(v: Variant, axis: str, base: Variant) -> Markup:
    if axis not in v.cost:
        return element("td", "", data_sort="")
    parts: list[Part] = [FORMS[axis](v.cost[axis])]
    if v is not base and base.cost.get(axis):
        parts.append(element("small", share(v.cost[axis] / base.cost[axis] - 1)))
    return element("td", parts, data_sort=f"{v.cost[axis]:.6g}")
