"""bough train and pretrain: exit codes, and one sentence per mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from bough.recipe.recipe import Recipe
from bough.runs.console import Silent
from bough.runs.run_dir import Run
from tests import folders
from tests.command import BOUGH, QUIET, bough


@pytest.fixture
def recipe(tiny_folder: Path, tmp_path: Path) -> Path:
    file = tmp_path / "three.yaml"
    file.write_text(json.dumps(folders.small(tiny_folder, steps=4, evaluate_rows=8)))
    return file


def test_training(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bough("train", recipe, "--set", "training.steps=2", "--set", "plan=split@1") == 0
    told = capsys.readouterr()
    run = Run.open(tmp_path / "runs" / "three")
    assert run.plan == "split@1"
    assert Recipe.read(run.recipe_file).training.steps == 2
    assert "runs/three: dev" in told.out
    for word in ("sentiment", "accuracy", "pearson", "raw", "normalised", "95 % interval"):
        assert word in told.out
    assert "Next: bough predict runs/three FILE" in told.out
    assert "step 2/2" in told.err
    assert bough("train", recipe, "-o", "mine", "--set", "training.steps=1") == 0
    assert bough("train", recipe, "--set", "training.steps=1") == 0
    assert Run.open("mine").finished
    assert Run.open("runs/three-2").finished


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give either a recipe to train, or --resume"),
        (["three.yaml", "--resume", "x"], "give either a recipe"),
        (["--resume", "x", "-o", "y"], "leave -o and --set out"),
        (["--resume", "nowhere"], "nowhere: no such run directory"),
        (["three.yml"], "three.yml"),
        (["three.yaml", "--set", "training.stepz=3"], "did you mean 'steps'"),
        (["three.yaml", "--set", "training.steps"], "training.steps"),
        (["three.yaml", "--set", "training.lr=-1"], "training.lr"),
        (["three.yaml", "--set", "encoder=./nothing"], "there is no such folder"),
        (["three.yaml", "--set", "plan=splat@1"], "the nearest plan that works is"),
        (
            ["three.yaml", "--set", "training.sampling=fair"],
            "'fair' is none of each",
        ),
        (["three.yaml", "--set", "tasks.sentiment.train=no.csv"], "no.csv does not exist"),
        (["three.yaml", "--set", "tasks.sentiment.label=lable"], "has no column 'lable'"),
        (["three.yaml", "--mirror", "paper"], "expected tensorboard or wandb"),
        (["three.yaml", "--set", "plan=splt@1"], "--set plan=splt@1: plan 'splt@1': "),
        (
            ["three.yaml", "--set", "tasks.sentiment.label=lable"],
            "--set tasks.sentiment.label=lable: task 'sentiment': ",
        ),
    ],
)
def test_mistakes_in_training(
    words: list[str], said: str, recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bough("train", *words) == 2
    told = capsys.readouterr().err
    assert told.startswith("bough: ")
    assert told.count("\n") == 1, "one sentence"
    assert said in told
    assert not Path("runs/three").exists()


def test_a_loss_that_is_no_number(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = ["training.lr=1e30", "training.clip=null", "training.warmup=0"]
    words = [word for change in changes for word in ("--set", change)]
    assert bough("train", recipe, "-o", "run", *words) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("bough: ")
    assert "is not a finite number at step" in last
    assert "is kept" not in last, "there is no checkpoint yet"


def test_interrupted_at_once(
    recipe: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bough.training.trainer.untrained_model", interrupt)
        assert bough("train", recipe, "-o", "run") == 130
    assert capsys.readouterr().err == "bough: interrupted\n"
    assert not Path("run").exists()
    monkeypatch.setattr("bough.training.trainer.Trainer._finish", interrupt)
    assert bough("train", recipe, "-o", "run") == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "bough: interrupted; go on with: bough train --resume run"
    monkeypatch.undo()
    assert bough("train", "--resume", Path(recipe.parent / "run")) == 0


def test_stopped_and_resumed(
    recipe: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Silent):
        def step(self, moment: Any) -> None:
            if moment.step == 2:
                os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("bough.runs.console.for_terminal", Stop)
    assert bough("train", recipe, "-o", "run") == 130
    told = capsys.readouterr().err
    assert told == "bough: stopped after step 2; go on with: bough train --resume run\n"
    monkeypatch.setattr("bough.runs.console.for_terminal", Silent)
    assert bough("train", recipe, "-o", "run") == 2
    assert "has a run already, which goes on with: bough train --resume " in capsys.readouterr().err
    assert bough("train", "--resume", "run") == 0
    assert bough("train", "--resume", "run") == 2
    assert "is finished; there is nothing to resume" in capsys.readouterr().err


def test_interrupted_for_real(tiny_folder: Path, tmp_path: Path) -> None:
    """Ctrl-C in a process of its own, while it loads and while it learns: 130 both times."""
    file = tmp_path / "long.yaml"
    file.write_text(json.dumps(folders.small(tiny_folder, steps=100_000)))
    log = tmp_path / "run" / "metrics.jsonl"
    with subprocess.Popen(
        [*BOUGH, "train", str(file), "-o", "run"], cwd=tmp_path, env=QUIET, stderr=subprocess.PIPE
    ) as process:
        while not log.exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"stopping after this step; the run can be resumed" in told
    assert b"go on with: bough train --resume run" in told
    assert b"Traceback" not in told
    assert Run.open(tmp_path / "run").checkpoint.exists()


def test_a_fault_of_ours_is_no_mistake(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("bough.training.trainer.Trainer.run", broken)
    with pytest.raises(ZeroDivisionError):
        bough("train", recipe)


def test_a_folder_that_may_not_be_written(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    assert bough("train", recipe, "-o", "file") == 2
    assert bough("train", recipe, "-o", "file/run") == 2
    assert "file/run: cannot be written" in capsys.readouterr().err


# --- schema ---------------------------------------------------------------------------------------


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert bough("schema") == 0
    found = json.loads(capsys.readouterr().out)
    assert {"encoder", "plan", "data", "tasks", "training"} <= set(found["properties"])
    for name, part in found["$defs"]["Training"]["properties"].items():
        assert part["description"].endswith("."), name


def test_pretraining(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bough("pretrain", recipe, "--set", "pretraining.steps=2") == 0
    told = capsys.readouterr()
    assert "masked tokens held out: loss" in told.out
    assert "Next: bough train RECIPE --set encoder=runs/three-pretrained" in told.out
    assert "different texts to learn from" in told.err
    assert bough("train", recipe, "--set", "encoder=runs/three-pretrained") == 0
    assert bough("pretrain", "--resume", "runs/three-pretrained") == 2
    assert "is finished" in capsys.readouterr().err
    assert bough("compare", "runs/three-pretrained") == 2
    assert "pretraining only, there are no tasks to compare" in capsys.readouterr().err
    assert bough("compare", "runs") == 0
    assert "left out, pretraining only: runs/three-pretrained" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give either a recipe to train, or --resume"),
        (["three.yaml", "--set", "pretraining.mask=2"], "pretraining.mask is 2; expected"),
        (["three.yaml", "--set", "pretraining.text=both"], "did you mean 'texts'"),
        (["three.yaml", "--set", "pretraining.texts=second"], "pretraining.texts is 'second'"),
        (["three.yaml", "--set", "pretraining.texts=none"], "it takes 2"),
        (["three.yaml", "--set", "pretraining.files=nowhere.txt"], "nowhere.txt does not exist"),
        (["three.yaml", "--set", "pretraining.start=nowhere"], "nowhere: no such run directory"),
    ],
)  # fmt: skip
def test_mistakes_of_a_pretraining(
    words: list[str], said: str, recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bough("pretrain", *words) == 2
    assert said in capsys.readouterr().err
    assert not Path("runs").exists() or not list(Path("runs").iterdir())
