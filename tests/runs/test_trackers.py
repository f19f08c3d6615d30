"""Mirrors: what the log says arrives elsewhere, and their failures are not the run's."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bough.errors import UserError
from bough.runs.console import Moment, Silent
from bough.runs.run_dir import Run
from bough.runs.trackers import TensorBoard, Tracked, WandB, log_values, score_values, tracked
from bough.training.loop import Stopped
from bough.training.train import resume, train
from tests import folders

ENTRY = {"step": 7, "epoch": 0.5, "loss": {"a": 1.0, "b": 2.0}, "lr": 1e-3,
         "cosines": {"layer 1": {"a+b": -0.5}}}  # fmt: skip
SCORES = {"tasks": {"a": {"metric": "accuracy", "accuracy": 0.5, "f1": 0.4, "loss": 1.1, "rows": 9,
                          "interval": [0.1, 0.9]}}, "raw": 0.5, "normalised": 0.5}  # fmt: skip


class Heard(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.steps = 0

    def say(self, text: str) -> None:
        self.said.append(text)

    def step(self, moment: Moment) -> None:
        self.steps += 1


def test_what_is_mirrored() -> None:
    assert dict(log_values(ENTRY)) == {
        "epoch": 0.5, "loss/a": 1.0, "loss/b": 2.0, "lr": 1e-3, "cosines/layer 1/a+b": -0.5
    }  # fmt: skip
    assert dict(score_values(SCORES)) == {
        "dev/a/accuracy": 0.5, "dev/a/f1": 0.4, "dev/a/loss": 1.1, "dev/raw": 0.5,
        "dev/normalised": 0.5,
    }  # fmt: skip


def test_a_failing_mirror_is_left_behind(tiny_folder: Path, tmp_path: Path) -> None:
    class Broken(TensorBoard):
        def log(self, entry: Mapping[str, Any]) -> None:
            raise OSError("the network is down")

    heard = Heard()
    recipe = folders.small(tiny_folder, steps=3, evaluate_rows=8)
    run = train(recipe, tmp_path / "run", display=Tracked(heard, [Broken(tmp_path)]))
    assert run.finished
    assert heard.steps == 3
    failures = [text for text in heard.said if "failed" in text]
    assert failures == ["tensorboard failed and is left out from here on: the network is down"]


def test_trackers_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Silent()
    assert tracked(silent, (), tmp_path) is silent
    with pytest.raises(UserError, match=r"--mirror 'wandbb': .*; did you mean 'wandb'\?"):
        tracked(silent, ["wandbb"], tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs its package: pip install 'tensorboard"):
        tracked(silent, ["tensorboard"], tmp_path)


def stopped_and_resumed(tiny_folder: Path, folder: Path, mirror: str) -> Run:
    """With a checkpoint only at the stop, after which steps are logged again."""

    class Stop(Silent):
        def step(self, moment: Moment) -> None:
            if moment.step == 3:
                os.kill(os.getpid(), signal.SIGINT)

    recipe = folders.small(tiny_folder, steps=6, evaluate_every=2, evaluate_rows=8)
    with pytest.raises(Stopped):
        train(recipe, folder, display=tracked(Stop(), [mirror], folder))
    return resume(folder, tracked(Silent(), [mirror], folder))


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="the tensorboard extra is not here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_what_the_log_has(tiny_folder: Path, tmp_path: Path) -> None:
    module = "tensorboard.backend.event_processing.event_accumulator"
    accumulator = pytest.importorskip(module).EventAccumulator
    run = stopped_and_resumed(tiny_folder, tmp_path / "run", "tensorboard")
    found = accumulator(str(run.folder / "tensorboard"))
    found.Reload()
    lines = [entry for entry in run.metrics() if "loss" in entry]
    for task in folders.TASKS:
        events = found.Scalars(f"loss/{task}")
        assert [event.step for event in events] == [1, 2, 3, 4, 5, 6]
        told = [line["loss"][task] for line in lines]
        assert [event.value for event in events] == pytest.approx(told, rel=1e-6)
    dev = [entry for entry in run.metrics() if "dev" in entry]
    events = found.Scalars("dev/raw")
    assert [event.step for event in events] == [entry["step"] for entry in dev] == [2, 4, 6]
    assert [e.value for e in events] == pytest.approx([e["dev"]["raw"] for e in dev], rel=1e-6)


@pytest.mark.skipif(find_spec("wandb") is None, reason="the wandb extra is not here")
@pytest.mark.filterwarnings("ignore")
def test_wandb_keeps_a_run_of_its_own(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = stopped_and_resumed(tiny_folder, tmp_path / "run", "wandb")
    known = (run.folder / "wandb" / "id").read_text()
    kept = sorted((run.folder / "wandb").glob("offline-run-*"))
    assert kept
    assert all(folder.name.endswith(known) for folder in kept)
    assert all(list(folder.glob("*.wandb")) for folder in kept)
    assert run.finished


def test_wandb_is_told_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As wandb's own client sees it, where it is not installed."""
    told: list[Any] = []

    class Client:
        def init(self, **settings: Any) -> Client:
            told.append(settings)
            return self

        def define_metric(self, name: str, step_metric: str) -> None:
            assert (name, step_metric) == ("*", "step")

        def log(self, values: Mapping[str, float]) -> None:
            told.append(values)

        def finish(self) -> None:
            told.append("finished")

    monkeypatch.setitem(sys.modules, "wandb", Client())
    (tmp_path / "recipe.yaml").write_text("tasks: {}")
    for _ in range(2):  # the second time it is the same run that goes on
        mirror = WandB(tmp_path)
        mirror.log(ENTRY)
        mirror.scored(7, SCORES, True)
        mirror.close()
        mirror.close()
    first, line, scores, end, second, *_ = told
    assert first["id"] == second["id"]
    assert first["resume"] == "allow"
    assert line["step"] == scores["step"] == 7
    assert line["loss/b"] == 2.0
    assert scores["dev/raw"] == 0.5
    assert end == "finished"
