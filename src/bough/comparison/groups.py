"""Variants: runs that differ by nothing but their seed, checked and told apart.

What is compared must have learned the same tasks and been judged on the same rows. Variants are
named by whatever differs between them: the plan, or any other key of their recipes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np

from bough.comparison.cell_names import SurveyCells, find_cell
from bough.comparison.finding import some
from bough.comparison.same_data import from_run
from bough.errors import UserError, listed, nearest
from bough.inference import config
from bough.inference.config import Config
from bough.recipe.raw_settings import flattened
from bough.recipe.recipe import Recipe
from bough.recipe.tasks import Task
from bough.runs.predictions import Answers
from bough.runs.run_dir import Run

FEW = 3  # with fewer seeds a comparison is an anecdote
# A moved folder is no variant, for its contents are compared; nor is what only pretraining reads.
IGNORED = ("training.seed", "data", "pretraining")
# These say how and where a run is computed and written down, not what it is.
HOW = (
    "device", "threads", "training.save_every", "training.keep_states", "training.log_every",
    "training.cosines_every",
)  # fmt: skip
TIMES = ("step_seconds", "training_seconds")


@dataclass(frozen=True)
class Variant:
    """Runs that differ by nothing but their seed."""

    label: str
    runs: tuple[Run, ...]
    seeds: tuple[int, ...]
    recipe: Recipe  # the first run's
    settings: dict[str, Any]  # what sets it apart: dotted key -> value
    cell: str | None = None  # its name in the survey that all runs are of
    usual: bool = False  # whether that survey holds the others against it
    timed: bool = True  # whether its times can be held against the others'

    @property
    def plan(self) -> str:
        return self.runs[0].plan

    @cached_property
    def config(self) -> Config | None:
        """What the model's folder says about the first run's model; None where it is gone."""
        try:
            return config.read(self.runs[0].model)
        except UserError:
            return None

    @cached_property
    def cost(self) -> dict[str, float]:
        """Of each cost that is known, the mean over the seeds."""
        costs = [run.cost for run in self.runs]
        return {
            key: float(np.mean([cost[key] for cost in costs]))
            for key in costs[0]
            if (self.timed or key not in TIMES)
            and all(isinstance(cost.get(key), int | float) for cost in costs)
        }

    @cached_property
    def steps(self) -> int:
        """Steps of the longest run."""
        return max((int(e["step"]) for run in self.runs for e in run.metrics()), default=0)


# --- tasks ---------------------------------------------------------------------------------------


def common_tasks(
    runs: Sequence[Run], recipes: Sequence[Recipe], asked: Sequence[str] | None
) -> tuple[dict[str, Task], list[str]]:
    """The tasks to compare, and a word on the others: those that count in every run, or those asked
    for."""
    every: dict[str, Task] = {}
    for recipe in recipes:
        for name, task in recipe.tasks.items():
            every.setdefault(name, task)
    for name in asked or ():
        if name not in every:
            raise UserError(
                f"no run has a task {name!r}, only {listed(list(every))}{nearest(name, every)}"
            )
    helping = {n for r in recipes for n in r.tasks.keys() - {*r.counted()}}
    left = [name for name in every if asked is None and name in helping]
    wanted = [name for name in every if name not in left and (asked is None or name in asked)]
    if not wanted:
        raise UserError(
            "no task counts in every run, for each only helps others in some; name the tasks to "
            f"compare with --tasks {','.join(every)}"
        )
    chosen = {name: every[name] for name in wanted}
    for run, recipe in zip(runs, recipes, strict=True):
        own, firsts = (chosen.keys() & r.tasks.keys() for r in (recipe, recipes[0]))
        if asked is None and own != firsts:
            raise UserError(
                f"{run.folder} has the tasks {listed(list(recipe.tasks))}, {runs[0].folder} has "
                f"{listed(list(recipes[0].tasks))}; compare runs of the same tasks, or name the "
                f"tasks to compare with --tasks {','.join(every)}"
            )
        for name in own:
            mine, first = recipe.tasks[name], chosen[name]
            if (mine.kind, mine.metric_name) != (first.kind, first.metric_name):
                raise UserError(
                    f"{run.folder}: task {name!r} is judged by {mine.metric_name} ({mine.kind}), "
                    f"elsewhere by {first.metric_name} ({first.kind}); these are different tasks"
                )
    names = ", ".join(left)
    note = f"left out, they only help: {names}; name them with --tasks"
    if len(left) == 1:
        note = f"left out, it only helps: {names}; name it with --tasks"
    return chosen, [note] if left else []


def having(
    runs: Sequence[Run], recipes: Sequence[Recipe], tasks: Iterable[str]
) -> tuple[list[Run], list[Recipe], list[str]]:
    """Those with any of the tasks, and a word on the others."""
    asked = set(tasks)
    has = [bool(asked & recipe.tasks.keys()) for recipe in recipes]
    left = [str(run.folder) for run, has_one in zip(runs, has, strict=True) if not has_one]
    notes = [f"left out, without {listed(sorted(asked))}: {some(left)}"] if left else []
    return [*compress(runs, has)], [*compress(recipes, has)], notes


# --- grouping -----------------------------------------------------------------------------------


def group(runs: Sequence[Run], recipes: Sequence[Recipe]) -> tuple[tuple[Variant, ...], list[str]]:
    """The runs by variant, and a word on those left out."""
    survey = SurveyCells.of(runs)
    asked = {key for overrides in survey.cells.values() for key in overrides} if survey else set()
    flat = [_but_for_the_seed(r, run.plan, asked) for r, run in zip(recipes, runs, strict=True)]
    for run, keys in zip(runs, flat, strict=True):
        keys |= {key: from_run(run, value) for key, value in keys.items()}
    groups: dict[str, dict[int, int]] = {}  # recipe without its seed -> seed -> index
    notes = []
    for index, (recipe, keys) in enumerate(zip(recipes, flat, strict=True)):
        seeds = groups.setdefault(_identity(keys), {})
        if (first := seeds.setdefault(recipe.training.seed, index)) != index:
            notes.append(
                f"left out: {runs[index].folder}, the same recipe and seed as {runs[first].folder}"
            )
    firsts = [next(iter(seeds.values())) for seeds in groups.values()]
    settings = _settings([recipes[i] for i in firsts], [flat[i] for i in firsts])
    given = [survey.given(runs[i]) if survey else None for i in firsts]
    labels = _named([recipes[i] for i in firsts], [flat[i] for i in firsts], given)
    variants = []
    for label, setting, seeds in zip(labels, settings, groups.values(), strict=True):
        order = sorted(seeds)
        chosen = tuple(runs[seeds[seed]] for seed in order)
        cell = survey.name(chosen[0]) if survey else None
        recipe = recipes[seeds[order[0]]]
        variants.append(Variant(label, chosen, tuple(order), recipe, setting, cell))
    usual = _baseline_of(survey, variants) if survey else None
    return tuple(replace(v, usual=v is usual) for v in variants), notes


def _named(
    recipes: Sequence[Recipe], flat: Sequence[dict[str, Any]], given: Sequence[str | None]
) -> list[str]:
    """The names that a survey gives; what has none is told apart from the others without one."""
    rest = [i for i, name in enumerate(given) if name is None]
    part = [flat[i] for i in rest]
    labels = iter(_labels(_settings([recipes[i] for i in rest], part), part) if rest else [])
    found = [name or next(labels) for name in given]
    return found if len({*found}) == len(found) else _labels(_settings(recipes, flat), flat)


def labels_to_be(recipes: Sequence[Recipe], plans: Sequence[str]) -> list[str]:
    """What a comparison of runs of these recipes will call them, with their plans as understood."""
    flat = [_but_for_the_seed(recipe, plan) for recipe, plan in zip(recipes, plans, strict=True)]
    apart = {_identity(keys): index for index, keys in enumerate(flat)}
    chosen = [flat[index] for index in apart.values()]
    return _labels(_settings([recipes[index] for index in apart.values()], chosen), chosen)


def _but_for_the_seed(recipe: Recipe, plan: str, asked: Collection[str] = ()) -> dict[str, Any]:
    """All that a recipe says by dotted keys, without what sets no variants apart; `asked` does,
    however it is computed."""
    every = flattened(recipe.model_dump(mode="json"))
    ignored = {*IGNORED, *HOW} - {*asked}
    parts = ("plan.", "pretraining.")
    keys = {k: v for k, v in every.items() if k not in ignored and not k.startswith(parts)}
    return keys | {"plan": plan}  # as it was understood: two spellings are one plan


def _identity(keys: Mapping[str, Any]) -> str:
    return json.dumps(keys, sort_keys=True, default=str)


def _kept_the_start(run: Run) -> bool:
    """Whether its best model is that of step 0: with fitted heads the same for every seed."""
    steps = [entry["step"] for entry in run.metrics() if entry.get("best")]
    return bool(steps) and steps[-1] == 0


def without_copies(
    variants: Sequence[Variant], answers: Mapping[tuple[str, str], tuple[Answers, ...]]
) -> tuple[tuple[Variant, ...], dict[tuple[str, str], tuple[Answers, ...]], list[str]]:
    """Runs of different seeds that answer the same to the last digit are one run, copied.

    Within a variant the first counts, alone; between variants nobody knows whose it is, so it is
    only said.
    """
    first: dict[tuple[bytes, ...], tuple[Variant, int]] = {}
    kept: list[Variant] = []
    chosen = dict(answers)
    notes = []
    for v in variants:
        tasks = [name for label, name in answers if label == v.label]
        places = []
        for place, (run, seed) in enumerate(zip(v.runs, v.seeds, strict=True)):
            key = tuple(part for name in tasks for part in answers[v.label, name][place].content())
            other, at = first.setdefault(key, (v, place))
            if other is v and at != place and _kept_the_start(run):
                places.append(place)
                continue
            if other is not v or at == place:
                places.append(place)
            if seed == other.seeds[at]:
                continue
            same = f"{run.folder} (seed {seed}) answers all rows exactly as {other.runs[at].folder}"
            which = "left out, a copy: " if other is v else "a copy? "
            notes.append(f"{which}{same} (seed {other.seeds[at]})")
        runs, seeds = tuple(v.runs[i] for i in places), tuple(v.seeds[i] for i in places)
        kept.append(replace(v, runs=runs, seeds=seeds))
        for name in tasks:
            chosen[v.label, name] = tuple(answers[v.label, name][i] for i in places)
    return tuple(kept), chosen, notes


def _settings(recipes: Sequence[Recipe], flat: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What differs between the variants, the plan first."""
    tasks = [list(recipe.tasks) for recipe in recipes]
    apart = any(set(names) != set(tasks[0]) for names in tasks)

    def differs(key: str) -> bool:
        """Of a task's keys, among those that have the task: `tasks` tells who has not."""
        section, _, rest = key.partition(".")
        name = rest.partition(".")[0] if section == "tasks" else None
        having = [keys for keys, t in zip(flat, tasks, strict=True) if name is None or name in t]
        return len({json.dumps(keys.get(key), default=str) for keys in having}) > 1

    unlike = [k for k in dict.fromkeys(["plan", *(k for keys in flat for k in keys)]) if differs(k)]
    return [
        {k: keys[k] for k in unlike if k in keys} | ({"tasks": "+".join(names)} if apart else {})
        for keys, names in zip(flat, tasks, strict=True)
    ]


