"""The file of a run's answers: written, read back, and refused where it is none."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from bough.data.checked_rows import Rows
from bough.errors import UserError
from bough.recipe.tasks import Task
from bough.runs.predictions import Answers, table
from bough.runs.run_dir import Run
from bough.scoring.metrics import Predictions

MOOD = Task(kind="classify", text="x", labels=("bad", "good"))
LIKE = Task(kind="regress", text=("x", "y"), range=(0, 5))


def rows(labels: list[int] | list[float] | None) -> Rows:
    return Rows([("one",), ("two",)], labels, ["a", "b"], "f.csv", [2, 3])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "predictions").mkdir()
    return Run(tmp_path)


def write(run: Run, header: list[str], lines: list[list[object]]) -> None:
    with open(run.folder / "predictions" / "t-dev.csv", "w", newline="") as file:
        csv.writer(file).writerows([header, *lines])


def test_classes_go_round(run: Run) -> None:
    shares = np.array([[0.25, 0.75], [0.9, 0.1]])
    write(run, *table(MOOD, rows([1, 1]), Predictions(np.array([1, 0]), shares, None)))
    answers = Answers.read(run, "t", "dev", "classify")
    assert (answers.ids, answers.labels) == (["a", "b"], ("bad", "good"))
    assert answers.truth.tolist() == [1, 1]
    assert answers.said.tolist() == [1, 0]
    assert answers.probabilities is not None
    assert np.array_equal(answers.probabilities, shares)


def test_numbers_go_round(run: Run) -> None:
    write(run, *table(LIKE, rows([2.5, 0.0]), Predictions(np.array([2.25, 5.0]), None, None)))
    answers = Answers.read(run, "t", "dev", "regress")
    assert (answers.truth.tolist(), answers.said.tolist()) == ([2.5, 0.0], [2.25, 5.0])
    assert (answers.labels, answers.probabilities) == ((), None)


def test_rows_without_labels_have_answers_to_read_but_not_to_judge(run: Run) -> None:
    header, lines = table(LIKE, rows(None), Predictions(np.array([1.0, 2.0]), None, None))
    assert (header, lines[0]) == (["id", "predicted"], ["a", "1.000000"])
    write(run, header, lines)
    with pytest.raises(UserError, match="the dev rows have no labels to judge by"):
        Answers.read(run, "t", "dev", "regress")


def test_files_that_are_none(run: Run) -> None:
    with pytest.raises(UserError, match=r"t-dev.csv: no such predictions"):
        Answers.read(run, "t", "dev", "classify")
    header = ["id", "label", "predicted", "p(bad)", "p(good)"]
    refused: list[tuple[list[list[object]], str]] = [
        ([], "cut short or not a table"),
        ([["a", "good"]], "cut short or not a table"),
        ([["a", "ugly", "good", 0.5, 0.5]], "not a predictions file"),
        ([["a", "good", "good", "x", 0.5]], "not a predictions file"),
    ]
    for lines, said in refused:
        write(run, header, lines)
        with pytest.raises(UserError, match=said):
            Answers.read(run, "t", "dev", "classify")


def test_labels_that_are_formulas_go_round(run: Run) -> None:
    task = Task(kind="classify", text="x", labels=("=1+1", "'=1+1", "-x"))
    shares = np.array([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25]])
    named = Rows([("one",), ("two",)], [0, 2], ["@a", "-5"], "f.csv", [2, 3])
    header, lines = table(task, named, Predictions(np.array([1, 0]), shares, None))
    assert [line[:3] for line in lines] == [["'@a", "'=1+1", "''=1+1"], ["-5", "'-x", "'=1+1"]]
    write(run, header, lines)
    answers = Answers.read(run, "t", "dev", "classify")
    assert (answers.ids, answers.labels) == (["@a", "-5"], ("=1+1", "'=1+1", "-x"))
    assert (answers.truth.tolist(), answers.said.tolist()) == ([0, 2], [1, 0])


@pytest.mark.parametrize("value", ["nan", "inf", "x", ""])
def test_numbers_that_are_none(run: Run, value: str) -> None:
    write(run, ["id", "label", "predicted"], [["a", 1.0, value]])
    with pytest.raises(UserError, match="not a predictions file"):
        Answers.read(run, "t", "dev", "regress")
