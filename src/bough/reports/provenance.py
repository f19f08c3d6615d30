"""How a comparison was obtained: machines, versions, data, and the command that repeats it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from bough.comparison.compare import Comparison
from bough.formatting import size


@dataclass(frozen=True)
class Provenance:
    machines: list[str]
    python: str
    packages: dict[str, str]
    rows: dict[str, dict[str, int]]  # task -> split -> rows
    recipe: str  # of the baseline's first run, in full
    command: str


def provenance(comparison: Comparison) -> Provenance:
    first = comparison.baseline.runs[0]
    machines = {_machine(run.environment) for v in comparison.variants for run in v.runs}
    data = first.environment.get("data", {})
    return Provenance(
        machines=sorted(machines),
        python=first.environment.get("python", "?"),
        packages=first.environment.get("packages", {}),
        rows={
            name: {split: part["rows"] for split, part in data.get(name, {}).items()}
            for name in comparison.metrics
        },
        recipe=first.recipe_file.read_text(encoding="utf-8"),
        command=shlex.join(["bough", "report", *comparison.asked]),
    )


def _machine(facts: dict[str, Any]) -> str:
    memory = f", {size(facts['memory'])}" if facts.get("memory") else ""
    gpu = f", {facts['gpu']}" if facts.get("gpu") else ""
    return (
        f"{facts.get('processor', '?')}, {facts.get('cores', '?')} cores, "
        f"{facts.get('threads', '?')} threads{memory}{gpu}, {facts.get('system', '?')}"
    )
