"""A survey's file: what it may say, and what it comes to at a budget.

A survey names a base recipe and what varies: a grid over dotted keys, single cells by name, or a
search; times seeds. Its budgets are sizes of it: the same questions, asked at less or more expense.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from bough.comparison.cell_names import Overrides
from bough.errors import UserError, listed, nearest
from bough.recipe import yaml
from bough.recipe.raw_settings import RawSettings, escaped, mapped
from bough.recipe.recipe import Recipe
from bough.recipe.validation import misfit
from bough.survey.cells import SEED, RunSpec, check_name, grid, with_overrides
from bough.user_paths import similar_file

COSTS = ("bytes_to_serve", "step_seconds", "training_seconds", "peak_memory")


def _seeds(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return tuple(range(value))
    if isinstance(value, list | tuple) and value and len(set(map(str, value))) == len(value):
        return tuple(value)
    raise ValueError("expected a number of seeds from 1 on, or a list of different seeds")


Seeds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_seeds)]
Values = dict[str, Annotated[list[Any], Field(min_length=1)]]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Budget(_Strict):
    """How large the survey is taken: what it changes about the file."""

    fixed: Overrides = Field(default_factory=dict, description="Keys of every run.")
    vary: Values = Field(default_factory=dict, description="Other values for keys of the grid.")
    cells: dict[str, Overrides] = Field(
        default_factory=dict, description="Other keys for cells, or further cells."
    )
    seeds: Seeds | None = Field(None, description="Other seeds.")
    trials: int | None = Field(None, ge=1, description="Another number of trials of the search.")


class Span(_Strict):
    """Numbers to search: whole ones if both ends are."""

    low: int | float = Field(description="The least.")
    high: int | float = Field(description="The most.")
    log: bool = Field(False, description="Small and large ones alike: by their logarithms.")
    step: int | float | None = Field(None, gt=0, description="Only every so many.")

    @model_validator(mode="after")
    def _ends_agree(self) -> Self:
        if not self.low < self.high or (self.log and self.low <= 0):
            also = "and above 0 " if self.log else ""
            raise misfit(f"expected low below high {also}(found {self.low:g} and {self.high:g})")
        if self.log and self.step is not None:
            raise misfit("log and step do not go together; leave one out")
        return self


class Search(_Strict):
    """Cells chosen by optuna from what the earlier ones gave."""

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


class Survey(_Strict):
    """A survey as its file says it; in the survey's directory, complete as resolved."""

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

    _origins: dict[yaml.Path, str] = PrivateAttr(default_factory=dict)  # the file, and its lines
    _base_origins: Mapping[yaml.Path, str] = PrivateAttr(default_factory=dict)  # the recipe's own

    def __eq__(self, other: object) -> bool:
        """Whether both ask for the same, wherever they were read from."""
        return isinstance(other, Survey) and self.__dict__ == other.__dict__

    @classmethod
    def read(cls, source: str | os.PathLike[str] | Mapping[str, Any] | Survey) -> Survey:
        """A survey from a file or a dict, its base recipe within it."""
        if isinstance(source, Survey):
            return source
        settings = RawSettings.read(source, _keys, "survey", "recipe", _variables)
        if "tasks" in settings.data and "recipe" not in settings.data:
            raise UserError(_no_recipe(settings.name))
        try:
            survey = cls.model_validate(settings.data)
        except ValidationError as fault:
            raise settings.user_error(fault.errors()) from None
        survey._origins = settings.origins
        recipe = _base(survey.recipe, settings.folder, settings.where(("recipe",)))
        within = {at[1:]: line for at, line in settings.origins.items() if at[:1] == ("recipe",)}
        survey._base_origins = within if isinstance(survey.recipe, dict) else recipe.origins
        return survey.model_copy(update={"recipe": mapped(recipe, lambda text, _: escaped(text))})

    def resolved(self, budget: str | None = None, threads: int | None = None) -> Survey:
        """One size of it, every cell written out, on a base that is complete."""
        budget = budget or next(iter(self.budgets), None)
        size = self._budget(budget)
        base = with_overrides(self.base, self.fixed | size.fixed, partial(self._fixed, budget))
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
        cells = grid(self.vary | size.vary)
        for name in [*self.cells, *(name for name in size.cells if name not in self.cells)]:
            check_name(name)
            if name in cells:
                raise UserError(f"cells: {name!r} is in the grid already; give it another name")
            cells[name] = self.cells.get(name, {}) | size.cells.get(name, {})
        if search is None and not cells:
            raise UserError("an empty survey: give it `vary`, `cells` or `search`")
        if search is not None and cells:
            raise UserError(
                "a survey is either a search or made of cells; leave `search` out or them"
            )
        if any(SEED in keys for keys in (*cells.values(), search.space if search else {})):
            raise UserError(f"{SEED} cannot vary by itself; name the seeds in `seeds`")
        survey = self.model_copy(
            update={
                "recipe": mapped(base, lambda text, _: escaped(text)),
                "fixed": {},
                "vary": {},
                "cells": cells,
                "search": search,
                "seeds": size.seeds or self.seeds,
                "budgets": {},
                "budget": budget or self.budget,
            }
        )
        survey._base_origins = base.origins
        return survey

    def _budget(self, name: str | None) -> Budget:
        if name is None:
            return Budget()
        if name not in self.budgets:
            known = listed(list(self.budgets)) or "none"
            raise UserError(f"no budget {name!r}; there is {known}{nearest(name, self.budgets)}")
        return self.budgets[name]

    @property
    def base(self) -> Recipe:
        return Recipe.read(self.recipe).traced(self._base_origins)

    def run_specs(self) -> list[RunSpec]:
        """Every run of a resolved survey, all cells with the first seed first."""
        base = self.base
        return [
            RunSpec.of(base, name, overrides, seed, partial(self.where, name))
            for seed in self.seeds
            for name, overrides in self.cells.items()
        ]

    def where(self, cell: str, key: str = "") -> str:
        """What a message calls a key of a cell: with the line that sets it, where it is known."""
        sizes: tuple[yaml.Path, ...] = (("budgets", self.budget or ""), ())
        places = [
            place
            for size in sizes
            for place in ((*size, "cells", cell, key), (*size, "vary", key), (*size, "cells", cell))
        ]
        return f"{self.origin(*places)}cell {cell!r}"

    def _fixed(self, budget: str | None, key: str) -> str:
        return f"{self.origin(('budgets', budget or '', 'fixed', key), ('fixed', key))}fixed"

    def origin(self, *places: yaml.Path) -> str:
        """The beginning of a message on the first of these places that the survey's file has."""
        found = next(
            (self._origins[place] for place in (*places, ()) if place in self._origins), ""
        )
        return f"{found}: " if found else ""

    def dump(self) -> str:
        """The survey as YAML; reading it gives an equal survey."""
        return yaml.write(mapped(self, lambda text, _: text))


