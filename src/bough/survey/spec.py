"""Grid: what a survey file asks for, down to the recipe of every run.

A survey names a base recipe and what varies: a grid over dotted keys, single cells by name, or a
search; times seeds. Its budgets are sizes of it: the same questions, asked at less or more expense.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from bough.errors import UserError, listed, nearest
from bough.recipe import yaml
from bough.recipe.loader import Draft, mapped
from bough.recipe.recipe import Recipe
from bough.recipe.tasks import misfit

SCORES = ("raw", "normalised")  # besides each task by its name
COSTS = ("bytes_to_serve", "step_seconds", "training_seconds", "peak_memory")
SEED = "training.seed"
_LONGEST = 80  # characters of a cell's name: it becomes a folder's
_NAME = re.compile(r"[A-Za-z0-9_@=+~-][A-Za-z0-9_.@=+~-]*")

Overrides = dict[str, Any]  # dotted key -> value


# --- the file ------------------------------------------------------------------------------------


def _seeds(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return tuple(range(value))
    if isinstance(value, list | tuple) and value and len(set(map(str, value))) == len(value):
        return tuple(value)
    raise ValueError("expected a number of seeds from 1 on, or a list of different seeds")


Seeds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_seeds)]
Values = dict[str, Annotated[list[Any], Field(min_length=1)]]


class Budget(BaseModel):
    """How large the survey is taken: what it changes about the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fixed: Overrides = Field(default_factory=dict, description="Keys of every run.")
    vary: Values = Field(default_factory=dict, description="Other values for keys of the grid.")
    cells: dict[str, Overrides] = Field(
        default_factory=dict, description="Other keys for cells, or further cells."
    )
    seeds: Seeds | None = Field(None, description="Other seeds.")
    trials: int | None = Field(None, ge=1, description="Another number of trials of the search.")


class Span(BaseModel):
    """Numbers to search: whole ones if both ends are."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    low: int | float = Field(description="The least.")
    high: int | float = Field(description="The most.")
    log: bool = Field(False, description="Small and large ones alike: by their logarithms.")
    step: int | float | None = Field(None, gt=0, description="Only every so many.")

    @model_validator(mode="after")
    def _ends_agree(self) -> Self:
        if not self.low < self.high or (self.log and self.low <= 0):
            said = "and above 0 " if self.log else ""
            raise misfit(f"expected low below high {said}(found {self.low:g} and {self.high:g})")
        if self.log and self.step is not None:
            raise misfit("log and step do not go together; leave one out")
        return self


class Search(BaseModel):
    """Cells chosen by optuna from what the earlier ones gave."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    space: dict[str, Span | Annotated[list[Any], Field(min_length=1)]] = Field(
        min_length=1, description="Dotted keys, each with a list of values or {low, high, log}."
    )
    trials: int = Field(20, ge=1, description="How many cells are tried in all.")
    objectives: tuple[str, ...] = Field(
        ("normalised",),
        min_length=1,
        description="What is sought: high scores (raw, normalised, a task), low costs "
        f"({', '.join(COSTS)}).",
    )
    sampler: Literal["tpe", "random"] = Field("tpe", description="How the next cell is chosen.")
    prune: bool = Field(
        True, description="Stop runs whose dev scores fall behind those that cost no more."
    )
    seed: int = Field(0, ge=0, description="Seed of the choices.")