def _labels(settings: Sequence[dict[str, Any]], flat: Sequence[dict[str, Any]]) -> list[str]:
    """A name of its own for each: everything else is kept by it."""
    names = _short({"tasks", *(key for keys in flat for key in keys)})
    brief, whole = (
        [_label(s, names, form) or keys["plan"] for s, keys in zip(settings, flat, strict=True)]
        for form in (_brief, _whole)
    )
    labels: list[str] = []
    for short, long in zip(brief, whole, strict=True):
        label = name = short if brief.count(short) == 1 else long
        number = 1
        while label in labels:
            number += 1
            label = f"{name} ({number})"
        labels.append(label)
    return labels


def _short(keys: Iterable[str]) -> dict[str, str]:
    """Of each key the shortest end that no other key has."""
    parts = {key: key.split(".") for key in keys}
    shortest = {}
    for key, whole in parts.items():
        ends = (whole[-n:] for n in range(1, len(whole) + 1))
        unique = (e for e in ends if sum(p[-len(e) :] == e for p in parts.values()) == 1)
        shortest[key] = ".".join(next(unique, whole))
    return shortest


def _label(
    settings: Mapping[str, Any], names: Mapping[str, str], form: Callable[[Any], str]
) -> str:
    return ", ".join(
        str(value) if key == "plan" else f"{names[key]}={form(value)}"
        for key, value in settings.items()
    )


