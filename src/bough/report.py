"""A comparison as one HTML file that opens offline, by day and by night, on a desk and on a phone.

The verdict comes first, then the pictures that it rests on, then how it was obtained. Styles and
script are in the file; nothing is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from bough import __version__, examples, panels, picture, plots
from bough.compare import AXES, Comparison, compare
from bough.cost import cell_parameters
from bough.differences import Score
from bough.families import Shape
from bough.files import write_atomically
from bough.findings import chance, markdown, number, seconds, share, size, verdict
from bough.markup import Markup, Part, element, join
from bough.mistakes import Mistake
from bough.plan import Plan
from bough.plots import Point, Series
from bough.variants import Variant

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
METHOD = (
    "A score is the expected one over new seeds on new examples of the same kind; the 95 % "
    "intervals count both. Differences are taken on the same rows and, where both sides have "
    "them, on the same seeds. p is the chance of so large a difference between like variants, "
    "corrected (Holm) for the comparisons of its column. With fewer than three seeds all of it "
    "is an anecdote."
)


def write(
    paths: Iterable[str | Path],
    out: str | Path,
    *,
    baseline: str | None = None,
    split: str = "dev",
    tasks: Sequence[str] | None = None,
) -> Path:
    """Compare the runs and write their report, as HTML or, with the ending .md, as Markdown."""
    target = Path(out).expanduser()
    if target.suffix not in (".html", ".htm", ".md"):
        raise Mistake(f"{target}: a report is written as .html or .md; choose one of these endings")
    if not target.parent.is_dir():
        raise Mistake(f"{target.parent}: no such folder to write the report to")
    found = compare(paths, baseline=baseline, split=split, tasks=tasks)
    write_atomically(target, markdown(found) if target.suffix == ".md" else page(found))
    return target


def page(found: Comparison) -> str:
    """The whole file's text."""
    logs = panels.read_logs(found)
    known, gone = examples.texts(found)
    legend = plots.legend([v.label for v in found.variants]) if found.others else None
    sections: list[tuple[str, str, str, Part]] = []

    def add(key: str, short: str, title: str, *parts: Part) -> None:
        if any(part is not None and part != "" and part != [] for part in parts):
            sections.append((key, short, title, parts))

    if found.others:
        add("cost", "Cost", "Score against cost", legend, _against_cost(found), _front_words(found))
        add(
            "differences",
            "Differences",
            f"Differences from {found.baseline.label}",
            _differences(found),
        )
        add("depth", "Depth", "Score by depth of the split", _depths(found))
    add("table", "Table", "The table", _table(found), element("p", LEGEND, class_="foot"))
    add("plans", "Plans", "The plans", _plans(found))
    learned = panels.curves(found, logs)
    add("learning", "Learning", "How they learned", legend, element("div", learned, class_="two"))
    add("gradients", "Gradients", "Where gradients agree", _gradients(found, logs))
    add("answers", "Answers", "What they answer", _answers(found, known, gone))
    add(
        "contradictions",
        "Contradictions",
        "Where tasks contradict each other",
        _contradictions(found, known),
    )
    add("breakdown", "Breakdown", "What they cost", _breakdown(found))
    add("method", "Method", "How it was obtained", _method(found))

    names = " / ".join(found.metrics)
    runs = sum(len(v.runs) for v in found.variants)
    title = f"bough: {names}"
    body = [
        element(
            "header",
            element("h1", f"What sharing costs and gains: {', '.join(found.metrics)}"),
            element(
                "div",
                f"{_count(len(found.variants), 'variant')}, {_count(runs, 'run')}, scores on "
                f"{found.split}",
                class_="pale",
            ),
            _verdict(found),
        ),
        element("nav", element("div", [_link(key, text) for key, text, _, _ in sections])),
        element(
            "main",
            [
                element("section", element("h2", text), parts, id=key)
                for key, _, text, parts in sections
            ],
        ),
        element("footer", f"Made by bough {__version__}. This file needs no network."),
    ]
    files = resources.files("bough")
    style, script = (files.joinpath(f"report.{kind}").read_text("utf-8") for kind in ("css", "js"))
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(style)),
    ]
    whole = element(
        "html", element("head", head), element("body", body, element("script", Markup(script))),
        lang="en",
    )  # fmt: skip
    return f"<!doctype html>\n{whole}\n"


def _link(key: str, text: str) -> Markup:
    return element("a", text, href=f"#{key}")


