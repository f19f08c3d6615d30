"""Equal budgets: runs of the same tokens, minutes or rows, whatever else differs."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from bough.data.dataset import Data
from bough.errors import UserError
from bough.recipe.recipe import Recipe
from bough.training.train import train
from tests import folders


@pytest.fixture
def base(tiny_folder: Path) -> dict[str, Any]:
    return {**folders.small(tiny_folder, steps=12), "threads": 1}


@pytest.mark.parametrize("sampling", ["each", "annealed", "method1", "in-turn"])
def test_a_budget_of_tokens_is_kept_whatever_the_sampling(base, tmp_path, sampling):
    asked = [f"training.sampling={sampling}", "training.tokens=6000", "training.steps=null"]
    run = train(base, tmp_path / "run", [*asked, "training.batch=4"])
    assert run.cost["tokens"] == pytest.approx(6000, rel=0.15)
    again = train(base, tmp_path / "again", [*asked, "training.batch=4"])
    assert again.scores == run.scores


def test_a_budget_of_minutes_is_kept(base, tmp_path, monkeypatch):
    """By a clock of its own, on which every step takes 50 milliseconds."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) * 0.05)
    asked = ["training.minutes=0.02", "training.steps=null", "training.evaluate_rows=4"]
    run = train(base, tmp_path / "run", asked)
    assert run.cost["training_seconds"] == pytest.approx(1.2, abs=0.051)
    rates = [entry["lr"] for entry in run.metrics() if "lr" in entry]
    assert rates[-1] < 0.2 * max(rates), "the learning rate has come down by then"


def test_a_run_has_one_length(base):
    with pytest.raises(UserError, match="has its length by `steps` already; keep one of the two"):
        Recipe.read(base, ["training.minutes=3"])


def test_a_limit_takes_the_same_rows_always_and_a_higher_one_adds_to_them(base):
    def dev(limit: str) -> list[str]:
        recipe = Recipe.read(base, [f"tasks.sentiment.limit.dev={limit}"])
        data = Data.gather(recipe)
        notes = [note for note in data.notes() if "`limit` says: sentiment dev" in note]
        assert len(notes) == (limit == "5" or limit == "9")
        return list(data.rows["sentiment"]["dev"].ids)

    five, nine, every = dev("5"), dev("9"), dev("null")
    assert len(five) == 5
    assert five == dev("5")
    assert set(five) < set(nine) < set(every) == set(dev("1000"))
    assert nine == [row for row in every if row in set(nine)], "in the file's spec"
