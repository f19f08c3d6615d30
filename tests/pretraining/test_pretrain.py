"""A pretraining learns, can be stopped and killed at any moment, and leaves an encoder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bough
from bough.errors import UserError
from bough.pretraining.pretrain import pretrain, resume
from bough.runs.run_dir import Run
from bough.training.loop import Stopped
from bough.training.train import resume as resume_training
from bough.training.train import train
from tests import folders
from tests.runs.test_resume import Trouble, crash, interrupt
from tests.same import assert_equal, assert_same_log
from tests.training.test_kill import tortured

FEW = {"steps": 6, "batch": 8, "evaluate_every": 3, "lr": 1e-2}


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda number: None)


def recipe(folder: Path, **settings: Any) -> dict[str, Any]:
    return {**folders.small(folder, save_every=1e9), "pretraining": {**FEW, **settings}}


def assert_same_pretraining(one: Run, other: Run) -> None:
    for name in ("encoder/model.safetensors", "encoder/config.json", "recipe.yaml", "scores.json"):
        assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes(), name
    states = [torch.load(run.checkpoint, weights_only=True) for run in (one, other)]
    assert_equal(*(state | {"log": 0} for state in states))
    assert_same_log(one, other)


def test_what_is_held_out_is_guessed_better(tiny_folder: Path, tmp_path: Path) -> None:
    settings = {"texts": "both", "steps": None, "epochs": 40, "evaluate_every": "epoch"}
    run = pretrain(recipe(tiny_folder, **settings), tmp_path / "run")
    before, after = (run.scores[when]["tasks"]["texts"] for when in ("before", "after"))
    assert after["loss"] < 0.85 * before["loss"]
    assert after["perplexity"] == pytest.approx(np.exp(after["loss"]))
    assert after["rows"] == before["rows"] > 10
    judged = [entry["dev"]["tasks"]["texts"]["loss"] for entry in run.metrics() if "dev" in entry]
    assert after["loss"] == min(judged)
    assert len(judged) == 41
    assert run.cost["tokens"] > 0


def test_any_recipe_may_name_what_it_left(tiny_folder: Path, tmp_path: Path) -> None:
    run = pretrain(recipe(tiny_folder, whole_words=True), tmp_path / "read")
    assert Run.open(run.folder).recipe().pretraining.steps == 6  # type: ignore[union-attr]
    tuned = train(folders.small(run.folder, steps=1) | {"data": str(tiny_folder.parent / "rows")},
                  tmp_path / "tuned")  # fmt: skip
    assert tuned.finished
    assert tuned.recipe().pretraining is None
    # And after training: the run's trunk read further, the folder trained on once more.
    after = pretrain(recipe(tiny_folder, start=str(tuned.folder)), tmp_path / "after")
    assert after.recipe().pretraining.start == str(tuned.folder)  # type: ignore[union-attr]
    with pytest.raises(UserError, match="is a pretraining, which answers nothing; train tasks"):
        bough.load(after.folder)


@pytest.mark.parametrize("how", ["stopped", "crashed", "crashed early"])
def test_resumed_bit_for_bit(how: str, tiny_folder: Path, tmp_path: Path) -> None:
    settings = recipe(tiny_folder)
    settings["training"] |= {"accumulate": 2, "save_every": 0 if how == "crashed" else 1e9}
    whole = pretrain(settings, tmp_path / "whole")
    what, error = (interrupt, Stopped) if how == "stopped" else (crash, RuntimeError)
    step = 2 if how == "crashed early" else 4
    match = "go on with: bough pretrain --resume" if how == "stopped" else "broke"
    with pytest.raises(error, match=match):
        pretrain(settings, tmp_path / "run", display=Trouble(step, what))
    assert not Run.open(tmp_path / "run").finished
    assert_same_pretraining(whole, resume(tmp_path / "run"))
    with pytest.raises(UserError, match="is finished"):
        resume(tmp_path / "run")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_killed_while_files_are_written(tiny_folder: Path, tmp_path: Path) -> None:
    settings = recipe(tiny_folder, steps=4, evaluate_every=2)
    settings["training"] |= {"save_every": 0}
    finished = tortured(tmp_path, "files", settings, 5)
    assert len(finished) == 5
    for name in finished:
        assert_same_pretraining(Run.open(tmp_path / "whole"), Run.open(tmp_path / name))


def test_each_verb_goes_on_with_its_own_runs(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        pretrain(recipe(tiny_folder), tmp_path / "read", display=Trouble(1, interrupt))
    with pytest.raises(UserError, match="begun by `bough pretrain`; go on with: bough pretrain"):
        resume_training(tmp_path / "read")
    with pytest.raises(Stopped):
        train(folders.small(tiny_folder, steps=3), tmp_path / "run", display=Trouble(1, interrupt))
    with pytest.raises(UserError, match="begun by `bough train`; go on with: bough train"):
        resume(tmp_path / "run")


def test_texts_that_changed_are_noticed(tiny_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "more.txt"
    file.write_text("one line\nanother line\n")
    settings = recipe(tiny_folder, files=[str(file)])
    with pytest.raises(Stopped):
        pretrain(settings, tmp_path / "run", display=Trouble(1, interrupt))
    file.write_text("one line\nan other line\n")
    with pytest.raises(UserError, match="the texts have changed since the run began"):
        resume(tmp_path / "run")


def test_the_seed_and_the_settings_matter(tiny_folder: Path, tmp_path: Path) -> None:
    plain = recipe(tiny_folder, steps=2, evaluate_every=2)
    runs = {
        name: pretrain(plain, tmp_path / name, overrides)
        for name, overrides in {
            "plain": [], "again": [], "seed": ["training.seed=1"], "mask": ["pretraining.mask=.3"],
        }.items()
    }  # fmt: skip
    left = {n: (r.folder / "encoder/model.safetensors").read_bytes() for n, r in runs.items()}
    assert left["plain"] == left["again"]
    assert len(set(left.values())) == 3
    entry = json.loads((runs["plain"].folder / "metrics.jsonl").read_text().splitlines()[1])
    assert set(entry["loss"]) == {"texts"}
