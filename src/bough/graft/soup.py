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
from bough.scoring.metrics import aggregates
from bough.scoring.selection import selected

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
    dev = data.examples("dev", base.tokenizer, base.longest, base.tagger)
    select = recipe.training.select
    select = "normalised" if select in ("auto", "last") else select
    states = [{k: v.clone() for k, v in m.network.state_dict().items()} for m in models]
    counted = recipe.counted()
    alone = [_score(base, state, dev, counted, select) for state in states]
    order = sorted(range(len(opened)), key=lambda number: -alone[number])
    kept: list[int] = []
    best = float("-inf")
    tried = []
    for number in order:
        mean_with = mean([states[other] for other in (*kept, number)])
        mixed = _score(base, mean_with, dev, counted, select)
        stays = mixed >= best
        if stays:
            best = mixed
            kept.append(number)
        tried.append(Tried(str(opened[number].folder), alone[number], mixed, stays))
    base.network.load_state_dict(dict(mean([states[number] for number in kept])))
    scores = _judged(base, recipe, dev)
    base.facts |= {
        "scores": {"dev": scores},
        "training": _training([models[number] for number in kept]),
        "cost": _cost(base),
    }
    for key in ("sha256", "int8"):  # of the first run's weights
        base.facts.pop(key, None)
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


def _training(models: Sequence[MultiTaskModel]) -> dict[str, Any]:
    """How the runs in the mean were trained, as far as all of them were trained so."""
    each = [model.facts.get("training", {}) for model in models]
    same = {key: value for key, value in each[0].items() if all(o.get(key) == value for o in each)}
    seeds = ", ".join(str(training.get("seed")) for training in each)
    if len(models) == 1:
        return same
    return {"the mean of": f"{len(models)} runs with the seeds {seeds}", **same}


def _cost(model: MultiTaskModel) -> dict[str, Any]:
    """What it is to serve; its time and memory were spent on several runs."""
    parameters = sum(parameter.numel() for parameter in model.network.parameters())
    return {"parameters": parameters, "bytes_to_serve": 4 * parameters}


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
    model: MultiTaskModel,
    weights: Weights,
    dev: Mapping[str, Examples],
    counted: Sequence[str],
    select: str,
) -> float:
    """The dev score that decides."""
    model.network.load_state_dict(dict(weights))
    found = score(model.tasks, dev, predict(model.network, dev))
    # Any task may be the one to select by; sums and means are of those that count.
    names = model.tasks if select in model.tasks else counted
    among = {name: model.tasks[name] for name in names}
    return selected(_of_counted(model, found, counted), among, select)


def _of_counted(
    model: MultiTaskModel, found: dict[str, Any], counted: Sequence[str]
) -> dict[str, Any]:
    """The scores, their means being over the tasks that count."""
    return found | aggregates(model.tasks, {name: found["tasks"][name] for name in counted})


def _judged(model: MultiTaskModel, recipe: Recipe, dev: Mapping[str, Examples]) -> dict[str, Any]:
    """The scores, with temperatures fitted anew."""
    tasks = model.network.tasks
    for name, task in tasks.items():
        given = recipe.tasks[name].temperature
        tasks[name] = task.model_copy(update={"temperature": given})
    answers = predict(model.network, dev)
    model.facts["calibration"] = calibrate(tasks, dev, answers)
    found = score(tasks, dev, answers, intervals=True)
    return _of_counted(model, found, recipe.counted())
