"""Variants: runs that differ by nothing but their seed, found, checked and told apart.

What is compared must have learned the same tasks and been judged on the same rows. Variants are
named by whatever differs between them: the plan, or any other key of their recipes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bough.draft import flattened
from bough.mistakes import Mistake, listed, nearest
from bough.recipe import Recipe
from bough.runs import Run
from bough.tasks import Task

IGNORED = ("training.seed", "data")  # a moved folder is no variant; its contents are compared


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


# --- finding ------------------------------------------------------------------------------------


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


def finished(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Those that came to their end, and a word on those that did not."""
    done = [run for run in runs if run.finished]
    left = [str(run.folder) for run in runs if not run.finished]
    if not done:
        raise Mistake(f"none of the runs is finished: {_some(left)}; resume them first")
    return done, [f"left out, not finished: {_some(left)}"] if left else []


def _some(paths: Sequence[str], most: int = 5) -> str:
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(paths[:most]) + more


def common_tasks(
    runs: Sequence[Run], recipes: Sequence[Recipe], asked: Sequence[str] | None
) -> dict[str, Task]:
    """The tasks to compare: those that all runs have, or those asked for."""
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


def check_rows(
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


# --- grouping -----------------------------------------------------------------------------------


def group(runs: Sequence[Run], recipes: Sequence[Recipe]) -> tuple[tuple[Variant, ...], list[str]]:
    """The runs by variant, and a word on those left out."""
    flat = [flattened(recipe.model_dump(mode="json")) for recipe in recipes]
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


def choose_baseline(variants: Sequence[Variant], asked: str | None) -> Variant:
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
