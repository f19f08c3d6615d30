"""The command line: exit codes, one sentence per mistake, and what goes in and out of each verb."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bough.cli import main
from bough.plan.cost import cost
from bough.plan.encoder_shape import Shape
from bough.plan.plan import Plan
from bough.recipe.recipe import Recipe
from bough.runs.console import Silent
from bough.runs.run_dir import Run
from bough.training.api import train
from tests import folders

BOUGH = [str(Path(sys.executable).parent / "bough")]
QUIET = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def bough(*words: str | Path) -> int:
    """The command in this process; its exit code."""
    old = sys.argv
    sys.argv = ["bough", *map(str, words)]
    try:
        main.main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = old
    return 0


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def run(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = folders.small(tiny_folder, steps=4, lr=1e-2, evaluate_rows=8)
    recipe["tasks"]["sentiment"] = folders.TASKS["sentiment"] | {"test": "sentiment-dev.csv"}
    recipe["tasks"]["questions"] = folders.TASKS["questions"] | {"test": "questions-dev.csv"}
    recipe["tasks"]["similarity"] = folders.TASKS["similarity"] | {"test": "similarity-dev.csv"}
    return train(recipe, tmp_path_factory.mktemp("cli") / "run")


@pytest.fixture
def recipe(tiny_folder: Path, tmp_path: Path) -> Path:
    file = tmp_path / "three.yaml"
    file.write_text(json.dumps(folders.small(tiny_folder, steps=4, evaluate_rows=8)))
    return file


# --- train ----------------------------------------------------------------------------------------


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
        patch.setattr("bough.training.setup.build", interrupt)
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
    assert "has a run already (go on with --resume run)" in capsys.readouterr().err
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


# --- eval -----------------------------------------------------------------------------------------


def test_eval(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert bough("eval", run.folder) == 0
    assert "similarity" in capsys.readouterr().out
    for split in ("dev", "test"):
        assert bough("eval", run.folder, "--split", split, "--json") == 0
        assert json.loads(capsys.readouterr().out) == {split: run.scores[split]}
    assert bough("eval", run.folder, "--split", "train", "--json") == 0
    assert json.loads(capsys.readouterr().out)["train"]["tasks"]["questions"]["rows"] == 64
    assert bough("eval", run.folder, "--split", "deff") == 2
    assert "expected train, dev, test" in capsys.readouterr().err
    assert bough("eval", run.folder.parent) == 2
    assert "not a run directory" in capsys.readouterr().err


# --- predict --------------------------------------------------------------------------------------


def test_predict_from_standard_input(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "A fine film.\nOne question?\tAnother question?\n"
    stream = io.TextIOWrapper(io.BytesIO(lines.encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert bough("predict", run.folder) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["id"] == "A fine film."
    assert set(first) == {"id", "sentiment"}
    assert set(second) == {"id", "questions", "similarity"}
    assert 0 <= second["similarity"]["value"] <= 5


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "txt"])
def test_predict_files(kind: str, run: Run) -> None:
    pairs = [("Why is that?", "Why?"), ('He said "no", twice.', "Two, three"), ("東京?", "a")]
    fields = ["id", "question1", "question2"]
    rows = [dict(zip(fields, (f"r{i}", *pair), strict=True)) for i, pair in enumerate(pairs)]
    file = Path(f"in.{kind}")
    if kind == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "txt":
        file.write_text("".join("\t".join(pair) + "\n" for pair in pairs))
    else:
        with open(file, "w", newline="") as out:
            writer = csv.DictWriter(out, fields, delimiter="," if kind == "csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)
    task = ["--task", "questions"]
    assert bough("predict", run.folder, file, *task, "-o", "out.csv") == 0
    assert bough("predict", run.folder, file, *task, "-o", "out.jsonl") == 0
    with open("out.csv", newline="") as found:
        table = list(csv.DictReader(found))
    ids = ["\t".join(pair) for pair in pairs] if kind == "txt" else ["r0", "r1", "r2"]
    assert [row["id"] for row in table] == ids
    told = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [row["questions"]["label"] for row in told] == [row["questions"] for row in table]
    assert [row["id"] for row in told] == ids


def test_mistakes_in_answering(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.txt").write_text("Fine.\n")
    for words, said in (
        ([run.folder, "in.txt", "-o", "out.xml"], "written as .csv or .jsonl"),
        ([run.folder, "in.txt", "-o", "no/out.csv"], "there is no folder"),
        ([run.folder, "none.txt"], "none.txt"),
        ([run.folder, "in.txt", "--task", "sentimant"], "did you mean 'sentiment'"),
        ([run.folder.parent, "in.txt"], "no model there"),
    ):
        assert bough("predict", *words) == 2
        told = capsys.readouterr().err
        assert said in told
        assert told.count("\n") == 1


def test_a_reader_that_goes_away(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("A fine film.\n" * 3000)
    command = f"'{BOUGH[0]}' predict '{run.folder}' in.txt | head -n 1"
    told = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=QUIET, capture_output=True, text=True, check=True
    )
    assert json.loads(told.stdout)["id"] == "A fine film."
    assert "Traceback" not in told.stderr
    assert "Exception" not in told.stderr


# --- plan, schema ---------------------------------------------------------------------------------


def test_plan(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "split@1, pal:8", "--tasks", "sst:5,para,sts"]
    assert bough(*words, "--layers", "6") == 0
    told = capsys.readouterr().out
    assert "layer 2-6" in told
    assert "parameters" in told
    assert bough(*words, "--encoder", tiny_folder, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    shape = Shape.read(tiny_folder)
    plan = Plan.parse("split@1, pal:8", ("sst", "para", "sts"), 2, heads=4)
    exact = cost(plan, shape, {"sst": 5, "para": 1, "sts": 1}, length=64)
    assert found["parameters"] == exact.parameters
    assert found["plan"] == plan.text
    assert found["tasks"] == ["sst", "para", "sts"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["splot@1"], "the nearest plan that works is"),
        (["full", "--tasks", "a,a"], "expected different names"),
        (["full", "--tasks", "a:0"], "expected different names"),
        (["full", "--layers", "0"], "at least one layer"),
        (["full", "--layers", "3", "--encoder", "x"], "not both"),
        (["split@7", "--layers", "3"], "3"),
    ],
)
def test_mistakes_in_plans(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bough("plan", *words) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert bough("schema") == 0
    found = json.loads(capsys.readouterr().out)
    assert {"encoder", "plan", "data", "tasks", "training"} <= set(found["properties"])
    for name, part in found["$defs"]["Training"]["properties"].items():
        assert part["description"].endswith("."), name


def test_words_of_no_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert bough("trian") == 2
    assert bough("train", "--no-such-option") == 2
    assert bough("--version") == 0
    assert capsys.readouterr().out.startswith("bough 0.")
    assert bough("--help") == 0
    told = capsys.readouterr().out
    for verb in ("train", "eval", "predict", "plan", "schema", "demo"):
        assert verb in told


def test_as_a_module() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "bough", "--version"], capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith("bough ")
