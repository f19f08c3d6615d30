"""Soft answers from files: tables, and what `bough predict` wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bough.errors import UserError
from bough.recipe.tasks import Task
from bough.recipe.teacher import Teacher
from bough.training.teachers.answer_file import read_answers
from bough.training.teachers.soft_answers import SoftAnswers
from tests import tiny

CLASSES = tiny.task(labels=("no", "yes"))
NUMBERS = tiny.task(number=True, joint=True)


SEVERAL = tiny.task(kind="multilabel", labels=("a", "b"))


def read(
    file: Path, texts: list[tuple[str, ...]], asking: Task | None = None, **settings: object
) -> SoftAnswers:
    teacher = Teacher.model_validate({"answers": str(file), **settings})
    task = asking or (NUMBERS if len(texts[0]) == 2 else CLASSES)
    return read_answers("t", task, teacher, texts, file.parent)


def test_a_table(tmp_path: Path) -> None:
    file = tmp_path / "soft.csv"
    file.write_text("text,p(yes),p(no)\n one tree ,.25,.75\nwho,1,0\n")
    said = read(file, [("who",), ("one tree",), ("who",)])
    assert said.labels == ("no", "yes")
    torch.testing.assert_close(said.values, torch.tensor([[0, 1], [0.75, 0.25], [0, 1]]))


def test_a_table_of_numbers(tmp_path: Path) -> None:
    file = tmp_path / "soft.tsv"
    file.write_text("one\ttwo\tvalue\na\tb\t3.5\nb\ta\t1\n")
    said = read(file, [("b", "a"), ("a", "b")])
    assert said == SoftAnswers(said.values, None, (0.0, 5.0))
    torch.testing.assert_close(said.values, torch.tensor([[1.0], [3.5]]))


def test_what_predict_wrote(tmp_path: Path) -> None:
    file = tmp_path / "soft.jsonl"
    shares = {"probabilities": {"A": 0.1, "B": 0.9}, "label": "B", "score": 0.9}
    file.write_text(json.dumps({"id": 1, "text": "who", "other": shares}) + "\n")
    said = read(file, [("who",)], task="other", labels={"A": "yes", "B": "no"})
    assert said.labels == ("A", "B")
    torch.testing.assert_close(said.values, torch.tensor([[0.1, 0.9]]))
    file.write_text(json.dumps({"one": "a", "two": "b", "t": {"value": 2.5}}) + "\n")
    torch.testing.assert_close(read(file, [("a", "b")]).values, torch.tensor([[2.5]]))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("text,p(yes),p(no)\nwho,.5,.5\n", "no answer to 1 of 2 texts, the first 'a tree'"),
        ("p(yes),p(no)\n.5,.5\n", "no column 'text' of the texts.*--keep text"),
        ("text,score\nwho,1\n", r"neither columns of answers \(p\(no\), p\(yes\)\)"),
        ("text,p(yes),p(no)\nwho,.5,x\n", "line 2: the answer holds 'x'; expected numbers"),
        ("text,p(yes),p(no)\nwho,.5,.9\n", "line 2: the probabilities are"),
        ("text,p(yes),p(no)\nwho,-.5,1.5\n", "line 2: the probabilities are"),
    ],
)
def test_mistakes(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "soft.csv"
    file.write_text(content)
    with pytest.raises(UserError, match=said):
        read(file, [("who",), ("a tree",)])


def test_classes_in_another_case(tmp_path: Path) -> None:
    file = tmp_path / "soft.csv"
    file.write_text("text,p(YES),p(No)\nwho,.25,.75\na tree,1,0\n")
    said = read(file, [("who",), ("a tree",)])
    assert said.labels == ("no", "yes")
    torch.testing.assert_close(said.values, torch.tensor([[0.75, 0.25], [0, 1]]))
    lines = file.with_suffix(".jsonl")
    shares = {"probabilities": {"YES": 0.25, "No": 0.75}}
    lines.write_text(json.dumps({"text": "who", "t": shares}) + "\n")
    torch.testing.assert_close(read(lines, [("who",)]).values, torch.tensor([[0.75, 0.25]]))


def test_several_labels_need_not_sum_to_1(tmp_path: Path) -> None:
    file = tmp_path / "soft.jsonl"
    told = [("who", [0.9, 0.8]), ("a tree", [0.1, 0.2])]
    file.write_text(
        "".join(
            json.dumps({"text": text, "t": {"labels": [], "probabilities": {"a": p, "b": q}}})
            + "\n"
            for text, (p, q) in told
        )
    )
    said = read(file, [("who",), ("a tree",)], SEVERAL)
    torch.testing.assert_close(said.values, torch.tensor([[0.9, 0.8], [0.1, 0.2]]))
    table = tmp_path / "soft.csv"
    table.write_text("text,p(a),p(b)\nwho,.5,1.5\n")
    with pytest.raises(UserError, match=r"line 2: the probabilities are .* each from 0 to 1"):
        read(table, [("who",)], SEVERAL)


def test_other_classes_are_refused_with_both_lists(tmp_path: Path) -> None:
    file = tmp_path / "soft.csv"
    file.write_text("text,p(x),p(y)\nwho,.5,.5\n")
    with pytest.raises(UserError, match="has the classes x, y, and the task no, yes; give"):
        read(file, [("who",)])
    with pytest.raises(UserError, match="has the classes x, y, and the task x, y, z"):
        read(file, [("who",)], labels={"x": "no", "y": "yes", "z": "yes"})
    file.write_text("text,p(no),p(NO),p(yes)\nwho,.5,.2,.3\n")
    with pytest.raises(UserError, match="has the classes no, NO, yes, and the task No, Yes"):
        read(file, [("who",)], tiny.task(labels=("No", "Yes")))


def test_classes_for_a_task_of_numbers(tmp_path: Path) -> None:
    file = tmp_path / "soft.csv"
    file.write_text("one,two,p(x),p(y)\na,b,.5,.5\n")
    with pytest.raises(UserError, match="answers with classes, and the task with a number"):
        read(file, [("a", "b")])
