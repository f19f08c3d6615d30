"""Runs to an honest table: what a plan scores, what it costs, and whether the difference is real.

Runs whose recipes differ only by seed are one *variant*. Variants are judged on the same rows and
told apart by whatever differs between them: the plan, or any other key. How scores, differences and
their intervals are made is in `statistics`.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bough import statistics
from bough.mistakes import Mistake, nearest
from bough.recipe import Recipe
from bough.runs import Run
from bough.statistics import SIGNED, Estimate, Floats
from bough.tasks import Task, in_order, listed

AGGREGATES = ("raw", "normalised")
FEW = 3  # with fewer seeds a comparison is an anecdote
AXES = {
    "bytes_to_serve": "bytes to serve",
    "step_seconds": "step time",
    "latency_seconds": "latency",
}
IGNORED = ("training.seed", "data")  # a moved folder is no variant; its contents are compared


# --- what is compared ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Answers:
    """One run's answers to one task, as its predictions file has them."""

    ids: list[str]
    truth: NDArray[Any]  # class indices, or numbers
    said: NDArray[Any]
    labels: tuple[str, ...]  # empty for numbers
    probabilities: Floats | None

    @classmethod
    def read(cls, run: Run, task: str, split: str) -> Answers:
        file = run.folder / "predictions" / f"{task}-{split}.csv"
        try:
            with open(file, encoding="utf-8", newline="") as lines:
                header, *rows = csv.reader(lines)
        except (OSError, ValueError, csv.Error):
            raise Mistake(f"{file}: no such predictions, or not readable; train anew") from None
        if "label" not in header:
            raise Mistake(
                f"{file}: the {split} rows have no labels to judge by; take another split"
            )
        if not rows or any(len(row) != len(header) for row in rows):
            raise Mistake(f"{file}: cut short or not a table; train the run anew")
        columns = dict(zip(header, zip(*rows, strict=True), strict=True))
        labels = tuple(name[2:-1] for name in header if name.startswith("p("))
        try:
            if not labels:
                truth, said = (np.array(columns[c], float) for c in ("label", "predicted"))
                return cls(list(columns["id"]), truth, said, (), None)
            place = {label: i for i, label in enumerate(labels)}
            truth, said = (np.array([place[v] for v in columns[c]]) for c in ("label", "predicted"))
            shares = np.array([columns[f"p({label})"] for label in labels], float).T
            return cls(list(columns["id"]), truth, said, labels, shares)
        except (KeyError, ValueError) as fault:
            raise Mistake(f"{file}: not a predictions file ({fault})") from None


