"""One trunk, many boughs: fine-tune one text encoder for several tasks and serve them from it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bough.mistakes import Mistake

if TYPE_CHECKING:
    from bough.asking import Answer, Model
    from bough.model import MultiTaskModel, load
    from bough.plan import Plan
    from bough.recipe import Recipe
    from bough.runs import Run
    from bough.training import resume, train

__version__ = "0.1.0.dev0"
__all__ = [
    "Answer",
    "Mistake",
    "Model",
    "MultiTaskModel",
    "Plan",
    "Recipe",
    "Run",
    "load",
    "resume",
    "train",
]

# Where the public names live; torch is loaded with the first that needs it.
_ROOMS = {
    "Answer": "asking",
    "Model": "asking",
    "MultiTaskModel": "model",
    "load": "model",
    "Plan": "plan",
    "Recipe": "recipe",
    "Run": "runs",
    "resume": "training",
    "train": "training",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'bough' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bough.{_ROOMS[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
