"""What variants are made of: their plans, drawn, and their weights, by who uses them."""

from __future__ import annotations

import re

from bough.comparison.compare import Comparison
from bough.comparison.groups import Variant
from bough.errors import UserError
from bough.formatting import seconds, size
from bough.plan import diagram
from bough.plan.cost import cell_parameters
from bough.plan.encoder_shape import Shape
from bough.plan.plan import Plan
from bough.reports import plots
from bough.reports.html import Markup, Part, element, figure, join, sortable


def _plan(v: Variant) -> tuple[Plan, Shape] | None:
    """The plan as the model has it; None where the model's folder is gone."""
    if v.config is None:
        return None
    shape, tasks = v.config.shape, v.config.tasks
    pooled = [name for name, task in tasks.items() if task.pooling == "pooler"]
    try:
        plan = Plan.parse(v.plan, tuple(tasks), shape.layers, heads=shape.heads, pooled=pooled)
    except UserError:
        return None
    return plan, shape


def plans(found: Comparison) -> Markup | None:
    """Each plan drawn once, however many variants have it."""
    drawn: dict[str, Markup] = {}
    for v in found.variants:
        known = _plan(v)
        if known is not None and (key := str(known[0])) not in drawn:
            # Each picture has its own arrow head, but all give it one name.
            drawing = diagram.svg(known[0]).replace("bough-arrow", f"bough-arrow-{len(drawn)}")
            drawn[key] = element("div", Markup(drawing), class_="card scroll")
    return element("div", drawn.values(), class_="plans") if drawn else None


def shared_layers(v: Variant) -> int | None:
    """Layers that all tasks share, where the plan says no more than that; -1 for none at all."""
    known = _plan(v)
    layers = known[0].layers if known is not None else 0
    if v.plan in ("full", "separate"):
        return {"full": layers, "separate": -1}[v.plan]
    found = re.fullmatch(r"split@(\d+)", v.plan)
    return int(found[1]) if found else None


def breakdown(found: Comparison) -> Markup:
    """Weights by users as bars, and all costs as a table."""
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
        parts.append(element("div", figure(caption, plot), class_="two"))
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
    parts.append(element("div", sortable(words, body, "scores"), class_="card scroll"))
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
