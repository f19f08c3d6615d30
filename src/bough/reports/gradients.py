"""Where gradients agree: the cosine between those of two tasks, per place over the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bough.comparison.compare import Comparison
from bough.formatting import number
from bough.reports import plots
from bough.reports.curves import Logs, whole
from bough.reports.plots import Figure

COLUMNS = 32  # moments of a map


@dataclass(frozen=True)
class CosineMaps:
    """One variant's, a map per pair of tasks."""

    label: str
    figures: list[Figure]


def cosine_maps(comparison: Comparison, logs: Logs) -> list[CosineMaps]:
    """Of the variants that logged cosines."""
    logged = []
    for v in comparison.variants:
        lines = [entry for seed in logs[v.label] for entry in seed if entry.get("cosines")]
        cosines = [
            pair for e in lines for at_place in e["cosines"].values() for pair in at_place.items()
        ]
        pairs = dict.fromkeys(pair for pair, value in cosines if _known(value))
        if pairs:
            logged.append(CosineMaps(v.label, [_map(lines, pair, v.label) for pair in pairs]))
    return logged


def _known(cosine: float | None) -> bool:
    return cosine is not None and math.isfinite(cosine)


def _map(lines: Sequence[dict[str, Any]], pair: str, label: str) -> Figure:
    """Places down, time across, the cosine as colour."""
    places = list(dict.fromkeys(p for e in lines for p, at in e["cosines"].items() if pair in at))
    steps = sorted({int(entry["step"]) for entry in lines})
    many = min(COLUMNS, len(steps))
    column = {step: i * many // len(steps) for i, step in enumerate(steps)}
    total, count = np.zeros((len(places), many)), np.zeros((len(places), many))
    for entry in lines:
        for row, place in enumerate(places):
            value = entry["cosines"].get(place, {}).get(pair)
            if _known(value):
                total[row, column[int(entry["step"])]] += value
                count[row, column[int(entry["step"])]] += 1
    means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    heads = [""] * many
    for step in reversed(steps):
        heads[column[step]] = whole(step)
    a, _, b = pair.partition("+")
    mean, reach = float(np.nanmean(means)), max(0.1, float(np.nanquantile(np.abs(means), 0.98)))
    note = f"mean {number(mean, 2, signed=True)}, full colour from {number(reach, 2)}"
    title = f"{label}: cosine between the gradients of {a} and {b}, per place over steps"
    return Figure(
        f"{a} and {b}", note, plots.heat(means, heads, places, "step", title, reach=reach)
    )
