"""One trunk, many boughs: fine-tune one text encoder for several tasks and serve them from it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bough.errors import UserError

if TYPE_CHECKING:
    from bough.inference.base import Answer, Model
    from bough.inference.torch_model import MultiTaskModel, load
    from bough.plan.plan import Plan
    from bough.recipe.recipe import Recipe
    from bough.runs.run_dir import Run
    from bough.training.api import resume, train

__version__ = "0.1.0.dev0"
__all__ = [
    "Answer",
    "Model",
    "MultiTaskModel",
    "Plan",
    "Recipe",
    "Run",
    "UserError",
    "load",
    "resume",
    "train",
]

# Where the public names live; torch is loaded with the first that needs it.
_ROOMS = {
    "Answer": "inference.base",
    "Model": "inference.base",
    "MultiTaskModel": "inference.torch_model",
    "load": "inference.torch_model",
    "Plan": "plan.plan",
    "Recipe": "recipe.recipe",
    "Run": "runs.run_dir",
    "resume": "training.api",
    "train": "training.api",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'bough' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bough.{_ROOMS[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
