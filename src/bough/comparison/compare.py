"""Runs to an honest table: what a plan scores, what it costs, and whether the difference is real.

Which runs are one variant is in `groups`; how far their scores can be trusted in
`scoring.statistics`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bough.comparison import finding, groups, looks, same_data, times
from bough.comparison.groups import Variant
from bough.comparison.scores import Difference, Scores, score_all
from bough.comparison.unlearned import unlearned
from bough.errors import UserError
from bough.recipe.kinds import SIGNED
from bough.recipe.quora_caveat import contaminated
from bough.runs.predictions import Answers
from bough.scoring.metrics import AGGREGATES

AXES = {"bytes_to_serve": "bytes to serve", "step_seconds": "step time"}


@dataclass(frozen=True)
class Comparison:
    """Variants side by side. `print` shows the verdict and the tables."""

    split: str
    metrics: dict[str, str]  # task -> metric
    rows: dict[str, int]  # task -> examples judged
    variants: tuple[Variant, ...]
    baseline: Variant
    scores: Scores  # variant -> task or aggregate -> score
    notes: tuple[str, ...]
    answers: dict[tuple[str, str], tuple[Answers, ...]] = field(repr=False)  # (variant, task)
    asked: tuple[str, ...]  # as words of the command line: paths, then options

    def __str__(self) -> str:
        from bough.comparison.tables import plain

        return plain(self)

    @property
    def others(self) -> tuple[Variant, ...]:
        return tuple(v for v in self.variants if v is not self.baseline)

    def columns(self) -> list[str]:
        """Tasks, then the aggregates that some variant has; where both are the same, one."""
        signed = any(metric in SIGNED for metric in self.metrics.values())
        means = AGGREGATES if signed else AGGREGATES[-1:]
        return [
            *self.metrics,
            *(name for name in means if any(name in row for row in self.scores.values())),
        ]

    def difference(self, variant: Variant, column: str) -> Difference | None:
        """From the baseline; None where one of the two has no score there."""
        score = self.scores[variant.label].get(column)
        return score.difference if score else None

    @property
    def overall(self) -> str:
        """The column that stands for all tasks; a variant without one of them has a gap there."""
        return AGGREGATES[-1] if len(self.metrics) > 1 else next(iter(self.metrics))

    @cached_property
    def fronts(self) -> dict[str, tuple[str, ...]]:
        """Cost -> variants that no other beats in both it and the overall score."""
        fronts = {}
        for axis in AXES:
            points = {
                v.label: (v.cost[axis], self.scores[v.label][self.overall].value)
                for v in self.variants
                if axis in v.cost and self.overall in self.scores[v.label]
            }
            if len(points) > 1:
                fronts[axis] = pareto(points)
        return fronts

    @cached_property
    def unlearned(self) -> dict[str, str]:
        """Task -> a note, where variants are not shown to know more than its commonest class."""
        return unlearned(self.metrics, self.answers)

    @property
    def relative_forms(self) -> tuple[str, ...]:
        """Those of `relative`; none where times cannot be compared."""
        return ("printed", "steady") if self.baseline.timed else ()

    def relative(self, variant: Variant, form: str) -> float | None:
        """Score x (base time / time) x (base memory / memory), as printed or steady.

        *printed* takes the time of all steps and the checkpoint with its optimiser; *steady* the
        median step and the bytes that serving needs, which hang less on what else ran.
        """
        time, memory = {
            "printed": ("training_seconds", "bytes_with_optimiser"),
            "steady": ("step_seconds", "bytes_to_serve"),
        }[form]
        column = "raw" if len(self.metrics) > 1 else self.overall
        score, cost, base = self.scores[variant.label].get(column), variant.cost, self.baseline.cost
        if score is None or any(not c.get(key) for c in (cost, base) for key in (time, memory)):
            return None
        return score.value * base[time] / cost[time] * base[memory] / cost[memory]

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
            "notes": [*self.unlearned.values(), *self.notes],
        }


def compare(
    paths: str | Path | Iterable[str | Path],
    *,
    baseline: str | None = None,
    split: str = "dev",
    tasks: Sequence[str] | None = None,
) -> Comparison:
    """Say what runs score, what they cost, and which differences are real.

    Args:
        paths: Run directories, directories of surveys, or folders of runs. Runs that differ by
            nothing but their seed are one variant.
        baseline: The variant that the others are held against, by its label or its plan. Left out,
            the survey's, where all runs are of one, or the one that shares least.
        split: Which rows; their labels must be known.
        tasks: The tasks to compare, where not all runs have the same; a variant without one of
            them has a gap there and no aggregates. Left out, those that count in every run's own
            means.

    Raises:
        UserError: The runs were not judged on the same rows, or there is nothing to compare.

    Example:
        >>> comparison = bough.compare(["runs/first", "runs/second"], baseline="full")
        >>> sorted(comparison.scores)
        ['full', 'split@1']
    """
    asked = [str(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    given = tuple(asked)
    runs, notes = finding.finished(finding.find_runs(given))
    recipes = [run.recipe(unset="keep") for run in runs]
    chosen, helping = groups.common_tasks(runs, recipes, tasks)
    runs, recipes, without = groups.having(runs, recipes, chosen)
    same_data.check_rows(runs, recipes, chosen, split)
    same_data.check_sources(runs, recipes)
    variants, duplicates = groups.group(runs, recipes)
    answers = {
        (v.label, name): tuple(Answers.read(run, name, split, chosen[name].kind) for run in v.runs)
        for v in variants
        for name in chosen
        if name in v.recipe.tasks
    }
    firsts = _same_truth(answers, split)
    variants, answers, copies = groups.without_copies(variants, answers)
    of_run = {run.folder: recipe for run, recipe in zip(runs, recipes, strict=True)}
    variants, untimed = times.only_alike(variants, of_run)
    base = groups.choose_baseline(variants, baseline)
    others = [v for v in variants if v is not base]
    looked, further_looks = looks.count(others, base, looks.earlier(given, split))
    metrics = {name: task.metric_name for name, task in chosen.items()}
    scores = score_all(variants, base, metrics, answers, looked, split)
    rows = {name: len(firsts[name].ids) for name in chosen}
    notes += finding.left_surveys(given) + helping + without + duplicates + copies + further_looks
    notes += untimed + _caveats(variants, chosen, split)
    looks.remember(given, runs, split)
    options = {"--baseline": baseline, "--split": split, "--tasks": ",".join(tasks or ())}
    asked += [word for option, value in options.items() if value for word in (option, value)]
    return Comparison(
        split, metrics, rows, variants, base, scores, tuple(notes), answers, tuple(asked)
    )


def _same_truth(
    answers: Mapping[tuple[str, str], Sequence[Answers]], split: str
) -> dict[str, Answers]:
    """Of each task the first run's answers; all others must have the same classes and labels."""
    firsts: dict[str, Answers] = {}
    for (label, name), several in answers.items():
        for one in several:
            first = firsts.setdefault(name, one)
            if first.labels != one.labels or not np.array_equal(first.truth, one.truth):
                raise UserError(
                    f"{label}: predictions/{name}-{split}.csv has other labels than the other "
                    "runs'; only runs on the same data can be compared"
                )
    return firsts