class Survey(BaseModel):
    """A survey as its file says it; in the survey's directory, complete as resolved."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    asks: str = Field("", description="The question, for people.")
    printed: str = Field("", description="What was published about it, for people.")
    found: str = Field("", description="What came of it, for people.")
    recipe: str | dict[str, Any] = Field(description="The base: a recipe's file, or a recipe.")
    fixed: Overrides = Field(default_factory=dict, description="Keys of every run.")
    vary: Values = Field(
        default_factory=dict,
        description="A grid: dotted keys, each with its values; a cell for every combination.",
    )
    cells: dict[str, Overrides] = Field(
        default_factory=dict, description="Cells by name, besides those of the grid."
    )
    search: Search | None = Field(None, description="Cells found by a search, instead of the grid.")
    seeds: Seeds = Field((0,), description="How many seeds each cell is run with, or which.")
    budgets: dict[str, Budget] = Field(
        default_factory=dict, description="Sizes of the survey by name; the first is the usual one."
    )
    baseline: str | None = Field(
        None, description="The cell to hold the others against, or its label in `bough compare`."
    )
    budget: str | None = Field(None, description="The budget that was chosen; bough writes this.")

    @classmethod
    def read(cls, source: str | os.PathLike[str] | Mapping[str, Any] | Survey) -> Survey:
        """A survey from a file or a dict, its base recipe within it."""
        if isinstance(source, Survey):
            return source
        draft = Draft.read(source, _keys, "survey", "recipe")
        try:
            survey = cls.model_validate(draft.data)
        except ValidationError as fault:
            raise draft.mistake(fault.errors()) from None
        recipe = _base(survey.recipe, draft.folder, draft.said)
        return survey.model_copy(update={"recipe": mapped(recipe, lambda text, _: text)})

    def resolved(self, budget: str | None = None, threads: int | None = None) -> Survey:
        """One size of it, every cell written out, on a base that is complete."""
        budget = budget or next(iter(self.budgets), None)
        size = self._budget(budget)
        base = applied(Recipe.read(self.recipe), self.fixed | size.fixed, "fixed")
        if base.threads is None and threads is not None:
            base = base.model_copy(update={"threads": threads})
        search = self.search
        if search is not None and size.trials is not None:
            search = search.model_copy(update={"trials": size.trials})
        for key in size.vary:
            if key not in self.vary:
                raise UserError(
                    f"budgets.{budget}.vary: {key} is no key of `vary`, which has "
                    f"{listed(list(self.vary)) or 'none'}{nearest(key, self.vary)}"
                )
        cells = _grid(self.vary | size.vary)
        for name in [*self.cells, *(name for name in size.cells if name not in self.cells)]:
            if not _NAME.fullmatch(name) or len(name) > _LONGEST:
                raise UserError(
                    f"cells: {name!r} is to be a folder's name; use letters, digits, - and _ only"
                )
            if name in cells:
                raise UserError(f"cells: {name!r} is in the grid already; give it another name")
            cells[name] = self.cells.get(name, {}) | size.cells.get(name, {})
        if search is None and not cells:
            raise UserError("an empty survey: give it `vary`, `cells` or `search`")
        if search is not None and cells:
            raise UserError(
                "a survey is either a search or made of cells; leave `search` out or them"
            )
        if any(SEED in own for own in (*cells.values(), search.space if search else {})):
            raise UserError(f"{SEED} cannot vary by itself; name the seeds in `seeds`")
        return self.model_copy(
            update={
                "recipe": mapped(base.anchored(), lambda text, _: text),
                "fixed": {},
                "vary": {},
                "cells": cells,
                "search": search,
                "seeds": size.seeds or self.seeds,
                "budgets": {},
                "budget": budget or self.budget,
            }
        )

    def _budget(self, name: str | None) -> Budget:
        if name is None:
            return Budget()
        if name not in self.budgets:
            known = listed(list(self.budgets)) or "none"
            raise UserError(f"no budget {name!r}; there is {known}{nearest(name, self.budgets)}")
        return self.budgets[name]

    @property
    def base(self) -> Recipe:
        return Recipe.read(self.recipe)

    def orders(self) -> list[RunSpec]:
        """Every run of a resolved survey, all cells with the first seed first."""
        base = self.base
        return [
            self.order(base, name, overrides, seed)
            for seed in self.seeds
            for name, overrides in self.cells.items()
        ]

    def order(self, base: Recipe, cell: str, overrides: Overrides, seed: int) -> RunSpec:
        """The run of one cell with one seed."""
        return RunSpec(cell, seed, applied(base, overrides | {SEED: seed}, f"cell {cell!r}"))

    def dump(self) -> str:
        """The survey as YAML; reading it gives an equal survey."""
        return yaml.write(mapped(self, lambda text, _: text.replace("${", "$${")))


def _keys(path: yaml.Path) -> Mapping[str, FieldInfo] | None:
    match path:
        case ():
            return Survey.model_fields
        case ("budgets", _):
            return Budget.model_fields
        case ("search",):
            return Search.model_fields
        case ("search", "space", _):
            return Span.model_fields
    return None


def _base(recipe: str | dict[str, Any], folder: Path | None, said: str) -> Recipe:
    """The base recipe; a relative path starts at the survey's file, or here."""
    places = [*([folder] if folder is not None else []), Path()]
    if isinstance(recipe, str):
        found = [place / recipe for place in places if (place / recipe).is_file()]
        if not found:
            looked = " and ".join(str((place / recipe).absolute()) for place in places)
            raise UserError(f"{said}: recipe {recipe!r}: no such file, looked for {looked}")
        return Recipe.read(found[0])
    data = Path(str(recipe.get("data", ".")))
    if not data.is_dir() and (places[0] / data).is_dir():
        recipe = {**recipe, "data": str(places[0] / data)}
    try:
        return Recipe.read(recipe)
    except UserError as mistake:
        raise UserError(f"{said}: recipe: {mistake}") from None


