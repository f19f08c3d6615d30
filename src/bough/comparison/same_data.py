"""Whether runs can be compared: the same rows to be judged on, and the same to learn from wherever
their recipes say the same."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from bough.errors import UserError, listed
from bough.recipe.recipe import Recipe
from bough.runs.run_dir import Run


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
            splits = data.get(name, {})
            if split not in splits:
                known = listed(list(splits)) or "none"
                raise UserError(f"{run.folder}: task {name!r} has no {split} rows; it has {known}")
            for part, key in ((split, ""), ("train", _train_source(run, recipe, name))):
                digest = splits.get(part, {}).get("sha256", "")
                expected, other = first.setdefault((name, part, key), (digest, run))
                if digest != expected:
                    raise UserError(
                        f"{run.folder} and {other.folder} have different {part} rows for task "
                        f"{name!r}; only runs on the same data can be compared"
                    )


def check_sources(runs: Sequence[Run], recipes: Sequence[Recipe]) -> None:
    """Who names the same encoder began with the same weights, and who names the same teachers was
    taught the same. Runs of before have no digests of them."""
    first: dict[tuple[str, str], tuple[Any, Run]] = {}
    for run, recipe in zip(runs, recipes, strict=True):
        known, encoder = run.environment, recipe.encoder
        found = [
            (f"other weights of encoder {encoder!r}", "", known.get("encoder")),
            (f"another tokenizer of encoder {encoder!r}", "", known.get("tokenizer")),
        ]
        taught = known.get("teachers")
        for name, task in recipe.tasks.items():
            digest = taught.get(name) if isinstance(taught, dict) else None
            key = repr((task.teacher, task.unlabelled, _train_source(run, recipe, name)))
            found.append((f"other answers of the teachers of task {name!r}", key, digest))
        for what, key, digest in found:
            if digest is None:
                continue
            expected, other = first.setdefault((what, key), (digest, run))
            if digest != expected:
                raise UserError(
                    f"{run.folder} learned from {what} than {other.folder}, by the same name; "
                    "compare runs that learned from the same, or train one of them anew"
                )


def _train_source(run: Run, recipe: Recipe, task: str) -> str:
    """What the recipe says of a task's train rows."""
    given = recipe.tasks[task]
    return repr((from_run(run, given.train), given.limit.train, recipe.rows))


def from_run(run: Run, value: Any) -> Any:
    """A path as the run has it: rows that were in memory are files of every run on them."""
    inside = f"{run.folder.resolve()}{os.sep}"
    return value.removeprefix(inside) if isinstance(value, str) else value
