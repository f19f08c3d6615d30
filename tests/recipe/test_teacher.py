"""What may stand at `teacher` and `unlabelled`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bough.errors import UserError
from bough.recipe.recipe import Recipe

ONE = {"kind": "classify", "text": "text", "train": "a.csv", "dev": "a.csv"}
PAIR = ONE | {"text": ["one", "two"]}


def read(task: dict[str, Any], **others: Any) -> Recipe:
    return Recipe.read({"tasks": {"a": ONE | task, "b": ONE, "c": PAIR}, **others})


def test_a_bare_name_is_what_its_ending_says() -> None:
    names = ["runs/x", "owner/model", "other.yaml", "soft.csv", "soft.jsonl", "soft.parquet"]
    forms = [teacher.form for teacher in read({"teacher": names}).tasks["a"].teacher]
    assert forms == ["model", "model", "recipe", "answers", "answers", "answers"]
    (one,) = (
        read({"teacher": {"model": "m", "task": "t", "labels": {0: "no", 1.0: 1}}})
        .tasks["a"]
        .teacher
    )
    assert (one.source, one.task, one.labels) == ("m", "t", {"0": "no", "1": "1"})


def test_it_reads_back(tmp_path: Path) -> None:
    recipe = read(
        {
            "teacher": ["x.yaml", {"model": "m", "range": [0, 1]}],
            "unlabelled": ["b", "more.csv"],
            "limit": {"unlabelled": 7},
        },
        training={"distil": {"weight": 0.5, "temperature": 2, "anneal": False}},
    )
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe.dump())
    assert Recipe.read(file) == recipe


def test_paths_are_found_beside_the_recipe_and_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("data", "here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "soft.csv").write_text("")
    (tmp_path / "here" / "run").mkdir()
    (tmp_path / "there" / "big.yaml").write_text("")
    recipe = tmp_path / "there" / "recipe.yaml"
    recipe.write_text(
        f"data: {tmp_path}/data\n"
        "tasks: {a: {kind: classify, text: t, unlabelled: '${FOLDER}/soft.csv',\n"
        "            teacher: [soft.csv, run, big.yaml, hub/id]}}\n"
    )
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("FOLDER", str(tmp_path / "data"))
    task = Recipe.read(recipe).tasks["a"]
    found = ["data/soft.csv", "here/run", "there/big.yaml"]
    assert [t.source for t in task.teacher] == [*(str(tmp_path / f) for f in found), "hub/id"]
    assert task.unlabelled == (f"{tmp_path}/data/soft.csv",)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"teacher": {}}, "a teacher is one of model, recipe, answers; here is none of them"),
        ({"teacher": {"model": "x", "recipe": "y"}}, "here is model and recipe"),
        ({"teacher": {"model": "x", "lables": {}}}, "did you mean 'labels'"),
        ({"teacher": {"model": "x", "range": [2, 1]}}, "give the lowest number"),
        ({"teacher": {"model": "x", "task": "${HOME}"}}, "names the variable HOME"),
        ({"unlabelled": "b"}, "give the task a `teacher`"),
        ({"teacher": "x", "unlabelled": "a"}, "its own train rows are learned from anyway"),
        ({"teacher": "x", "unlabelled": "d"}, "'d' is neither a file nor a task"),
        ({"teacher": "x", "unlabelled": "b", **PAIR}, "task 'b' has single texts"),
    ],
)
def test_mistakes(task: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        read(task)


def test_settings_are_overridden_by_their_keys() -> None:
    source = {"tasks": {"a": ONE | {"teacher": "runs/x"}}}
    changes = ["training.distil.weight=0.3", "tasks.a.teacher=[runs/y, soft.csv]"]
    recipe = Recipe.read(source, changes)
    assert recipe.training.distil.weight == 0.3
    assert [t.source for t in recipe.tasks["a"].teacher] == ["runs/y", "soft.csv"]
    with pytest.raises(UserError, match=r"training.distil.wieght.*did you mean 'weight'"):
        Recipe.read(source, ["training.distil.wieght=1"])
