"""What was found, as a person reads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bough
from bough.inference.judging.evaluation import WIDEST, Evaluation
from bough.runs.run_dir import Run
from bough.training.train import train
from tests import command, folders

SCORES = {
    "tasks": {"mood": {"metric": "accuracy", "accuracy": 0.75, "rows": 4, "ece": 0.125}},
    "raw": 0.75,
    "normalised": 0.75,
}


@pytest.fixture(scope="module")
def run(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = folders.small(tiny_folder, steps=2, evaluate_rows=8)
    return train(recipe, tmp_path_factory.mktemp("judged") / "run")


def found(classes: int) -> Evaluation:
    labels = tuple(f"class-{number}" for number in range(classes))
    counts = np.eye(classes, dtype=np.int64)
    counts[0, 1] = 7
    own = {label: {"precision": 0.5, "recall": 0.25, "f1": 0.125, "rows": 1234} for label in labels}
    return Evaluation(SCORES, {"mood": counts}, {"mood": labels}, {"mood": own}, {}, "runs/a: dev")


def test_it_is_printed_as_the_command_line_prints_it(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert command.bough("eval", run.folder) == 0
    theirs = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert f"{bough.evaluate(run)}\n".splitlines() == theirs
    assert theirs[0].startswith(str(run.folder)[:40])
    file = folders.data(run.folder.parent / "rows") / "sentiment-dev.csv"
    assert bough.evaluate(run, file).title == f"{run.folder}: {file}"
    assert bough.evaluate(bough.load(run), file).title == str(file)


def test_tables_of_few_classes_and_of_many() -> None:
    few = str(found(2))
    assert few.startswith("runs/a: dev\n")
    for line in ("  class-0       0.500    0.250   0.125   1,234", "  class-0         1         7"):
        assert line in few.splitlines()
    assert "\nmood: true class (down), answer (across)\n" in few, "a title is one line"
    assert "mean 0.750" in few
    many = str(found(WIDEST + 1))
    assert "\nmood: the commonest mistakes\n" in many
    assert "  class-0      class-1      7" in many.splitlines()


def test_neither_the_title_nor_a_caveat_is_in_its_repr() -> None:
    quora = Evaluation(SCORES, {}, {}, {}, {}, "runs/[a]", ("The score of mood is not clean.",))
    assert str(quora).splitlines()[0] == "runs/[a]"
    assert str(quora).splitlines()[-1] == "The score of mood is not clean."
    rest = "confusion={}, labels={}, classes={}, spans={}"
    assert repr(quora) == f"Evaluation(scores={SCORES}, {rest})"
    assert quora.as_dict() == SCORES