def applied(base: Recipe, overrides: Overrides, where: str) -> Recipe:
    """The recipe with keys changed. `tasks` as a list keeps these tasks, `tasks.*` is each."""
    texts = []
    for key, value in overrides.items():
        if key == "tasks" and isinstance(value, list | tuple):
            base = _only(base, [str(name) for name in value], where)
    for key, value in overrides.items():
        if key == "tasks" and isinstance(value, list | tuple):
            continue
        said = json.dumps(value, ensure_ascii=False)
        first, star, rest = key.partition(".*.")
        if star and first == "tasks":
            texts += [f"tasks.{name}.{rest}={said}" for name in base.tasks]
        else:
            texts.append(f"{key}={said}")
    try:
        return Recipe.read(base, texts).anchored()
    except UserError as mistake:
        raise UserError(f"{where}: {str(mistake).removeprefix('--set ')}") from None


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


# --- cells and runs ------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunSpec:
    """A run that is wanted."""

    cell: str
    seed: int
    recipe: Recipe

    @property
    def name(self) -> str:
        return f"{self.cell}-s{self.seed}"


def _grid(vary: Values) -> dict[str, Overrides]:
    """A cell for every combination of the values, under a name that tells it."""
    if not vary:
        return {}
    cells: dict[str, Overrides] = {}
    for values in itertools.product(*vary.values()):
        overrides = dict(zip(vary, values, strict=True))
        name = short = label(overrides)
        number = 2
        while name in cells:
            name, number = f"{short}-{number}", number + 1
        cells[name] = overrides
    return cells


def label(overrides: Overrides) -> str:
    """A name for a cell, fit for a folder: `split@3_lr=0.0001`."""
    keys = [key.split(".")[-1] for key in overrides]
    parts = []
    for key, last in zip(overrides, keys, strict=True):
        told = _told(overrides[key])
        short = last if keys.count(last) == 1 else ".".join(key.split(".")[-2:])
        parts.append(told if key in ("plan", "tasks") else f"{short}={told}")
    whole = re.sub(r"[^A-Za-z0-9_.@=+~-]+", "-", "_".join(parts)).strip("-.") or "cell"
    if len(whole) <= _LONGEST:
        return whole
    digest = hashlib.sha256(json.dumps(overrides, sort_keys=True).encode()).hexdigest()[:8]
    return f"{whole[: _LONGEST - 9]}-{digest}"


def named(text: str, cells: Iterable[str]) -> str | None:
    """The cell that is meant, by its name or by its label in a comparison: `split@3, lr=0.0001`."""
    cells = list(cells)
    if text in cells:
        return text
    found = [cell for cell in cells if _words(cell) == _words(text)]
    return found[0] if len(found) == 1 else None


def _words(text: str) -> list[str]:
    """What a cell's name and its label have in common: the order and the signs between differ."""
    return sorted(re.findall(r"[A-Za-z0-9.@=+~]+", text.replace("tasks=", "")))


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return "+".join(f"{key}-{_told(own)}" for key, own in value.items())
    if isinstance(value, list | tuple):
        return "+".join(map(_told, value))
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def check(recipes: Iterable[Recipe]) -> None:
    """Refuse at once what would fail a run later: plans, the data folder."""
    from bough.model.network import plan_of
    from bough.model.pretrained import find
    from bough.plan.encoder_shape import Shape

    shapes: dict[str, Shape | None] = {}
    seen: set[str] = set()
    for recipe in recipes:
        key = json.dumps([recipe.encoder, recipe.plan, list(recipe.tasks), recipe.data])
        if key in seen:
            continue
        seen.add(key)
        assert recipe.root
        if recipe.encoder not in shapes:
            try:
                shapes[recipe.encoder] = Shape.read(find(recipe.encoder))
            except UserError:  # the run that needs it says so
                shapes[recipe.encoder] = None
        shape = shapes[recipe.encoder]
        if shape is not None:
            plan_of(recipe.plan, recipe.tasks, shape)
