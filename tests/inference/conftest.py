"""A small model with every kind of task, trained once for all tests of answering."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.inference.load import load_torch
from bough.inference.torch_model import MultiTaskModel
from bough.runs.run_dir import Run
from bough.training.train import train
from tests import folders

PLAN = "split@1/questions+similarity, late:I, feed:questions>similarity"


@pytest.fixture(scope="module")
def run(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = folders.small(tiny_folder, steps=6, lr=1e-2, evaluate_rows=8, plan=PLAN)
    recipe["tasks"] |= {
        "twin": folders.TASKS["similarity"] | {"pair": "twin", "pooling": "mean", "head": "mlp"}
    }
    return train(recipe, tmp_path_factory.mktemp("model") / "run")


@pytest.fixture(scope="module")
def model(run: Run) -> MultiTaskModel:
    return load_torch(run)
