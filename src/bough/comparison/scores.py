"""What each variant scores, and how much more than the baseline, task by task and in aggregate.

How scores, differences and their intervals are estimated is in `scoring.statistics`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bough.comparison.groups import Variant
from bough.recipe.tasks import SIGNED
from bough.runs.predictions import Answers
from bough.scoring import statistics
from bough.scoring.metrics import aggregate_weights
from bough.scoring.pseudo_values import pseudo_values
from bough.scoring.statistics import Estimate, Tables


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


Scores = dict[str, dict[str, Score]]  # variant -> task or aggregate -> score


def score_all(
    variants: Sequence[Variant],
    base: Variant,
    metrics: Mapping[str, str],
    answers: Mapping[tuple[str, str], Sequence[Answers]],
) -> Scores:
    """The scores of all variants; one that has not some task has a gap there."""
    tables = {
        (label, name): np.array(
            [pseudo_values(metrics[name], a.said, a.truth, len(a.labels))[1] for a in several]
        )
        for (label, name), several in answers.items()
    }
    columns = {name: ([name], [1.0], 0.0) for name in metrics}
    if len(metrics) > 1:
        for name, (weights, constant) in aggregate_weights([*metrics.values()]).items():
            columns[name] = ([*metrics], weights, constant)
    scores: Scores = {v.label: {} for v in variants}
    for column, (names, weights, constant) in columns.items():
        chosen: dict[str, Tables] = {
            v.label: [tables[v.label, name] for name in names]
            for v in variants
            if all((v.label, name) in tables for name in names)
        }
        # No two scores are further apart than their metrics reach.
        reach = (2 if metrics[name] in SIGNED else 1 for name in names)
        most = sum(w * r for w, r in zip(weights, reach, strict=True))
        for v in variants:
            if v.label not in chosen:
                continue
            score = _score(chosen[v.label], weights, constant, metrics.get(column, ""))
            if v is not base and base.label in chosen:
                pair = (chosen[v.label], v.seeds, chosen[base.label], base.seeds)
                few = min(len(v.seeds), len(base.seeds))
                apart = _difference(statistics.difference(*pair, weights), most, few)
                score = replace(score, difference=apart)
            scores[v.label][column] = score
        _correct(scores, column)
    return scores


def _score(tables: Tables, weights: Sequence[float], constant: float, metric: str) -> Score:
    estimate = statistics.mean(tables, weights)
    low, high = estimate.interval(metric)
    per_seed = np.sum([w * t.mean(1) for w, t in zip(weights, tables, strict=True)], 0) + constant
    return Score(
        value=estimate.value + constant,
        interval=(low + constant, high + constant),
        error=estimate.error,
        error_of_seeds=estimate.seeds**0.5,
        error_of_examples=estimate.examples**0.5,
        runs=tuple(map(float, per_seed)),
    )


def _difference(estimate: Estimate, most: float, seeds: int) -> Difference:
    low, high = (min(max(end, -most), most) for end in estimate.interval())
    return Difference(estimate.value, (low, high), estimate.half(), estimate.p, seeds)


def _correct(scores: Scores, column: str) -> None:
    """The comparisons of one column are one family; those without a p are not in it."""
    from scipy import stats

    family = [
        (label, score, score.difference, score.difference.p)
        for label, row in scores.items()
        if (score := row.get(column)) and score.difference and score.difference.p is not None
    ]
    ps = [p for *_, p in family]
    corrected = zip(family, statistics.holm(ps), stats.false_discovery_control(ps), strict=True)
    for (label, score, difference, _), holm, bh in corrected:
        made = replace(difference, holm=holm, bh=float(bh))
        scores[label][column] = replace(score, difference=made)