def _count(many: int, what: str) -> str:
    return f"{many} {what}{'s' * (many != 1)}"


# --- first ---------------------------------------------------------------------------------------


def _verdict(found: Comparison) -> Markup:
    said = verdict(found)
    items = [element("li", text, class_=_way(found, name)) for name, text in said.tasks.items()]
    items += [element("li", text) for text in said.costs[:6]]
    if len(said.costs) > 6:
        items.append(element("li", f"Costs of {len(said.costs) - 6} more variants: see the table."))
    items += [element("li", text, class_="note") for text in said.notes]
    return element(
        "div",
        element("p", said.headline, class_="headline"),
        element("ul", items),
        class_="card verdict",
    )


def _way(found: Comparison, name: str) -> str | None:
    """Up or down where every difference that shows goes one way."""
    scores = [own[name].difference for own in found.scores.values() if name in own]
    ways = {d.value > 0 for d in scores if d is not None and d.real}
    return {frozenset({True}): "up", frozenset({False}): "down"}.get(frozenset(ways))


def _whole(found: Comparison) -> str:
    return found.columns()[-1]


def _against_cost(found: Comparison) -> Markup | None:
    column = _whole(found)
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
        out.append(panels.figure(f"Score against {words}", plot))
    return element("div", out, class_="two") if out else None


def _plain(value: float) -> str:
    return f"{value:,.6g}"


def _front_words(found: Comparison) -> Markup | None:
    told = [f"{AXES[axis]}: {', '.join(labels)}" for axis, labels in found.fronts.items() if labels]
    if not told:
        return None
    text = "On the dashed front no other variant is both cheaper and better. " + "; ".join(told)
    return element("p", f"{text}. Bars are 95 % intervals.", class_="pale")


def _score(value: float) -> str:
    return number(value, 3) if round(value * 100, 6) % 1 else number(value, 2)


def _differences(found: Comparison) -> Markup:
    out = []
    for column in found.columns():
        rows = []
        for n, v in enumerate(found.variants):
            score = found.scores[v.label].get(column)
            if score is None or (d := score.difference) is None:
                continue
            low, high = d.interval
            p = "" if d.holm is None else f"\np {chance(d.p)}, corrected {chance(d.holm)}"
            tip = (
                f"{v.label}\n{number(d.value, signed=True)} "
                f"({number(low, signed=True)} to {number(high, signed=True)}){p}"
            )
            rows.append((n, v.label, d.value, low, high, d.real, tip))
        if rows:
            title = f"{column}: differences from {found.baseline.label}"
            small = element("small", f" {found.metrics.get(column, 'aggregate')}")
            plot = plots.forest(rows, lambda v: number(v, 3, signed=True), title)
            out.append(panels.figure([column, small], plot))
    words = "Thick bars: differences that show (corrected p < .05). Bars are 95 % intervals."
    return join([element("div", out, class_="two"), element("p", words, class_="pale")])


def _depth(v: Variant) -> int | None:
    """Layers that all tasks share, where the plan says no more than that; -1 for none at all."""
    known = _plan(v)
    layers = known[0].layers if known is not None else 0
    if v.plan in ("full", "separate"):
        return {"full": layers, "separate": -1}[v.plan]
    found = re.fullmatch(r"split@(\d+)", v.plan)
    return int(found[1]) if found else None


def _depths(found: Comparison) -> Markup | None:
    """Each score over the number of shared layers, where that is what varies."""
    if any(set(v.settings) - {"plan"} for v in found.variants):
        return None
    deep = sorted((d, v.label) for v in found.variants if (d := _depth(v)) is not None)
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
            out.append(panels.figure([column, small], plot))
    words = (
        "From separate encoders (none) over shared embeddings only (0) to one encoder. Bars are "
        "95 % intervals of each score; the differences above are sharper, for they are paired."
    )
    return join([element("p", words, class_="pale"), element("div", out, class_="two")])


def _layers(value: float) -> str:
    return "none" if value == -1 else f"{value:g}"


# --- the table -----------------------------------------------------------------------------------


def _table(found: Comparison) -> Markup:
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
    head = element("tr", [element("th", text) for text in heads])
    table = element(
        "table", element("thead", head), element("tbody", rows), class_="sortable scores"
    )
    return element("div", table, class_="card scroll")


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
            parts.append(element("small", f"p {chance(d.holm)}"))
    each = ", ".join(number(value) for value in score.runs)
    return element("td", parts, data_sort=f"{score.value:.6f}", data_tip=f"each seed: {each}")


