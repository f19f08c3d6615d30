"""int8 is offered with what it costs: measured on a run's dev rows, said, and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

import bough
from bough.errors import UserError
from bough.inference.evaluation import evaluate
from bough.inference.load import load, load_torch
from bough.inference.model import Text
from bough.inference.precision.int8_scores import known
from bough.inference.torch_model import MultiTaskModel
from bough.native.answering import available
from bough.runs.run_dir import Run
from bough.runs.weights_file import digest_of
from bough.training.train import train
from tests import command, folders

TEXTS: list[Text] = ["A fine film.", "Two hours I will not get back.", ("Why is that?", "Why?")]


@pytest.fixture
def run(tiny_folder: Path, tmp_path: Path) -> Run:
    """Of an encoder that the kernels take: wide enough for a group of weights."""
    if not available("int8"):
        pytest.skip("no kernel for int8 here")
    folder = folders.encoder(tmp_path / "encoder", width=64)
    rows = tiny_folder.parent / "rows"
    return train(folders.recipe(folder, rows=rows, batch=8, steps=4), tmp_path / "run")


def test_it_is_refused_until_it_is_measured(run: Run) -> None:
    for source in (run, run.folder):
        with pytest.raises(UserError, match="has not been measured") as caught:
            load(source, precision="int8")
        assert f": bough eval {run.folder} --precision int8" in str(caught.value)


def test_it_is_measured_said_and_kept(run: Run) -> None:
    told: list[str] = []
    found = evaluate(run, precision="int8", say=told.append)
    told = [line for line in told if "commonest class" not in line]
    assert told.pop().endswith(f"bough serve {run.folder} --precision int8")
    assert [line.split(":")[0] for line in told] == list(found.scores["tasks"])
    model = load(run, precision="int8")
    plain = evaluate(run, precision="fp32").scores["tasks"]
    for change in known(model):
        assert change.before == pytest.approx(plain[change.task][change.metric], abs=1e-4)
        assert change.after == found.scores["tasks"][change.task][change.metric]
        assert change.rows == 16
    card = (run.model / "README.md").read_text(encoding="utf-8")
    assert "What `--precision int8` does to the dev scores" in card
    again = load_torch(run)
    assert isinstance(model, MultiTaskModel)
    weights = [digest_of(m.network.state_dict()) for m in (again, model)]
    assert weights[0] == weights[1]  # the weights themselves are as they were


def test_answers_in_int8_are_near_and_the_same_in_any_company(run: Run) -> None:
    evaluate(run, precision="int8")
    plain, model = load(run, precision="fp32"), load(run, precision="int8")
    together = model.predict(TEXTS)
    for text, answers, expected in zip(TEXTS, together, plain.predict(TEXTS), strict=True):
        alone = model.predict(text)
        for task, answer in answers.items():
            assert alone[task].number == pytest.approx(answer.number, abs=1e-6)
            assert answer.number == pytest.approx(expected[task].number, abs=0.05)


def test_some_tasks_alone_are_judged_only_after_it(run: Run) -> None:
    with pytest.raises(UserError, match="has not been measured"):
        evaluate(run, precision="int8", tasks="sentiment")
    evaluate(run, precision="int8")
    found = bough.evaluate(run, precision="int8", tasks="sentiment")
    assert list(found.scores["tasks"]) == ["sentiment"]


def test_on_the_command_line(run: Run, capsys, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("A fine film.\n", encoding="utf-8")
    answered = ("predict", run.folder, texts, "-o", tmp_path / "answers.csv", "--precision")
    assert command.bough(*answered, "int8") == 2
    assert "has not been measured" in capsys.readouterr().err
    assert command.bough("eval", run.folder, "--precision", "int8") == 0
    assert "sentiment: accuracy fp32" in capsys.readouterr().err
    assert command.bough(*answered, "int8") == 0
    assert "sentiment: accuracy fp32" in capsys.readouterr().err
    assert command.bough(*answered, "int4") == 2
    assert "int4" in capsys.readouterr().err
