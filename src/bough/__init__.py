"""One trunk, many boughs: fine-tune one text encoder for several tasks and serve them from it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bough.errors import UserError
from bough.machine_limits import keep_few_kernels, sleep_when_idle

if TYPE_CHECKING:
    from bough.comparison.compare import compare
    from bough.data.drafting.init_recipe import init
    from bough.inference.answers import Answer, Entity
    from bough.inference.columns import columns
    from bough.inference.evaluation import evaluate
    from bough.inference.judging.evaluation import Evaluation
    from bough.inference.load import load
    from bough.inference.model import Model
    from bough.inference.torch_model import MultiTaskModel
    from bough.plan.plan import Plan
    from bough.pretraining.pretrain import pretrain
    from bough.recipe.recipe import Recipe
    from bough.reports.page import report
    from bough.runs.run_dir import Run
    from bough.training.check import check
    from bough.training.train import resume, train

__version__ = "0.1.0.dev0"
__all__ = [
    "Answer", "Entity", "Evaluation", "Model", "MultiTaskModel", "Plan", "Recipe", "Run",
    "UserError", "check", "columns", "compare", "evaluate", "init", "load", "pretrain", "report",
    "resume", "train",
]  # fmt: skip

sleep_when_idle()  # before torch is loaded
keep_few_kernels()

# Where the public names are defined; torch is loaded with the first that needs it.
_DEFINED_IN = {
    "Answer": "inference.answers.Answer",
    "Entity": "inference.answers.Entity",
    "Evaluation": "inference.judging.evaluation.Evaluation",
    "Model": "inference.model.Model",
    "MultiTaskModel": "inference.torch_model.MultiTaskModel",
    "Plan": "plan.plan.Plan",
    "Recipe": "recipe.recipe.Recipe",
    "Run": "runs.run_dir.Run",
    "check": "training.check.check",
    "columns": "inference.columns.columns",
    "compare": "comparison.compare.compare",
    "evaluate": "inference.evaluation.evaluate",
    "init": "data.drafting.init_recipe.init",
    "load": "inference.load.load",
    "pretrain": "pretraining.pretrain.pretrain",
    "report": "reports.page.report",
    "resume": "training.train.resume",
    "train": "training.train.train",
}


def __getattr__(name: str) -> Any:
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'bough' has no attribute {name!r}")
    module, _, defined = _DEFINED_IN[name].rpartition(".")
    return getattr(importlib.import_module(f"bough.{module}"), defined)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