def _spent(v: Variant, axis: str, base: Variant) -> Markup:
    if axis not in v.cost:
        return element("td", "", data_sort="")
    parts: list[Part] = [FORMS[axis](v.cost[axis])]
    if v is not base and base.cost.get(axis):
        parts.append(element("small", share(v.cost[axis] / base.cost[axis] - 1)))
    return element("td", parts, data_sort=f"{v.cost[axis]:.6g}")


# --- plans and learning --------------------------------------------------------------------------


def _plan(v: Variant) -> tuple[Plan, Shape] | None:
    """The plan as the model has it; None where the model's folder is gone."""
    try:
        shape = Shape(**v.config["shape"])
        tasks = v.config["tasks"]
        pooled = [name for name, task in tasks.items() if task.get("pooling", "pooler") == "pooler"]
        plan = Plan.parse(v.plan, tuple(tasks), shape.layers, heads=shape.heads, pooled=pooled)
    except (KeyError, TypeError, Mistake):
        return None
    return plan, shape


def _plans(found: Comparison) -> Markup | None:
    drawn: dict[str, Markup] = {}
    for v in found.variants:
        known = _plan(v)
        if known is not None and (key := str(known[0])) not in drawn:
            # Each picture has its own arrow head, but all give it one name.
            drawing = picture.svg(known[0]).replace("bough-arrow", f"bough-arrow-{len(drawn)}")
            drawn[key] = element("div", Markup(drawing), class_="card scroll")
    return element("div", drawn.values(), class_="plans") if drawn else None


def _gradients(found: Comparison, logs: panels.Logs) -> Markup:
    maps = panels.cosines(found, logs)
    if maps is None:
        words = "Not logged. Set training.cosines_every to see where tasks pull apart."
        return element("p", words, class_="pale")
    words = (
        "Cosine between two tasks' gradients at each shared place over the course of training: "
        "blue where they pull together, orange where they pull apart, pale where they ignore each "
        "other."
    )
    return join([element("p", words), maps])


# --- answers -------------------------------------------------------------------------------------


def _answers(found: Comparison, known: examples.Texts, gone: Sequence[str]) -> Markup:
    parts: list[Part] = [element("p", text, class_="pale") for text in gone]
    hidden = len(found.variants) - panels.MOST
    if hidden > 0:
        parts.append(element("p", f"The best {panels.MOST} variants are shown.", class_="pale"))
    for name in found.metrics:
        parts.append(element("h3", f"{name} ({found.rows[name]:,} rows)"))
        parts.append(panels.answers(found, name, examples.worst(found, name, known)))
    return join(parts)


def _contradictions(found: Comparison, known: examples.Texts) -> Markup | None:
    column = _whole(found)
    having = [v for v in found.variants if column in found.scores[v.label]]
    if not having or sum(task.paired for task in having[0].recipe.tasks.values()) < 2:
        return None
    best = max(having, key=lambda v: found.scores[v.label][column].value)
    truths: dict[str, list[str]] = {}
    for (label, name), own in found.answers.items():
        if label == best.label:
            classes, truth = own[0].labels, own[0].truth
            truths[name] = [classes[int(t)] if classes else f"{t:g}" for t in truth]
    pairs, why = examples.contradictions(best, known, truths)
    if why:
        return element("p", f"Not shown: {why}.", class_="pale")
    return panels.contradictions(pairs, f"{best.label} (seed {best.seeds[0]})")


# --- costs and method ----------------------------------------------------------------------------


def _breakdown(found: Comparison) -> Markup:
    parts: list[Part] = []
    rows = []
    for v in found.variants:
        known = _plan(v)
        if known is not None:
            rows.append((v.label, _pieces(*known, v)))
    if rows:
        key = [
            join([element("span", "", class_=f"key {kind}"), words])
            for kind, words in (("common", "all tasks"), ("some", "some"), ("own", "one task"))
        ]
        caption = ["Weights by who uses them", element("small", key)]
        plot = plots.bars(rows, lambda value: f"{value / 1e6:g} M", "Parameters by users")
        parts.append(element("div", panels.figure(caption, plot), class_="two"))
    heads = {
        "parameters": _millions, "learning_parameters": _millions, "bytes_to_serve": size,
        "bytes_with_optimiser": size, "peak_memory": size, "step_seconds": seconds,
        "training_seconds": seconds, "tokens": _millions,
    }  # fmt: skip
    words = ["variant", "parameters", "that learn", "to serve", "with optimiser", "peak memory",
             "median step", "training", "tokens read"]  # fmt: skip
    body = []
    for n, v in enumerate(found.variants):
        cells = [
            element("td", form(v.cost[key]) if key in v.cost else "", data_sort=v.cost.get(key, ""))
            for key, form in heads.items()
        ]
        body.append(element("tr", element("td", v.label), cells, data_v=n))
    head = element("tr", [element("th", text) for text in words])
    table = element(
        "table", element("thead", head), element("tbody", body), class_="sortable scores"
    )
    parts.append(element("div", table, class_="card scroll"))
    return join(parts)


