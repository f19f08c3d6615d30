"""Runs to an honest table: what a plan scores, what it costs, and whether the difference is real.

Which runs are one variant is in `variants`; how far their scores can be trusted in `statistics`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bough.comparison.groups import (
    Variant,
    check_rows,
    choose_baseline,
    common_tasks,
    find_runs,
    finished,
    group,
)
from bough.comparison.scores import AGGREGATES, Score, score_all
from bough.errors import UserError
from bough.recipe.labels import in_order
from bough.recipe.recipe import Recipe
from bough.recipe.tasks import Task
from bough.runs.predictions import Answers

FEW = 3  # with fewer seeds a comparison is an anecdote
AXES = {
    "bytes_to_serve": "bytes to serve",
    "step_seconds": "step time",
    "latency_seconds": "latency",
}


@dataclass(frozen=True)
class Comparison:
    """Variants side by side."""

    split: str
    metrics: dict[str, str]  # task -> metric
    rows: dict[str, int]  # task -> examples judged
    variants: tuple[Variant, ...]
    baseline: Variant
    scores: dict[str, dict[str, Score]]  # variant -> task or aggregate -> score
    notes: tuple[str, ...]
    answers: dict[tuple[str, str], tuple[Answers, ...]] = field(repr=False)  # (variant, task)
    asked: tuple[str, ...]  # as words of the command line: paths, then options

    @property
    def others(self) -> tuple[Variant, ...]:
        return tuple(v for v in self.variants if v is not self.baseline)

    def columns(self) -> list[str]:
        """Tasks, then the aggregates that some variant has."""
        found = [a for a in AGGREGATES if any(a in own for own in self.scores.values())]
        return [*self.metrics, *found]

    @property
    def overall(self) -> str:
        """The column that stands for all tasks; a variant without one of them has a gap there."""
        return AGGREGATES[-1] if len(self.metrics) > 1 else next(iter(self.metrics))

    @cached_property
    def fronts(self) -> dict[str, tuple[str, ...]]:
        """Cost -> variants that no other beats in both it and the overall score."""
        found = {}
        for axis in AXES:
            points = {
                v.label: (v.cost[axis], self.scores[v.label][self.overall].value)
                for v in self.variants
                if axis in v.cost and self.overall in self.scores[v.label]
            }
            if len(points) > 1:
                found[axis] = pareto(points)
        return found

    def relative(self, variant: Variant, form: str) -> float | None:
        """Score x (base time / time) x (base memory / memory), as printed or steady.

        *printed* takes the whole run's clock and the checkpoint with its optimiser; *steady* the
        median step and the bytes that serving needs, which do not hang on what else ran.
        """
        time, memory = {
            "printed": ("training_seconds", "bytes_with_optimiser"),
            "steady": ("step_seconds", "bytes_to_serve"),
        }[form]
        column = "raw" if len(self.metrics) > 1 else self.overall
        score, own, base = self.scores[variant.label].get(column), variant.cost, self.baseline.cost
        if score is None or any(not c.get(key) for c in (own, base) for key in (time, memory)):
            return None
        return score.value * base[time] / own[time] * base[memory] / own[memory]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "split": self.split,
            "metrics": self.metrics,
            "rows": self.rows,
            "baseline": self.baseline.label,
            "variants": [
                {
                    "label": v.label,
                    "plan": v.plan,
                    "settings": v.settings,
                    "seeds": list(v.seeds),
                    "runs": [str(run.folder) for run in v.runs],
                    "scores": {n: asdict(score) for n, score in self.scores[v.label].items()},
                    "cost": v.cost,
                    "steps": v.steps,
                    "relative": {f: self.relative(v, f) for f in ("printed", "steady")},
                }
                for v in self.variants
            ],
            "fronts": {axis: list(labels) for axis, labels in self.fronts.items()},
            "notes": list(self.notes),
        }


def compare(
    paths: Iterable[str | Path],
    *,
    baseline: str | None = None,
    split: str = "dev",
    tasks: Sequence[str] | None = None,
) -> Comparison:
    """Compare runs, with intervals and paired tests; runs that differ by their seed are one.

    Args:
        paths: Run directories, surveys, folders of runs.
        baseline: The variant that the others are held against, by its label.
        split: Which rows: `dev` or `test`.
        tasks: Those to be compared, where runs have different ones; a variant without one of them
            has a gap there and no aggregates.

    Example:
        >>> comparison = bough.compare(["runs/first", "runs/second"], baseline="full")
        >>> sorted(comparison.scores)
        ['full', 'split@1']
    """
    asked = [str(path) for path in paths]
    runs, notes = finished(find_runs(asked))
    recipes = [Recipe.read(run.recipe_file) for run in runs]
    chosen = common_tasks(runs, recipes, tasks)
    check_rows(runs, recipes, chosen, split)
    variants, twice = group(runs, recipes)
    notes += twice
    base = choose_baseline(variants, baseline)
    answers = {
        (v.label, name): tuple(Answers.read(run, name, split) for run in v.runs)
        for v in variants
        for name in chosen
        if name in v.recipe.tasks
    }
    _same_answers(answers, split)
    metrics = {name: task.metric_name for name, task in chosen.items()}
    scores = score_all(variants, base, metrics, answers)
    rows = {n: len(next(a[0].ids for key, a in answers.items() if key[1] == n)) for n in chosen}
    notes += _caveats(variants, chosen, split)
    options = {"baseline": baseline, "split": split, "tasks": ",".join(tasks or ())}
    asked += [word for key, own in options.items() if own for word in (f"--{key}", own)]
    return Comparison(
        split, metrics, rows, variants, base, scores, tuple(notes), answers, tuple(asked)
    )


def _same_answers(answers: Mapping[tuple[str, str], Sequence[Answers]], split: str) -> None:
    first: dict[str, Answers] = {}
    for (label, name), own in answers.items():
        for one in own:
            known = first.setdefault(name, one)
            if known.labels != one.labels or not np.array_equal(known.truth, one.truth):
                raise UserError(
                    f"{label}: predictions/{name}-{split}.csv has other labels than the other "
                    "runs'; only runs on the same data can be compared"
                )


def pareto(points: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """Those that no other beats: none costs no more and scores no less, and is better in one."""

    def beaten(cost: float, score: float) -> bool:
        return any(c <= cost and s >= score and (c < cost or s > score) for c, s in points.values())

    front = [name for name, (cost, score) in points.items() if not beaten(cost, score)]
    return tuple(sorted(front, key=lambda name: points[name]))


def _caveats(variants: Sequence[Variant], tasks: Mapping[str, Task], split: str) -> list[str]:
    notes = []
    seen = any(v.config and v.config.facts.saw_quora for v in variants)
    for name, task in tasks.items():
        said = " ".join([name, *(str(s) for s in (task.train, task.dev) if isinstance(s, str))])
        if seen and re.search(r"quora|qqp", said, re.IGNORECASE):
            notes.append(
                f"{name}: the encoder was trained on Quora's duplicates before, so this score "
                "flatters it; differences between plans are less affected"
            )
    if split == "dev":
        notes.append("dev rows also picked each run's best moment, so dev scores are a little high")
    steps = in_order(str(v.steps) for v in variants)
    if len(steps) > 1:
        notes.append(f"budgets differ: the variants trained for {steps[0]} to {steps[-1]} steps")
    return notes
