"""A recipe's `pretraining`, and what it takes over from `training`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.errors import UserError
from bough.recipe.pretraining import Pretraining
from bough.recipe.recipe import Recipe
from bough.recipe.training import Training
from tests.folders import TASKS


def test_it_has_a_course_of_its_own_and_the_rest_of_training() -> None:
    training = Training(
        seed=3, lr=1e-3, epochs=9, steps_per_epoch=5, sampling="annealed", combine="pcgrad",
        ema=0.9, decay=0.1, dropout=0.2, clip=None, accumulate=2, save_every=7, patience=1,
    )  # fmt: skip
    held = Pretraining(lr=2e-5, steps=40).over(training)
    assert (held.lr, held.steps, held.epochs, held.batch) == (2e-5, 40, 1, 32)
    assert (held.seed, held.decay, held.dropout, held.clip) == (3, 0.1, 0.2, None)
    assert (held.accumulate, held.save_every) == (2, 7)
    # What is about several tasks, or about choosing by their scores, has no meaning here.
    assert (held.sampling, held.combine, held.ema, held.patience) == ("each", "sum", None, None)
    assert held.steps_per_epoch is None


def test_it_is_read_with_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORE", "lines")
    settings = {"tasks": TASKS, "pretraining": {"files": "${MORE}.txt", "start": "runs/${MORE}"}}
    recipe = Recipe.read(settings, ["pretraining.mask=0.3"])
    assert recipe.pretraining == Pretraining(files=("lines.txt",), start="runs/lines", mask=0.3)
    assert Recipe.read({"tasks": TASKS}).pretraining is None
    (tmp_path / "recipe.yaml").write_text(recipe.dump())
    assert Recipe.read(tmp_path / "recipe.yaml") == recipe


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mask": 0}, r"pretraining\.mask is 0"),
        ({"held_out": 1.0}, r"pretraining\.held_out is 1"),
        ({"evaluate_every": "week"}, r"pretraining\.evaluate_every: expected epoch, or a number"),
        ({"tokens": 5}, r"pretraining\.tokens is no key of a recipe"),
    ],
)
def test_mistakes(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Recipe.read({"tasks": TASKS, "pretraining": settings})