def _pieces(plan: Plan, shape: Shape, v: Variant) -> list[tuple[str, float, str]]:
    """Parameters of all tasks, of some, and of one, with the places they stand at."""
    sizes = cell_parameters(plan, shape)
    kinds: dict[str, dict[str, int]] = {"common": {}, "some": {}, "own": {}}
    for cell, users in plan.users().items():
        kind = "own" if len(users) == 1 else "some" if len(users) < len(plan.tasks) else "common"
        place = cell.place.split()[0]
        kinds[kind][place] = kinds[kind].get(place, 0) + sizes[cell]
    words = {"common": "used by all tasks", "some": "used by some", "own": "one task's own"}
    out = []
    for kind, places in kinds.items():
        total = sum(places.values())
        if total:
            each = "\n".join(f"{place}: {_millions(many)}" for place, many in places.items())
            tip = f"{v.label}, {words[kind]}: {_millions(total)}\n{each}"
            out.append((kind, float(total), tip))
    return out


def _millions(value: float) -> str:
    return f"{value / 1e6:,.1f} M" if value >= 1e5 else f"{value:,.0f}"


def _method(found: Comparison) -> Markup:
    base = found.baseline
    machine = base.runs[0].environment
    packages = ", ".join(f"{k} {v}" for k, v in machine.get("packages", {}).items())
    machines = {_machine(run.environment) for v in found.variants for run in v.runs}
    facts: list[tuple[str, Part]] = [
        ("Statistics", METHOD),
        ("Encoder", str(base.recipe.encoder)),
        ("Machine", "; ".join(sorted(machines))),
        ("Versions", f"Python {machine.get('python', '?')}, {packages}"),
        ("Data", _data(found, machine)),
        ("Variants", _runs(found)),
    ]
    rows = [element("tr", element("th", name), element("td", part)) for name, part in facts]
    recipe = element(
        "details",
        element("summary", f"The recipe of {base.label}, seed {base.seeds[0]}, in full"),
        element("pre", base.runs[0].recipe_file.read_text(encoding="utf-8")),
    )
    again = element("pre", f"bough report {_places(found)} --baseline '{base.label}'")
    table = element("table", element("tbody", rows), class_="words")
    return join([element("div", table, class_="card scroll"), recipe, again])


def _places(found: Comparison) -> str:
    """The survey, or the runs one by one."""
    folders = [run.folder for v in found.variants for run in v.runs]
    parents = {folder.parent for folder in folders}
    if len(parents) == 1 and len(folders) > 1:
        parent = parents.pop()
        return str(parent.parent if parent.name == "runs" else parent)
    return " ".join(map(str, folders))


def _machine(told: dict[str, Any]) -> str:
    memory = f", {size(told['memory'])}" if told.get("memory") else ""
    gpu = f", {told['gpu']}" if told.get("gpu") else ""
    return (
        f"{told.get('processor', '?')}, {told.get('cores', '?')} cores, "
        f"{told.get('threads', '?')} threads{memory}{gpu}, {told.get('system', '?')}"
    )


def _data(found: Comparison, machine: dict[str, Any]) -> Markup:
    lines = []
    for name in found.metrics:
        own = machine.get("data", {}).get(name, {})
        told = ", ".join(f"{split} {part['rows']:,}" for split, part in own.items())
        lines.append(element("div", f"{name}: {told} rows" if told else name))
    return join(lines)


def _runs(found: Comparison) -> Markup:
    lines = []
    for v in found.variants:
        seeds = ", ".join(map(str, v.seeds))
        settings = "; ".join(f"{key}: {value}" for key, value in v.settings.items())
        words = f": seeds {seeds}; {v.steps:,} steps" + (f"; {settings}" if settings else "")
        lines.append(element("div", element("b", v.label), words))
    return join(lines)
