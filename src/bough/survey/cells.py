"""Cells: what sets runs apart, and the recipe of each.

A cell is a few keys that are changed in the base recipe; with a seed it is a run.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from bough.comparison.cell_names import LONGEST, Overrides, cell_name
from bough.errors import UserError, listed, nearest
from bough.recipe.recipe import Recipe

SEED = "training.seed"
_NAME = re.compile(r"[A-Za-z0-9_@=+~-][A-Za-z0-9_.@=+~-]*")

Where = Callable[[str], str]  # what a message calls the place that sets a key; "" is no one key


@dataclass(frozen=True)
class RunSpec:
    """A run that is wanted."""

    cell: str
    seed: int
    recipe: Recipe

    @classmethod
    def of(
        cls, base: Recipe, cell: str, overrides: Overrides, seed: int, where: Where | None = None
    ) -> RunSpec:
        where = where or (lambda key: f"cell {cell!r}")
        return cls(cell, seed, with_overrides(base, overrides | {SEED: seed}, where))

    @property
    def name(self) -> str:
        return f"{self.cell}-s{self.seed}"


# --- names ---------------------------------------------------------------------------------------


def grid(vary: Mapping[str, Sequence[Any]]) -> dict[str, Overrides]:
    """A cell for every combination of the values, under a name that tells it."""
    cells: dict[str, Overrides] = {}
    for values in itertools.product(*vary.values()) if vary else ():
        overrides = dict(zip(vary, values, strict=True))
        name = short = cell_name(overrides)
        number = 2
        while name in cells:
            name, number = f"{short}-{number}", number + 1
        cells[name] = overrides
    return cells


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > LONGEST:
        raise UserError(
            f"cells: {name!r} is to be a folder's name; use letters, digits, - and _ only"
        )


# --- recipes -------------------------------------------------------------------------------------


def with_overrides(base: Recipe, overrides: Overrides, where: Where) -> Recipe:
    """The recipe with keys changed. `tasks` as a list keeps these tasks, `tasks.*` is each.

    It knows of every value where the user wrote it: in the base, or where the key is changed.
    """
    names = overrides.get("tasks")
    if isinstance(names, list | tuple):
        base = _only(base, [str(name) for name in names], where("tasks"))
        overrides = {key: value for key, value in overrides.items() if key != "tasks"}
    settings: dict[str, str] = {}  # as `--set` has them -> the key of the survey
    for key, value in overrides.items():
        first, star, rest = key.partition(".*.")
        each = star and first == "tasks"
        keys = [f"tasks.{name}.{rest}" for name in base.tasks] if each else [key]
        text = json.dumps(value, ensure_ascii=False)
        settings |= {f"{one}={text}": key for one in keys}
    try:
        recipe = Recipe.read(base, list(settings)).anchored()
    except UserError as error:
        said = str(error).removeprefix("--set ")
        wrong = next((key for text, key in settings.items() if said.startswith(text)), "")
        raise UserError(f"{where(wrong)}: {said}") from None
    places = {f"--set {text}": where(key) for text, key in settings.items()}
    return recipe.traced({path: places.get(at, at) for path, at in recipe.origins.items()})


def _only(base: Recipe, names: Sequence[str], where: str) -> Recipe:
    """The recipe of some of its tasks; the loss weights of the others go with them."""
    for name in names:
        if name not in base.tasks:
            known = listed(list(base.tasks))
            raise UserError(f"{where}: no task {name!r}, only {known}{nearest(name, base.tasks)}")
    if not names:
        raise UserError(f"{where}: `tasks` is empty; name at least one")
    weights = {name: w for name, w in base.training.weights.items() if name in names}
    training = base.training.model_copy(update={"weights": weights})
    tasks = {name: base.tasks[name] for name in names}
    return base.model_copy(update={"tasks": tasks, "training": training})


def checked_plans(recipes: Iterable[tuple[Recipe, Where]]) -> list[str | None]:
    """The plans as they are understood; None where the encoder, and so its layers, is not known.

    Refused at once is what would fail a run later: plans, the data folder.
    """
    from bough.model.network import plan_of
    from bough.model.pretrained import find
    from bough.plan.encoder_shape import Shape

    @cache
    def shape_of(encoder: str) -> Shape | None:
        try:
            return Shape.read(find(encoder))
        except UserError:  # the run that needs it says so
            return None

    def understood(recipe: Recipe, where: Where) -> str | None:
        _ = recipe.root  # refused where it is not there
        shape = shape_of(recipe.encoder)
        try:
            return None if shape is None else plan_of(recipe.plan, recipe.tasks, shape).text
        except UserError as error:
            raise UserError(f"{where('plan')}: {error}") from None

    known: dict[str, str | None] = {}
    plans = []
    for recipe, where in recipes:
        key = json.dumps([recipe.encoder, recipe.plan, [*recipe.tasks], recipe.data])
        if key not in known:
            known[key] = understood(recipe, where)
        plans.append(known[key])
    return plans