def pareto(points: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """Those that no other beats: none costs no more and scores no less, and is better in one."""

    def beaten(cost: float, score: float) -> bool:
        return any(c <= cost and s >= score and (c < cost or s > score) for c, s in points.values())

    front = [name for name, (cost, score) in points.items() if not beaten(cost, score)]
    return tuple(sorted(front, key=lambda name: points[name]))


def _facts(variants: Sequence[Variant], task: str, split: str) -> dict[str, Any]:
    """What a run knows of the rows, which all runs have in common."""
    run = next(v.runs[0] for v in variants if task in v.recipe.tasks)
    return dict(run.environment["data"][task][split])


def _caveats(variants: Sequence[Variant], tasks: Iterable[str], split: str) -> list[str]:
    seen = {
        n for v in variants if v.config for n in contaminated(tasks, v.config.facts.model_dump())
    }
    notes = [
        f"{name}: the encoder was trained on Quora's duplicates before, so this score flatters it; "
        "differences between plans are less affected"
        for name in tasks
        if name in seen
    ]
    for name in tasks:
        facts = _facts(variants, name, split)
        if facts.get("repeated"):
            notes.append(
                f"{facts['repeated']:,} of {facts['rows']:,} {split} rows of {name} repeat the "
                "texts of others; intervals take them for rows of their own, so they are a little "
                "narrow"
            )
    if split == "dev":
        notes.append("dev rows also picked each run's best moment, so dev scores are a little high")
    steps = sorted({v.steps for v in variants})
    if len(steps) > 1:
        notes.append(f"budgets differ: the variants trained for {steps[0]} to {steps[-1]} steps")
    return notes