@dataclass(frozen=True)
class Variant:
    """Runs that differ by nothing but their seed."""

    label: str
    runs: tuple[Run, ...]
    seeds: tuple[int, ...]
    recipe: Recipe  # the first run's
    settings: dict[str, Any]  # what sets it apart: dotted key -> value

    @property
    def plan(self) -> str:
        return self.runs[0].plan

    @cached_property
    def config(self) -> dict[str, Any]:
        """What the model's folder says about the first run's model; empty where it is gone."""
        try:
            found = json.loads((self.runs[0].model / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @cached_property
    def cost(self) -> dict[str, float]:
        """Of each cost that is known, the mean over the seeds."""
        told = [run.cost for run in self.runs]
        plain = {key for key, value in told[0].items() if isinstance(value, int | float)}
        return {
            key: float(np.mean([own[key] for own in told]))
            for key in told[0]
            if key in plain and all(isinstance(own.get(key), int | float) for own in told)
        }

    @cached_property
    def steps(self) -> int:
        """Steps of the longest run."""
        return max((int(e["step"]) for run in self.runs for e in run.metrics()), default=0)


@dataclass(frozen=True)
class Difference:
    """How much more than the baseline, and the chance of that much from two like plans."""

    value: float
    interval: tuple[float, float]
    half: float
    p: float | None
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


@dataclass(frozen=True)
class Comparison:
    """Variants side by side."""

    split: str
    metrics: dict[str, str]  # task -> metric
    rows: dict[str, int]  # task -> examples judged
    variants: tuple[Variant, ...]
    baseline: Variant
    scores: dict[str, dict[str, Score]]  # variant -> task or aggregate -> score
    fronts: dict[str, tuple[str, ...]]  # cost -> variants that no other beats in both
    notes: tuple[str, ...]
    answers: dict[tuple[str, str], tuple[Answers, ...]] = field(repr=False)  # (variant, task)

    @property
    def others(self) -> tuple[Variant, ...]:
        return tuple(v for v in self.variants if v is not self.baseline)

    @property
    def seeds(self) -> int:
        """Seeds of the variant that has the fewest."""
        return min(len(v.seeds) for v in self.variants)

    def columns(self) -> list[str]:
        """Tasks, then the aggregates that some variant has."""
        found = [a for a in AGGREGATES if any(a in own for own in self.scores.values())]
        return [*self.metrics, *found]

    def relative(self, variant: Variant, form: str) -> float | None:
        """Score x (base time / time) x (base memory / memory), as printed or steady.

        *printed* takes the whole run's clock and the checkpoint with its optimiser; *steady* the
        median step and the bytes that serving needs, which do not hang on what else ran.
        """
        time, memory = {
            "printed": ("training_seconds", "bytes_with_optimiser"),
            "steady": ("step_seconds", "bytes_to_serve"),
        }[form]
        score, own, base = self.scores[variant.label].get("raw"), variant.cost, self.baseline.cost
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
    """Compare runs, or all runs of surveys.

    All must have the same tasks, unless `tasks` names those to be compared; a variant without one
    of them has a gap there and no aggregates.
    """
    runs, notes = _finished(find_runs(paths))
    recipes = [Recipe.read(run.recipe_file) for run in runs]
    chosen = _tasks(runs, recipes, tasks)
    _same_rows(runs, recipes, chosen, split)
    variants, twice = _variants(runs, recipes)
    notes += twice
    base = _baseline(variants, baseline)
    answers = {
        (v.label, name): tuple(Answers.read(run, name, split) for run in v.runs)
        for v in variants
        for name in chosen
        if name in v.recipe.tasks
    }
    _same_answers(answers, split)
    metrics = {name: task.metric_name for name, task in chosen.items()}
    scores = _scores(variants, base, metrics, answers)
    costs = {v.label: v.cost for v in variants}
    fronts = {}
    for axis in AXES:
        if len(variants) > 1 and all(axis in cost for cost in costs.values()):
            column = "normalised" if all("normalised" in s for s in scores.values()) else None
            if column:
                points = {n: (costs[n][axis], scores[n][column].value) for n in costs}
                fronts[axis] = pareto(points)
    rows = {n: len(next(a[0].ids for key, a in answers.items() if key[1] == n)) for n in chosen}
    notes += _caveats(variants, chosen, split)
    return Comparison(split, metrics, rows, variants, base, scores, fronts, tuple(notes), answers)


# --- finding and grouping ------------------------------------------------------------------------


def find_runs(paths: Iterable[str | Path]) -> list[Run]:
    """Run directories, and those within surveys (DIR/runs/*) and plain folders of runs (DIR/*)."""
    found: dict[Path, Run] = {}
    for given in paths:
        path = Path(given).expanduser()
        if not path.is_dir():
            raise Mistake(f"{path}: no such run directory or survey")
        inside = path / "runs"
        if (path / "recipe.yaml").is_file() and not inside.is_dir():
            folders = [path]
        else:
            parents = [inside] if inside.is_dir() else [path]
            folders = [f for parent in parents for f in parent.iterdir()]
            folders = sorted((f for f in folders if (f / "recipe.yaml").is_file()), key=_natural)
            if not folders:
                raise Mistake(f"{path}: an empty survey, there is no run in it; run it first")
        for folder in folders:
            found.setdefault(folder.resolve(), Run.open(folder))
    if not found:
        raise Mistake("nothing to compare; name run directories or a survey")
    return list(found.values())


def _natural(path: Path) -> list[tuple[str, int]]:
    """run-2 before run-10."""
    return [(word, int(part or 0)) for word, part in re.findall(r"(\D*)(\d*)", path.name)]


def _finished(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    done = [run for run in runs if run.finished]
    left = [str(run.folder) for run in runs if not run.finished]
    if not done:
        raise Mistake(f"none of the runs is finished: {_some(left)}; resume them first")
    return done, [f"left out, not finished: {_some(left)}"] if left else []


def _some(paths: Sequence[str], most: int = 5) -> str:
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(paths[:most]) + more


def _tasks(
    runs: Sequence[Run], recipes: Sequence[Recipe], asked: Sequence[str] | None
) -> dict[str, Task]:
    every: dict[str, Task] = {}
    for recipe in recipes:
        for name, task in recipe.tasks.items():
            every.setdefault(name, task)
    for name in asked or ():
        if name not in every:
            raise Mistake(
                f"no run has a task {name!r}, only {listed(list(every))}{nearest(name, every)}"
            )
    chosen = {name: task for name, task in every.items() if asked is None or name in asked}
    for run, recipe in zip(runs, recipes, strict=True):
        if asked is None and set(recipe.tasks) != set(recipes[0].tasks):
            raise Mistake(
                f"{run.folder} has the tasks {listed(list(recipe.tasks))}, {runs[0].folder} has "
                f"{listed(list(recipes[0].tasks))}; compare runs of the same tasks, or name the "
                f"tasks to compare with --tasks {','.join(every)}"
            )
        for name in chosen.keys() & recipe.tasks.keys():
            mine, first = recipe.tasks[name], chosen[name]
            if (mine.kind, mine.metric_name) != (first.kind, first.metric_name):
                raise Mistake(
                    f"{run.folder}: task {name!r} is judged by {mine.metric_name} ({mine.kind}), "
                    f"elsewhere by {first.metric_name} ({first.kind}); these are different tasks"
                )
    return chosen


def _same_rows(
    runs: Sequence[Run], recipes: Sequence[Recipe], tasks: Iterable[str], split: str
) -> None:
    """All were judged on the same rows, and learned from the same unless the recipe says so."""
    first: dict[tuple[str, str, str], tuple[str, Run]] = {}
    for run, recipe in zip(runs, recipes, strict=True):
        data = run.environment.get("data", {})
        for name in tasks:
            if name not in recipe.tasks:
                continue
            own = data.get(name, {})
            if split not in own:
                known = listed(list(own)) or "none"
                raise Mistake(f"{run.folder}: task {name!r} has no {split} rows; it has {known}")
            source = repr(recipe.tasks[name].train)
            for part, key in ((split, ""), ("train", source)):
                digest = own.get(part, {}).get("sha256", "")
                known_as, other = first.setdefault((name, part, key), (digest, run))
                if known_as != digest:
                    raise Mistake(
                        f"{run.folder} and {other.folder} have different {part} rows for task "
                        f"{name!r}; only runs on the same data can be compared"
                    )


def _same_answers(answers: Mapping[tuple[str, str], Sequence[Answers]], split: str) -> None:
    first: dict[str, NDArray[Any]] = {}
    for (label, name), own in answers.items():
        for one in own:
            if not np.array_equal(first.setdefault(name, one.truth), one.truth):
                raise Mistake(
                    f"{label}: predictions/{name}-{split}.csv has other labels than the other "
                    "runs'; only runs on the same data can be compared"
                )


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Dotted keys; lists are values."""
    if isinstance(value, Mapping) and value:
        return {k: v for key, own in value.items() for k, v in _flat(own, f"{path}.{key}").items()}
    return {path[1:]: value}


def _variants(
    runs: Sequence[Run], recipes: Sequence[Recipe]
) -> tuple[tuple[Variant, ...], list[str]]:
    flat = [_flat(recipe.model_dump(mode="json")) for recipe in recipes]
    for run, own in zip(runs, flat, strict=True):
        for key in [k for k in own if k in IGNORED or k == "plan" or k.startswith("plan.")]:
            del own[key]
        own["plan"] = run.plan  # as it was understood: two spellings are one plan
    groups: dict[str, dict[int, int]] = {}  # recipe without its seed -> seed -> index
    notes = []
    for index, (recipe, own) in enumerate(zip(recipes, flat, strict=True)):
        seeds = groups.setdefault(json.dumps(own, sort_keys=True, default=str), {})
        if (first := seeds.setdefault(recipe.training.seed, index)) != index:
            notes.append(
                f"left out: {runs[index].folder}, the same recipe and seed as {runs[first].folder}"
            )
    firsts = [next(iter(seeds.values())) for seeds in groups.values()]
    settings = _settings([recipes[i] for i in firsts], [flat[i] for i in firsts])
    labels = [
        _label(own, settings) or flat[i]["plan"] for i, own in zip(firsts, settings, strict=True)
    ]
    variants = []
    for label, own, seeds in zip(labels, settings, groups.values(), strict=True):
        order = sorted(seeds)
        chosen = tuple(runs[seeds[seed]] for seed in order)
        variants.append(Variant(label, chosen, tuple(order), recipes[seeds[order[0]]], own))
    return tuple(variants), notes


def _settings(recipes: Sequence[Recipe], flat: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What differs between the variants, the plan first."""
    tasks = [list(recipe.tasks) for recipe in recipes]
    common = set(tasks[0]).intersection(*tasks[1:])
    apart = any(set(own) != common for own in tasks)
    keys = dict.fromkeys(["plan", *(key for own in flat for key in own)])
    unlike = [
        key
        for key in keys
        if len({json.dumps(own.get(key), default=str) for own in flat}) > 1
        and not (apart and key.startswith("tasks.") and key.split(".")[1] not in common)
    ]
    return [
        {key: own[key] for key in unlike if key in own} | ({"tasks": "+".join(t)} if apart else {})
        for own, t in zip(flat, tasks, strict=True)
    ]


def _label(settings: Mapping[str, Any], every: Sequence[Mapping[str, Any]]) -> str:
    keys = {key for own in every for key in own}
    parts = []
    for key, value in settings.items():
        if key == "plan":
            parts.append(str(value))
            continue
        short = key.split(".")[-1]
        if sum(other.split(".")[-1] == short for other in keys) > 1:
            short = ".".join(key.split(".")[-2:])
        told = f"{value:g}" if isinstance(value, float) else json.dumps(value, default=str)
        parts.append(f"{short}={told.strip(chr(34))}")
    return ", ".join(parts)


def _baseline(variants: Sequence[Variant], asked: str | None) -> Variant:
    """The one asked for, else the one that shares least: it has the most weights to serve."""
    if asked is None:
        return max(variants, key=lambda v: v.cost.get("bytes_to_serve", 0.0))
    found = [v for v in variants if asked in (v.label, v.plan)]
    exact = [v for v in found if v.label == asked]
    if len(exact or found) == 1:
        return (exact or found)[0]
    labels = [v.label for v in variants]
    why = "several variants have that plan" if found else "no such variant"
    raise Mistake(
        f"--baseline {asked!r}: {why}; there is {listed([repr(n) for n in labels], 12)}"
        + nearest(asked, labels)
    )


# --- scores --------------------------------------------------------------------------------------


def _scores(
    variants: Sequence[Variant],
    base: Variant,
    metrics: Mapping[str, str],
    answers: Mapping[tuple[str, str], Sequence[Answers]],
) -> dict[str, dict[str, Score]]:
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
                apart = Difference(delta.value, delta.interval(), delta.half(), delta.p)
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
        corrected = Difference(d.value, d.interval, d.half, d.p, holm, bh)
        found[label][column] = Score(**{**vars(score), "difference": corrected})


def pareto(points: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """Those that no other beats: none costs no more and scores no less, and is better in one."""

    def beaten(cost: float, score: float) -> bool:
        return any(c <= cost and s >= score and (c < cost or s > score) for c, s in points.values())

    front = [name for name, (cost, score) in points.items() if not beaten(cost, score)]
    return tuple(sorted(front, key=lambda name: points[name]))


def _caveats(variants: Sequence[Variant], tasks: Mapping[str, Task], split: str) -> list[str]:
    notes = []
    seen = any(v.config.get("facts", {}).get("saw_quora") for v in variants)
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
