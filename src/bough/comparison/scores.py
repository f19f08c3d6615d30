"""What each variant scores, and how much more than the baseline, task by task and in aggregate.

How scores, differences and their intervals are estimated is in `statistics`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bough.comparison.groups import Variant
from bough.recipe.tasks import SIGNED
from bough.runs.predictions import Answers
from bough.scoring import statistics
from bough.scoring.statistics import Estimate, Floats

AGGREGATES = ("raw", "normalised")


@dataclass(frozen=True)
class Difference:
    """How much more than the baseline, and the chance of that much from two like plans."""

    value: float
    interval: tuple[float, float]
    half: float
    p: float | None
    seeds: int  # of the side that has fewer
    holm: float | None = None
    bh: float | None = None

    @property
    def real(self) -> bool:
        """Whether the seeds and examples at hand can show it."""
        return self.holm is not None and self.holm < 0.05


@dataclass(frozen=True)
class Score:
    """A variant's score in one task, or an aggregate of all."""

    value: float
    interval: tuple[float, float]
    error: float
    error_of_seeds: float  # standard error if only the seeds were drawn anew
    error_of_examples: float  # and if only the examples were
    runs: tuple[float, ...]  # each seed's own
    difference: Difference | None = None  # none for the baseline


def score_all(
    variants: Sequence[Variant],
    base: Variant,
    metrics: Mapping[str, str],
    answers: Mapping[tuple[str, str], Sequence[Answers]],
) -> dict[str, dict[str, Score]]:
    """Variant -> task or aggregate -> score; a variant without some task has a gap there."""
    tables: dict[tuple[str, str], Floats] = {}
    for (label, name), several in answers.items():
        tables[label, name] = np.array(
            [statistics.shares(metrics[name], a.said, a.truth, len(a.labels))[1] for a in several]
        )
    columns = {name: ([name], [1.0], 0.0) for name in metrics} | _aggregates(metrics)
    found: dict[str, dict[str, Score]] = {v.label: {} for v in variants}
    for column, (names, weights, offset) in columns.items():
        having = [v for v in variants if all((v.label, name) in tables for name in names)]
        kind = metrics.get(column, "")
        for variant in having:
            own = [tables[variant.label, name] for name in names]
            made = statistics.mean(own, weights)
            each = np.sum([w * t.mean(1) for w, t in zip(weights, own, strict=True)], 0) + offset
            apart = None
            if variant is not base and base in having:
                against = [tables[base.label, name] for name in names]
                delta = statistics.difference(own, variant.seeds, against, base.seeds, weights)
                few = min(len(variant.seeds), len(base.seeds))
                # No two scores are further apart than their metrics reach.
                reach = (2 if metrics[name] in SIGNED else 1 for name in names)
                most = sum(w * r for w, r in zip(weights, reach, strict=True))
                low, high = (min(max(end, -most), most) for end in delta.interval())
                apart = Difference(delta.value, (low, high), delta.half(), delta.p, few)
            found[variant.label][column] = _score(made, offset, kind, each, apart)
        _correct(found, column)
    return found


def _aggregates(metrics: Mapping[str, str]) -> dict[str, tuple[list[str], list[float], float]]:
    """Each aggregate as a weighted sum of the tasks' scores and a constant."""
    if len(metrics) < 2:
        return {}
    names, n = list(metrics), len(metrics)
    signed = [metric in SIGNED for metric in metrics.values()]
    return {
        "raw": (names, [1 / n] * n, 0.0),
        "normalised": (names, [(0.5 if s else 1) / n for s in signed], sum(signed) * 0.5 / n),
    }


def _score(
    made: Estimate, offset: float, kind: str, each: Floats, apart: Difference | None
) -> Score:
    low, high = made.interval(kind=kind)
    return Score(
        value=made.value + offset,
        interval=(low + offset, high + offset),
        error=made.error,
        error_of_seeds=made.seeds**0.5,
        error_of_examples=made.examples**0.5,
        runs=tuple(float(value) for value in each),
        difference=apart,
    )


def _correct(found: dict[str, dict[str, Score]], column: str) -> None:
    """The comparisons of one column are one family."""
    family = [
        (label, own[column], own[column].difference)
        for label, own in found.items()
        if column in own
    ]
    told = [(label, score, d) for label, score, d in family if d is not None and d.p is not None]
    ps = [d.p for _, _, d in told if d.p is not None]
    both = zip(told, statistics.holm(ps), statistics.benjamini_hochberg(ps), strict=True)
    for (label, score, d), holm, bh in both:
        found[label][column] = replace(score, difference=replace(d, holm=holm, bh=bh))
