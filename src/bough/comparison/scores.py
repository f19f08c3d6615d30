"""What each variant scores, and how much more than the baseline, task by task and in aggregate.

How scores, differences and their intervals are estimated is in `scoring.statistics`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bough.comparison.groups import FEW, Variant
from bough.recipe.kinds import SIGNED, UNITS
from bough.runs.predictions import Answers
from bough.scoring import statistics
from bough.scoring.metrics import AGGREGATES, aggregate_weights
from bough.scoring.pseudo_values import pseudo_values
from bough.scoring.statistics import Estimate, Tables

# A loss that stays below, by its interval, counts as none. A judgement: two points in a hundred are
# less than the score of one run on 1,000 rows is uncertain by (± .03).
MARGIN = 0.02
MOST_SEEDS = 50  # more than anyone will train


@dataclass(frozen=True)
class Difference:
    """How much more than the baseline, and the chance of that much from two like plans."""

    value: float
    interval: tuple[float, float]
    half: float
    p: float | None
    seeds: int  # of the side that has fewer
    looks: int = 1  # at how many stages of a growing survey it was asked for
    holm: float | None = None  # corrected for all that the verdict may say, and for the looks
    bh: float | None = None
    settled_by: int | None = None  # seeds of each side; none where it is settled, or by none
    rows_settle: bool = False  # whether it would be with rows without end, and more seeds

    @property
    def open(self) -> bool:
        """Neither shown nor, by its interval, too small to matter; anecdotes are not asked."""
        small = max(map(abs, self.interval)) < MARGIN
        return self.seeds >= FEW and not self.real and not small

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
    looks: Mapping[str, int] | None = None,
    split: str = "dev",
) -> Scores:
    """The scores of all variants; one that has not some task has a gap there.

    `looks` says of a variant how often it was held against the base, where that was oftener than
    this once.
    """
    common = _places(variants, [*metrics], answers, split)
    tables = {
        (label, name): np.array([pseudo_values(metrics[name], *a.judged)[1] for a in several])
        for (label, name), several in answers.items()
    }
    columns = {name: ([name], [1.0], 0.0) for name in metrics}
    if len(metrics) > 1:
        for name, (weights, constant) in aggregate_weights([*metrics.values()]).items():
            columns[name] = ([*metrics], weights, constant)
    scores: Scores = {v.label: {} for v in variants}
    estimates: dict[tuple[str, str], Estimate] = {}
    for column, (names, weights, constant) in columns.items():
        chosen: dict[str, Tables] = {
            v.label: [tables[v.label, name] for name in names]
            for v in variants
            if all((v.label, name) in tables for name in names)
        }
        places = [common[name] for name in names]
        # No two scores are further apart than their metrics reach.
        ends = [_ends(metrics[name]) for name in names]
        low, high = (
            constant + sum(w * end for w, end in zip(weights, side, strict=True))
            for side in zip(*ends, strict=True)
        )
        for v in variants:
            if v.label not in chosen:
                continue
            estimate = statistics.mean(chosen[v.label], weights, places)
            per_seed = [w * t.mean(1) for w, t in zip(weights, chosen[v.label], strict=True)]
            runs = tuple(map(float, np.sum(per_seed, 0) + constant))
            score = _score(estimate, runs, constant, metrics.get(column, ""), (low, high))
            if v is not base and base.label in chosen:
                pair = (chosen[v.label], v.seeds, chosen[base.label], base.seeds)
                few = min(len(v.seeds), len(base.seeds))
                estimate = statistics.difference(*pair, weights, places)
                estimates[v.label, column] = estimate
                apart = _difference(estimate, high - low, few)
                apart = replace(apart, looks=(looks or {}).get(v.label, 1))
                score = replace(score, difference=apart)
            scores[v.label][column] = score
    correct(scores, metrics)
    _settle(scores, estimates, claim_weights(metrics))
    return scores


def _ends(metric: str) -> tuple[float, float]:
    """The lowest and the highest score that there can be."""
    if metric in UNITS:
        return -math.inf, 0.0
    return (-1.0 if metric in SIGNED else 0.0), 1.0


def _places(
    variants: Sequence[Variant],
    tasks: Sequence[str],
    answers: Mapping[tuple[str, str], Sequence[Answers]],
    split: str,
) -> dict[str, NDArray[np.intp]]:
    """Where each task's rows are among those of all tasks: tasks on one table have rows in common,
    which are known by their ids."""
    ids = {name: several[0].ids for (_, name), several in answers.items()}
    numbers: dict[tuple[str, str, int], int] = {}
    places = {}
    for at, name in enumerate(tasks):
        first = next((t for t in tasks[:at] if _on_one_table(variants, t, name, split)), name)
        seen: Counter[str] = Counter()
        mine = []
        for row in ids[name]:
            mine.append(numbers.setdefault((first, row, seen[row]), len(numbers)))
            seen[row] += 1  # an id that is there twice is two rows
        places[name] = np.array(mine)
    return places


def _on_one_table(variants: Sequence[Variant], one: str, other: str, split: str) -> bool:
    having = (v.recipe.tasks for v in variants if {one, other} <= v.recipe.tasks.keys())
    return any(getattr(tasks[one], split) == getattr(tasks[other], split) for tasks in having)


def _score(
    estimate: Estimate,
    runs: tuple[float, ...],
    constant: float,
    metric: str,
    bounds: tuple[float, float],
) -> Score:
    """With an interval that stays where such scores can be."""
    ends = (end + constant for end in estimate.interval(metric))
    low, high = (min(max(end, bounds[0]), bounds[1]) for end in ends)
    return Score(
        value=estimate.value + constant,
        interval=(low, high),
        error=estimate.error,
        error_of_seeds=estimate.seeds**0.5,
        error_of_examples=estimate.examples**0.5,
        runs=runs,
    )


def _difference(estimate: Estimate, most: float, seeds: int) -> Difference:
    low, high = (min(max(end, -most), most) for end in estimate.interval())
    return Difference(estimate.value, (low, high), estimate.half(), estimate.p, seeds)


def claim_weights(tasks: Collection[str]) -> dict[str, float]:
    """The columns of which the verdict may claim something, by their shares of the 5 %.

    The mean has half the weight of all its tasks together, so that many tasks do not drown it.
    """
    return {**dict.fromkeys(tasks, 1.0), AGGREGATES[-1]: len(tasks) / 2}


def correct(scores: Scores, tasks: Collection[str]) -> None:
    """All that the verdict may claim is one family: each variant's tasks, and their mean.

    What stands in no sentence, or has no p, is not in the family. Anecdotes are one of their own:
    variants that have only begun take nothing from the others.
    """
    from scipy import stats

    weights = claim_weights(tasks)
    claims = [
        (label, column, difference, min(difference.p * look_factor(difference.looks), 1.0))
        for label, row in scores.items()
        for column, score in row.items()
        if column in weights and (difference := score.difference) and difference.p is not None
    ]
    for enough in (True, False):
        family = [claim for claim in claims if (claim[2].seeds >= FEW) == enough]
        ps = [p for *_, p in family]
        holm = statistics.holm(ps, [weights[column] for _, column, *_ in family])
        corrected = zip(family, holm, stats.false_discovery_control(ps), strict=True)
        for (label, column, difference, _), of_holm, of_bh in corrected:
            made = replace(difference, holm=of_holm, bh=float(of_bh))
            scores[label][column] = replace(scores[label][column], difference=made)


def _settle(
    scores: Scores, estimates: Mapping[tuple[str, str], Estimate], weights: Mapping[str, float]
) -> None:
    """Say of what is open how many seeds would decide it."""
    # What is shown has passed its share on to the others; anecdotes take none.
    claims = {
        place: (estimate, apart)
        for place, estimate in estimates.items()
        if place[1] in weights
        and (apart := scores[place[0]][place[1]].difference)
        and apart.seeds >= FEW
        and apart.p is not None
        and not apart.real
    }
    all_claims = sum(weights[column] for _, column in claims)
    for (label, column), (estimate, apart) in claims.items():
        if apart.open:
            level = 0.05 * weights[column] / all_claims
            endless = _settled_by(replace(estimate, examples=0.0), apart, level)
            apart = replace(
                apart,
                settled_by=_settled_by(estimate, apart, level),
                rows_settle=endless is not None,
            )
            scores[label][column] = replace(scores[label][column], difference=apart)


def most_seeds(seeds: int) -> int:
    """Up to how many are thought of."""
    return max(MOST_SEEDS, 2 * seeds)


def _settled_by(estimate: Estimate, apart: Difference, level: float) -> int | None:
    """With how many seeds the difference would show, or be seen to be too small to matter.

    At even odds, for by then it will look larger or smaller. If it is as large, and the seeds
    scatter, as it looks now; at the level that is left to it among all claims, and at one more
    look.
    """
    level /= look_factor(apart.looks + 1)
    for many in range(apart.seeds + 1, most_seeds(apart.seeds) + 1):
        then = estimate.with_seeds(many)
        if then.half(1 - level) < abs(apart.value) or abs(apart.value) + then.half() < MARGIN:
            return many
    return None


def look_factor(looks: int) -> int:
    """By how much p is raised at the n-th look: all looks after the first claim 2.5 % together."""
    return 1 if looks == 1 else looks * (looks + 1)
