"""Tasks that variants are not shown to have learned anything of but which class is the commonest.

The test is that of a single run (`scoring.evaluate.learned_nothing`), on the mean of a variant's
runs: whether new rows would show what these models know, not whether a new seed would know it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bough.formatting import and_then, number
from bough.runs.predictions import Answers
from bough.scoring import statistics
from bough.scoring.classes import commonest_share, shown_above

MOST_NAMED = 4  # variants; of more it is said how many they are


def unlearned(
    metrics: Mapping[str, str], answers: Mapping[tuple[str, str], Sequence[Answers]]
) -> dict[str, str]:
    """Task -> a note on the variants that are not shown to be above its commonest class."""
    notes = {}
    for task in (name for name, metric in metrics.items() if metric == "accuracy"):
        having = {label: runs for (label, name), runs in answers.items() if name == task}
        below: dict[str, float] = {}
        for label, runs in having.items():
            if runs[0].kind == "multilabel":
                continue  # none of its answers is the commonest
            commonest = commonest_share(runs[0].truth)
            right = np.mean([run.said == run.truth for run in runs], 0)
            if not shown_above(statistics.mean([right[None]]).interval("accuracy"), commonest):
                below[label] = float(right.mean())
        if below:
            notes[task] = (
                f"{task}: accuracy {_not_shown(below, len(having))} to be above "
                f"{number(commonest)}, which always answering the commonest class would have"
            )
    return notes


def _not_shown(below: Mapping[str, float], variants: int) -> str:
    """Of which variants it is not shown, and what they have."""
    low, high = number(min(below.values())), number(max(below.values()))
    reach = low if low == high else f"{low} to {high}"
    if variants == 1:
        return f"{reach} is not shown"
    if len(below) == variants:
        return f"is not shown by any variant ({reach})"
    if len(below) > MOST_NAMED:
        return f"is not shown by {len(below)} of {variants} variants ({reach})"
    named = and_then([f"{label} ({number(value)})" for label, value in below.items()])
    return f"is not shown by {named}"
