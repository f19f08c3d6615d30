"""What variants are made of: their plans, drawn, and their weights, by who uses them."""

from __future__ import annotations

import re

from markupsafe import Markup

from bough.comparison.compare import Comparison
from bough.comparison.groups import Variant
from bough.errors import UserError
from bough.formatting import seconds, size
from bough.plan import diagram
from bough.plan.cost import cell_parameters
from bough.plan.encoder_shape import Shape
from bough.plan.plan import Plan
from bough.reports import plots
from bough.reports.plots import Piece


def _plan(variant: Variant) -> tuple[Plan, Shape] | None:
    """The plan as the model has it; None where the model's folder is gone."""
    if variant.config is None:
        return None
    shape, tasks = variant.config.shape, variant.config.tasks
    pooled = [name for name, task in tasks.items() if task.pooling == "pooler"]
    try:
        plan = Plan.parse(
            variant.plan, tuple(tasks), shape.layers, heads=shape.heads, pooled=pooled
        )
    except UserError:
        return None
    return plan, shape


def drawings(comparison: Comparison) -> list[Markup]:
    """Each plan drawn once, however many variants have it."""
    plans = {str(known[0]): known[0] for v in comparison.variants if (known := _plan(v))}
    return [Markup(diagram.svg(plan)) for plan in plans.values()]


def shared_layers(variant: Variant) -> int | None:
    """Layers that all tasks share, where they are known and the plan says no more than that; -1 for
    none at all."""
    if variant.plan == "separate":
        return -1
    if variant.plan == "full":
        known = _plan(variant)  # without the model nobody knows how many layers it has
        return None if known is None else known[0].layers
    split = re.fullmatch(r"split@(\d+)", variant.plan)
    return int(split[1]) if split else None


def millions(value: float) -> str:
    return f"{value / 1e6:,.1f} M" if value >= 1e5 else f"{value:,.0f}"


COSTS = {  # heading -> key of a run's costs, and how its value is written
    "parameters": ("parameters", millions),
    "that learn": ("learning_parameters", millions),
    "to serve": ("bytes_to_serve", size),
    "with optimiser": ("bytes_with_optimiser", size),
    "peak memory": ("peak_memory", size),
    "median step": ("step_seconds", seconds),
    "training": ("training_seconds", seconds),
    "tokens read": ("tokens", millions),
}
USERS = {"common": "used by all tasks", "some": "used by some", "own": "one task's own"}


def weights_by_users(comparison: Comparison) -> Markup | None:
    """A bar per variant whose model is known."""
    bars = [(v.label, _pieces(*known, v)) for v in comparison.variants if (known := _plan(v))]
    if not bars:
        return None
    return plots.bars(bars, lambda value, _: f"{value / 1e6:g} M", "Parameters by users")


def _pieces(plan: Plan, shape: Shape, variant: Variant) -> list[Piece]:
    """Parameters of all tasks, of some, and of one, with the places they stand at."""
    sizes = cell_parameters(plan, shape)
    places: dict[str, dict[str, int]] = {kind: {} for kind in USERS}
    for cell, users in plan.users().items():
        kind = "own" if len(users) == 1 else "some" if len(users) < len(plan.tasks) else "common"
        place = cell.place.split()[0]
        places[kind][place] = places[kind].get(place, 0) + sizes[cell]
    pieces = []
    for kind, counts in places.items():
        if total := sum(counts.values()):
            each = "\n".join(f"{place}: {millions(count)}" for place, count in counts.items())
            tip = f"{variant.label}, {USERS[kind]}: {millions(total)}\n{each}"
            pieces.append(Piece(kind, float(total), tip))
    return pieces
