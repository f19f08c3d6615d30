"""Models of one task each become one model of all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from bough.errors import UserError
from bough.export.transformers_export import write_transformers
from bough.graft.grafting import Graft, Try, graft
from bough.graft.judgement import Change, Price
from bough.inference.load import load
from bough.runs.console import Moment, Silent
from bough.runs.run_dir import Run
from bough.training.loop import Stopped
from bough.training.train import train
from tests import folders
from tests.command import BOUGH, QUIET, bough
from tests.exports import sentences

SMALL = ["training.steps=4", "training.heads=fresh", "training.batch=8"]


@pytest.fixture(scope="module")
def models(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A run, and the other task's as a folder of transformers."""
    folder = tmp_path_factory.mktemp("models")
    for task in ("sentiment", "similarity"):
        train(folders.small(tiny_folder, (task,), steps=20), folder / task)
    write_transformers(folder / "similarity", folder / "like", "similarity")
    return [str(folder / "sentiment"), str(folder / "like")]


def texts(tiny_folder: Path, folder: Path) -> str:
    """The similarity rows, without their labels."""
    rows = (tiny_folder.parent / "rows" / "similarity-train.csv").read_text().splitlines()
    file = folder / "pairs.csv"
    file.write_text("\n".join(row.rpartition(",")[0] for row in rows) + "\n")
    return str(file)


def test_two_become_one(models: list[str], tiny_folder: Path, tmp_path: Path) -> None:
    pairs = texts(tiny_folder, tmp_path)
    said: list[str] = []
    done = graft(
        models, tmp_path / "graft", texts={"like": pairs}, tolerance=2.0, overrides=SMALL,
        say=said.append,
    )  # fmt: skip
    assert done.fits
    assert [tried.plan for tried in done.tries] == ["full"]
    assert done.before.models == 2
    assert done.chosen.price.bytes < 0.6 * done.before.bytes
    assert [change.agreement for change in done.chosen.changes] == [False, True]
    model = load(done.chosen.run)
    assert set(model.tasks) == {"sentiment", "like"}
    recipe = Run.open(done.chosen.run).recipe()
    assert not recipe.training.distil.anneal
    assert all(task.teacher for task in recipe.tasks.values())
    told = json.loads((tmp_path / "graft" / "graft.json").read_text())
    assert told["sentence"] == done.sentence()
    assert done.sentence().startswith("2 models, ")
    assert " -> 1 model, " in done.sentence()
    with pytest.raises(UserError, match="has a finished graft"):
        graft(models, tmp_path / "graft", texts={"like": pairs})
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes").touch()
    with pytest.raises(UserError, match="other files are in it"):
        graft(models, tmp_path / "taken", texts={"like": pairs})


def test_labels_and_probabilities_are_judged_too(tiny_folder: Path, tmp_path: Path) -> None:
    """A task of several labels, one whose score is of its probabilities, and one of numbers
    without a range."""
    rows = sentences(60)
    cells = {
        "topics": ["a|b", "b", "[]", "a"], "mood": ["good", "bad"], "length": ["1.5", "20", "3"]
    }  # fmt: skip
    settings: dict[str, dict[str, Any]] = {
        "topics": {"kind": "multilabel", "separator": "|"},
        "mood": {"kind": "classify", "metric": "auroc"},
        "length": {"kind": "regress"},
    }
    recipe = folders.small(tiny_folder, (), steps=2)
    for name, values in cells.items():
        for split, some in (("train", rows[:40]), ("dev", rows[40:])):
            lines = [f"{text},{values[n % len(values)]}" for n, text in enumerate(some)]
            file = tmp_path / f"{name}-{split}.csv"
            file.write_text("\n".join(["text,label", *lines]) + "\n")
            settings[name][split] = str(file)
        train(recipe | {"tasks": {name: settings[name] | {"text": "text"}}}, tmp_path / name)
    models = [str(tmp_path / name) for name in cells]
    done = graft(models, tmp_path / "graft", tolerance=9.0, overrides=SMALL)
    metrics = {change.task: change.metric for change in done.chosen.changes}
    assert metrics == {"topics": "f1-micro", "mood": "auroc", "length": "pearson"}
    for change in done.chosen.changes:
        donor, student = (
            Run.open(run).scores["dev"]["tasks"][change.task][change.metric]
            for run in (tmp_path / change.task, done.chosen.run)
        )
        assert change.teacher == pytest.approx(donor, abs=1e-4)
        # The predictions file has six digits, so that nearly equal shares are ties.
        assert change.teacher + change.value == pytest.approx(student, abs=0.02)
    student_recipe = Run.open(done.chosen.run).recipe()
    assert student_recipe.tasks["topics"].separator == "|"


