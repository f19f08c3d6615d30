"""What a run left behind, for those who look into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bough.data.dataset import Data
from bough.inference.torch_model import untrained_model
from bough.recipe.recipe import Recipe
from bough.runs.run_dir import Run

FEW: dict[str, Any] = {"steps": 4, "evaluate_rows": 8}


def logged(run: Run) -> list[dict[str, Any]]:
    return [entry for entry in run.metrics() if "loss" in entry]


def judged(run: Run) -> list[dict[str, Any]]:
    return [entry for entry in run.metrics() if "dev" in entry]


def final(run: Run) -> dict[str, Tensor]:
    """The weights after the last step, whichever were kept as the best."""
    state = torch.load(run.checkpoint, weights_only=True)
    weights: dict[str, Tensor] = state["stepper"]["network"]
    return weights


def fresh(recipe: Mapping[str, Any]) -> dict[str, Tensor]:
    told = Recipe.read(recipe)
    return untrained_model(told, Data.gather(told))[0].network.state_dict()


def moved(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> set[str]:
    """The cells in which a weight changed."""
    return {name.split(".")[1] for name in after if not torch.equal(before[name], after[name])}
