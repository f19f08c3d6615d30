"""Whether the runs' times can be held against each other: a step's hangs on what computed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bough.comparison.groups import Variant
from bough.formatting import and_then
from bough.recipe.recipe import Recipe
from bough.runs.run_dir import Run


def only_alike(
    variants: Sequence[Variant], recipes: Mapping[Path, Recipe]
) -> tuple[tuple[Variant, ...], list[str]]:
    """The variants, without times and with a note where their runs were not computed alike.

    `recipes` are by the runs' folders. What tells the variants apart may differ: whoever varies
    the threads asks for the times.
    """
    told = {key for v in variants for key in v.settings}
    known = [_computed_by(run, recipes[run.folder]) for v in variants for run in v.runs]
    unlike = []
    for what in known[0]:
        values = {str(facts[what]) for facts in known if facts[what] is not None}
        if len(values) > 1 and what not in told:
            unlike.append(f"{what.rpartition('.')[2]} {and_then(sorted(values))}")
    if not unlike:
        return tuple(variants), []
    note = f"times are not compared, for the runs were not computed alike: {'; '.join(unlike)}"
    return tuple(replace(v, timed=False) for v in variants), [note]


def _computed_by(run: Run, recipe: Recipe) -> dict[str, Any]:
    """By the recipe's keys, where there is one; None where the run does not say."""
    facts = run.environment
    device = facts.get("device") or recipe.device.partition(":")[0]
    gpu = (facts["gpu"] or "none") if "gpu" in facts and device != "cpu" else None
    return {
        "processor": facts.get("processor") or None,
        "gpu": gpu,
        "device": None if device == "auto" else device,
        "threads": facts.get("threads"),
        "processes": facts.get("processes", 1),
        "kernels": facts.get("kernels"),
        "training.keep_states": recipe.training.keep_states,
        "training.cosines_every": recipe.training.cosines_every,
    }
