"""A soup: the mean of the weights of runs that differ by their seed, as far as that helps.

The best run on the dev rows is the beginning; the others are tried from the second best down, each
stays in if the mean is then no worse on the dev rows (https://arxiv.org/abs/2203.05482, its greedy
form). It costs no more to serve than one run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bough.data.dataset import Data
from bough.data.examples import Examples
from bough.errors import UserError
from bough.inference.load import load_torch
from bough.inference.torch_model import MultiTaskModel
from bough.recipe.raw_settings import flattened
from bough.recipe.recipe import Recipe
from bough.runs.run_dir import Run
from bough.scoring.evaluate import calibrate, predict, score
from bough.scoring.metrics import selected

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Tried:
    """One run, put in or left out."""

    run: str
    alone: float  # the dev score of it alone
    mixed: float  # and of the mean with it
    kept: bool


@dataclass(frozen=True)
class Soup:
    """What came of it."""

    folder: Path
    select: str  # which dev score decided
    tried: tuple[Tried, ...]
    scores: dict[str, Any]

    def lines(self) -> list[str]:
        """For people: each run, and the end."""
        each = [
            f"{t.run}: {self.select} {t.alone:.4f} alone, {t.mixed:.4f} in the mean: "
            + ("in" if t.kept else "left out")
            for t in self.tried
        ]
        kept = sum(t.kept for t in self.tried)
        return [*each, f"the mean of {kept} of {len(self.tried)} runs: {self.folder}"]


def soup(runs: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Soup:
    """Average runs of one recipe and write the model.

    Raises:
        UserError: Fewer than two runs, an unfinished one, or not of one recipe and start.
    """
    opened = [Run.open(run) for run in runs]
    recipe = _one_recipe(opened)
    models = [load_torch(run) for run in opened]
    base = models[0]
    data = Data.gather(recipe, ["dev"])
    dev = data.examples("dev", base.tokenizer, base.longest)
    select = recipe.training.select
    select = "normalised" if select == "last" else select
    states = [{k: v.clone() for k, v in m.network.state_dict().items()} for m in models]
    alone = [_score(base, state, dev, select) for state in states]
    order = sorted(range(len(opened)), key=lambda number: -alone[number])
    kept: list[Weights] = []
    best = float("-inf")
    tried = []
    for number in order:
        mixed = _score(base, mean([*kept, states[number]]), dev, select)
        stays = mixed >= best
        if stays:
            best = mixed
            kept.append(states[number])
        tried.append(Tried(str(opened[number].folder), alone[number], mixed, stays))
    base.network.load_state_dict(dict(mean(kept)))
    scores = _judged(base, recipe, dev)
    base.facts |= {"scores": {"dev": scores}}
    base.facts.pop("sha256", None)
    return Soup(base.save(Path(out)), select, tuple(tried), scores)


def mean(states: Sequence[Weights]) -> Weights:
    """Of each weight; what is no number stays as it is."""
    first = states[0]
    return {
        name: torch.stack([state[name] for state in states]).mean(0)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in first.items()
    }


def _one_recipe(runs: Sequence[Run]) -> Recipe:
    """The runs' recipe, if they differ by nothing but their seed."""
    if len(runs) < 2:
        raise UserError("a soup is made of two or more runs of one recipe; name them all")
    first = runs[0].recipe()
    settings = _settings(first)
    for run in runs:
        if not run.finished:
            raise UserError(f"{run.folder}: is not finished; bough train --resume {run.folder}")
        for key, value in _settings(run.recipe()).items():
            if settings.get(key) != value:
                raise UserError(
                    f"{run.folder} and {runs[0].folder} differ in {key}; a soup is made of runs "
                    "of one recipe that differ by their seed"
                )
        if run.environment.get("encoder") != runs[0].environment.get("encoder"):
            raise UserError(f"{run.folder} and {runs[0].folder} began with other encoders' weights")
    seeds = [run.recipe().training.seed for run in runs]
    if len(set(seeds)) < len(seeds):
        raise UserError("two of the runs have the same seed: they are one run twice")
    return first


def _settings(recipe: Recipe) -> dict[str, Any]:
    flat = flattened(recipe.model_dump(mode="json"))
    flat.pop("training.seed")
    return flat


def _score(
    model: MultiTaskModel, weights: Weights, dev: Mapping[str, Examples], select: str
) -> float:
    model.network.load_state_dict(dict(weights))
    found = score(model.tasks, dev, predict(model.network, dev))
    return selected(found, model.tasks, select)


def _judged(model: MultiTaskModel, recipe: Recipe, dev: Mapping[str, Examples]) -> dict[str, Any]:
    """The scores, with temperatures fitted anew."""
    tasks = model.network.tasks
    for name, task in tasks.items():
        given = recipe.tasks[name].temperature
        tasks[name] = task.model_copy(update={"temperature": given})
    answers = predict(model.network, dev)
    model.facts["calibration"] = calibrate(tasks, dev, answers)
    return score(tasks, dev, answers, intervals=True)
