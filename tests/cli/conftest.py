"""A run that several verbs are tried on, in an empty folder and a wide terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.runs.run_dir import Run
from bough.training.train import train
from tests import folders


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="session")
def run(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = folders.small(tiny_folder, steps=4, lr=1e-2, evaluate_rows=8)
    recipe["tasks"]["sentiment"] = folders.TASKS["sentiment"] | {"test": "sentiment-dev.csv"}
    recipe["tasks"]["questions"] = folders.TASKS["questions"] | {"test": "questions-dev.csv"}
    recipe["tasks"]["similarity"] = folders.TASKS["similarity"] | {"test": "similarity-dev.csv"}
    return train(recipe, tmp_path_factory.mktemp("cli") / "run")
