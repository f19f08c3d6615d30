"""Simulated runs to compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bough.comparison.compare import Comparison, compare
from tests import simulated


@pytest.fixture(scope="package")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two plans and three seeds; sharing makes sts much better and quora much worse."""
    folder = tmp_path_factory.mktemp("survey")
    source = simulated.data(folder / "data")
    for plan, skill in (("separate", {}), ("full", {"sts": 2.0, "quora": -1.0})):
        for seed in range(3):
            recipe = simulated.recipe(source, plan, seed)
            simulated.run(folder / "runs" / f"{plan}-{seed}", recipe, skill)
    return folder


@pytest.fixture(scope="package")
def comparison(survey: Path) -> Comparison:
    return compare([survey])


@pytest.fixture
def make(tmp_path: Path) -> simulated.Make:
    source = simulated.data(tmp_path / "data", 40)

    def one(name: str, plan: str = "full", seed: int = 0, **settings: Any) -> Path:
        kept = {k: settings.pop(k) for k in ("finished", "steps", "machine") if k in settings}
        recipe = simulated.recipe(source, plan, seed, **settings)
        return simulated.run(tmp_path / name, recipe, **kept)

    return one