def test_what_loses_too_much_is_tried_with_more_of_its_own(
    models: list[str], tiny_folder: Path, tmp_path: Path
) -> None:
    """With nothing to lose, all plans are tried, and what does not fit is named with its price.

    The task without labels is judged by how well it agrees with its teacher, which only the teacher
    itself does wholly.
    """
    done = graft(
        models, tmp_path / "graft", texts={"like": texts(tiny_folder, tmp_path)},
        tolerance=0.0, overrides=["training.steps=1", *SMALL[1:]],
    )  # fmt: skip
    assert not done.fits
    assert [tried.plan for tried in done.tries] == ["full", "bottleneck:64", "split@1"]
    assert done.apart is not None
    assert done.apart.models > 1
    assert "not fit: under " in done.sentence()
    assert f"left apart: {done.apart}" in done.sentence()


def test_the_sentence() -> None:
    before, after = Price(3, 260 * 2**20, 0.027, "a text"), Price(1, 87 * 2**20, 0.009, "a text")
    sure = Change("dup", "accuracy", 0.9, -0.002, 0.004, False)
    vague = Change("like", "pearson", 0.8, 0.001, 0.05, False)
    tried = Try("full", "runs/x", (sure, vague), after)
    told = Graft(before, (tried,), tried, 0.01).sentence()
    assert told == (
        "3 models, 260 MiB, 27 ms a text -> 1 model, 87 MiB, 9 ms a text (full); dup −.002 ± .004; "
        "like +.001 ± .050 (too few rows to exclude a loss of 0.02 in like)"
    )


class Impatient(Silent):
    """Ctrl-C after the third step."""

    def step(self, moment: Moment) -> None:
        if moment.step == 3:
            os.kill(os.getpid(), signal.SIGINT)


def test_what_was_stopped_goes_on(models: list[str], tiny_folder: Path, tmp_path: Path) -> None:
    out, pairs = tmp_path / "graft", {"like": texts(tiny_folder, tmp_path)}
    with pytest.raises(Stopped):
        graft(models, out, texts=pairs, tolerance=2.0, overrides=SMALL, display=Impatient())
    before = [*Run.open(out / "try-1").metrics()]
    with pytest.raises(UserError, match="has a graft of other models or settings"):
        graft(models, out, texts=pairs, tolerance=2.0, overrides=["training.steps=9"])
    done = graft(models, out, texts=pairs, tolerance=2.0, overrides=SMALL)
    assert [tried.plan for tried in done.tries] == ["full"]
    assert [*Run.open(out / "try-1").metrics()][: len(before)] == before  # not begun anew


def test_a_stopped_command_says_how_to_go_on(
    models: list[str], tiny_folder: Path, tmp_path: Path
) -> None:
    """By a process of its own, stopped by a signal in the middle of a training."""
    out = tmp_path / "graft"
    command = [*BOUGH, "graft", *models, "--texts", texts(tiny_folder, tmp_path), "-o", str(out)]
    command += ["--set", "training.steps=4000", "--set", "training.log_every=1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=QUIET)
    log = out / "try-1" / "metrics.jsonl"
    while not (log.is_file() and '"loss"' in log.read_text("utf-8")):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.endswith(f"bough: stopped; the same command goes on with {out}\n")
    assert "Traceback" not in said


def test_mistakes(models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="is one model; a graft makes one of several"):
        graft(models[:1], tmp_path / "graft")
    assert bough("graft", models[0], "--texts", "a=", "-o", tmp_path / "graft") == 2
    assert "expected TASK=FILE, or FILE for every task" in capsys.readouterr().err
    assert bough("graft", models[0], "--held-out", "a.csv", "-o", tmp_path / "graft") == 2
    assert "--held-out a.csv: expected TASK=FILE\n" in capsys.readouterr().err
