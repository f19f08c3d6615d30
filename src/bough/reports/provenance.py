"""How a comparison was obtained: statistics, machines, data, and the command that repeats it."""

from __future__ import annotations

import shlex
from typing import Any

from bough.comparison.compare import Comparison
from bough.formatting import size
from bough.reports.html import Markup, Part, element, join

STATISTICS = (
    "A score is the expected one over new seeds on new examples of the same kind; the 95 % "
    "intervals count both. Differences are taken on the same rows and, where both sides have "
    "the same seeds, seed by seed. p is the chance of so large a difference between like variants, "
    "corrected (Holm) for the comparisons of its column. With fewer than three seeds on a side a "
    "comparison is an anecdote."
)


def section(found: Comparison) -> Markup:
    base = found.baseline
    machine = base.runs[0].environment
    packages = ", ".join(f"{k} {v}" for k, v in machine.get("packages", {}).items())
    machines = {_machine(run.environment) for v in found.variants for run in v.runs}
    facts: list[tuple[str, Part]] = [
        ("Statistics", STATISTICS),
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
    again = element("pre", shlex.join(["bough", "report", *found.asked]))
    table = element("table", element("tbody", rows), class_="words")
    return join([element("div", table, class_="card scroll"), recipe, again])


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
