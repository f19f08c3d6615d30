"""A run to export."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import folders


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from bough.training.train import train

    folder = tmp_path_factory.mktemp("run")
    made = folders.encoder(folder / "encoder", layers=1, width=128)  # tracing takes time by layers
    recipe = folders.recipe(made, rows=folders.data(folder / "data"), steps=3, plan="full")
    return train(recipe, folder / "run").folder


@pytest.fixture
def own_modules(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers copies a folder's code into its cache: not into the user's."""
    from transformers import dynamic_module_utils

    folder = tmp_path_factory.mktemp("modules")
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(folder))
    monkeypatch.syspath_prepend(str(folder))
    # The package that was imported from the cache of the test before would be looked in.
    for name in [name for name in sys.modules if name.split(".")[0] == "transformers_modules"]:
        monkeypatch.delitem(sys.modules, name)
