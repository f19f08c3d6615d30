"""The loop: it stops when it is asked, or when nothing sensible can follow; never silently."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

import bough
from bough import machine_limits
from bough.distributed import ALONE
from bough.machine_limits import Tidying
from bough.runs.console import Silent
from bough.runs.run_dir import Run, Writer
from bough.training import loop as loop_module
from bough.training.loop import Failed, Loop
from bough.training.train import resume, train
from tests import folders
from tests.finished import final


def test_a_loss_that_is_no_number_stops_the_run(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(
        tiny_folder, steps=30, lr=1e30, warmup=0, clip=None, evaluate_every=1, evaluate_rows=8,
        schedule="constant",
    )  # fmt: skip
    with pytest.raises(Failed, match=r"not a finite number at step \d+; the last .* Lower"):
        train(recipe, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert all(torch.isfinite(weight).all() for weight in final(run).values())
    assert bough.load(run.folder).predict("Well.")
    assert not run.finished
    with pytest.raises(Failed, match="not a finite number"):  # the same again, not silence
        resume(run.folder)


def test_a_wish_to_stop_is_heard_once_and_a_second_one_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer.start(tmp_path / "run")
    told: list[str] = []
    display = Silent()
    monkeypatch.setattr(display, "say", told.append)
    loop = Loop(writer, display, ALONE, 1, "train")
    loop.heard()
    assert (loop.stop, told) == (True, ["stopping after this step; the run can be resumed"])
    loop.saving = True
    loop.heard()  # which is not heard while a checkpoint is written
    loop.saving = False
    with pytest.raises(KeyboardInterrupt):
        loop.heard()
    writer.close()


def test_memory_is_given_back_between_steps(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[None] = []
    monkeypatch.setattr(machine_limits, "give_back_memory", lambda: given_back.append(None))
    monkeypatch.setattr(machine_limits, "resident", itertools.count(1).__next__)
    monkeypatch.setattr(loop_module, "Tidying", lambda growth: Tidying())
    train(folders.small(tiny_folder, steps=3), tmp_path / "run")
    assert len(given_back) == 3