def _variables(path: yaml.Path) -> Literal["fill", "leave"]:
    """The variables of a survey are its recipes', which fill them in or refuse them."""
    return "fill" if path in (("recipe",), ("recipe", "data")) else "leave"


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


def _no_recipe(name: str) -> str:
    file = Path(name).name
    return (
        f"{name}: is a recipe, and not a survey; a survey names its recipe (`recipe: {file}`) and "
        "what is to vary (`vary`, `cells` or `search`); for one run: bough train"
    )


def _base(recipe: str | dict[str, Any], folder: Path | None, source: str) -> Recipe:
    """The base recipe; a relative path starts at the survey's file, or here."""
    places = [*([folder] if folder is not None else []), Path()]
    if isinstance(recipe, str):
        files = {(place / recipe).absolute(): place / recipe for place in places}
        file = next((file for full, file in files.items() if full.is_file()), None)
        if file is None:
            looked = " and ".join(map(str, files))
            close = next(filter(None, map(similar_file, files)), "")
            raise UserError(
                f"{source}: recipe {recipe!r}: no such file, looked for {looked}{close}"
            )
        return Recipe.read(file)
    data = Path(str(recipe.get("data", ".")))
    if not data.is_dir() and (places[0] / data).is_dir():
        recipe = {**recipe, "data": str(places[0] / data)}
    try:
        return Recipe.read(recipe)
    except UserError as error:
        raise UserError(f"{source}: recipe: {error}") from None
