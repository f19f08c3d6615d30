"""A recipe tried: what it says is what a run does, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import bough
from bough.errors import UserError
from bough.training.train import train
from tests import folders
from tests.finished import logged


def test_what_it_says_is_what_a_run_does(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = folders.small(tiny_folder, epochs=2, evaluate_rows=8)
    checked = bough.check(recipe, ["plan=split@1"])
    assert list(tmp_path.iterdir()) == []
    run = train(recipe, tmp_path / "run", ["plan=split@1"])
    assert checked.steps == logged(run)[-1]["step"]
    assert checked.parameters == run.cost["parameters"]
    rows = run.environment["data"]
    for name, splits in checked.rows.items():
        assert splits == {split: rows[name][split]["rows"] for split in splits}
    assert checked.plan.text == run.plan
    said = str(checked)
    assert str(checked.plan) in said
    assert f"{checked.steps:,} steps: about " in said
    assert "teachers" not in said


def test_the_time_is_that_of_steps_and_judging(tiny_folder: Path) -> None:
    few = bough.check(folders.small(tiny_folder, steps=10))
    many = bough.check(folders.small(tiny_folder, steps=10_000))
    assert few.steps * few.step_seconds < few.seconds < many.seconds
    assert many.seconds > 50 * few.step_seconds * few.steps
    by_clock = bough.check(folders.small(tiny_folder, minutes=2))
    assert by_clock.seconds > 120
    assert by_clock.steps == pytest.approx(120 / by_clock.step_seconds, rel=0.01)


def test_every_phase_is_tried(tiny_folder: Path) -> None:
    phases = [{"frozen": True, "steps": 30}, {"steps": 20, "tasks": ["sentiment"]}]
    assert bough.check(folders.small(tiny_folder, phases=phases)).steps == 50


def test_teachers_are_neither_trained_nor_asked(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder)
    taught = {"teacher": str(tmp_path / "nobody.yaml")}
    recipe["tasks"] = recipe["tasks"] | {"sentiment": recipe["tasks"]["sentiment"] | taught}
    said = str(bough.check(recipe))
    assert "what the teachers of sentiment take comes on top" in said


def test_mistakes_are_said_as_training_says_them(tiny_folder: Path) -> None:
    recipe = folders.small(tiny_folder)
    with pytest.raises(UserError, match="split@9"):
        bough.check(recipe, ["plan=split@9"])
    with pytest.raises(UserError, match="no column 'txt'"):
        bough.check(recipe, ["tasks.sentiment.text=txt"])


def test_threads_are_given_back(tiny_folder: Path) -> None:
    before = torch.get_num_threads()
    assert bough.check(folders.small(tiny_folder), ["threads=1"]).threads == 1
    assert torch.get_num_threads() == before