def _brief(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else _whole(value).strip('"')


def _whole(value: Any) -> str:
    """With all digits, and a text told from a number."""
    return json.dumps(value, default=str)


def choose_baseline(variants: Sequence[Variant], asked: str | None) -> Variant:
    """The one asked for; else that of the survey they are of, or the one that shares least: it has
    the most weights to serve."""
    if asked is None:
        usual = next((v for v in variants if v.usual), None)
        return usual or max(variants, key=lambda v: v.cost.get("bytes_to_serve", 0.0))
    matching = [v for v in variants if asked in (v.label, v.cell, v.plan)]
    exact = [v for v in matching if asked in (v.label, v.cell)]
    if len(exact or matching) == 1:
        return (exact or matching)[0]
    labels = [v.label for v in variants]
    why = "several variants have that plan" if matching else "no such variant"
    raise UserError(
        f"--baseline {asked!r}: {why}; there is {listed([repr(n) for n in labels], 12)}"
        + nearest(asked, labels)
    )


def _baseline_of(survey: SurveyCells, variants: Sequence[Variant]) -> Variant | None:
    """The variant that the survey's file names, by its cell, its label or its plan; None where it
    names none, or that one is not done yet."""
    asked = survey.baseline
    if asked is None:
        return None
    cell = find_cell(asked, survey.cells)
    matching = [v for v in variants if v.cell == cell] if cell else []
    matching = matching or [v for v in variants if asked in (v.label, v.plan)]
    return matching[0] if len(matching) == 1 else None
