"""A recipe: its defaults, its data folder, its dump and its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bough.errors import UserError
from bough.recipe.recipe import Recipe, schema
from bough.recipe.tasks import Task
from bough.recipe.training import Training
from tests.recipe.written import TASKS, TEXT, Write, mistake


def test_defaults() -> None:
    recipe = Recipe.read({"tasks": TASKS})
    assert (recipe.encoder, recipe.plan, recipe.rows) == ("minilm", "full", "error")
    assert recipe.training == Training()
    assert recipe.tasks["sts"] == Task(**TASKS["sts"])
    assert Recipe.read(recipe) is recipe


# --- the data folder ----------------------------------------------------------------------------


def test_data_is_found_from_here_or_from_the_recipe(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    path = write(TEXT + "data: sets\n")
    recipe = Recipe.read(path)
    assert recipe.data == "sets"
    with pytest.raises(UserError, match="no such folder") as caught:
        _ = recipe.root
    assert str(here / "sets") in str(caught.value)
    assert str(tmp_path / "sets") in str(caught.value)
    (tmp_path / "sets").mkdir()
    assert Recipe.read(path).root == tmp_path / "sets"
    (here / "sets").mkdir()
    assert Recipe.read(path).root == tmp_path / "sets", "not what happens to be here"
    assert Recipe.read(path).data == str(tmp_path / "sets")
    assert Recipe.read(path, ["data=sets"]).root == here / "sets", "which was typed here"


def test_the_folder_that_holds_the_files_is_preferred(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "train.csv").touch()
    monkeypatch.chdir(tmp_path / "here")
    path = write(TEXT.replace("sentence}", "sentence, train: train.csv}"))
    assert Recipe.read(path).root == tmp_path
    (tmp_path / "here" / "train.csv").touch()
    assert Recipe.read(path).root == tmp_path, "of two that hold as many, the recipe's"
    (tmp_path / "train.csv").unlink()
    assert Recipe.read(path).root == tmp_path / "here"


def test_a_file_that_is_only_here_is_taken_from_here(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is typed on the command line is seen from there, whatever lies beside the recipe."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "other.csv").touch()
    (tmp_path / "train.csv").touch()
    (tmp_path / "dev.csv").touch()
    monkeypatch.chdir(here)
    path = write(TEXT.replace("sentence}", "sentence, train: train.csv, dev: dev.csv}"))
    recipe = Recipe.read(path, ["tasks.sst.dev=other.csv"])
    told = recipe.tasks["sst"]
    assert [recipe.root / str(file) for file in (told.train, told.dev)] == [
        tmp_path / "train.csv",
        here / "other.csv",
    ]
    assert Recipe.read(path, ["tasks.sst.dev=none.csv"]).root == tmp_path


def test_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Recipe.read({"tasks": TASKS, "data": "~"}).root == tmp_path
    monkeypatch.delenv("HOME")
    said = mistake({"tasks": TASKS, "data": "~there-is-no-such-user"})
    assert "no such home folder" in said


# --- weights, dump, schema --------- --------------------------------------------------------------


def test_epochs_that_are_typed_are_not_lost_to_phases() -> None:
    phases = {"tasks": TASKS, "training": {"phases": [{"steps": 1}]}}
    said = mistake(phases, "training.epochs=3")
    assert said == "--set training.epochs=3: phases have their own lengths; set those, or no phases"
    assert Recipe.read(phases, ["training.epochs=3", "training.phases=[]"]).training.epochs == 3
    epochs = {"tasks": TASKS, "training": {"epochs": 3}}
    assert Recipe.read(epochs, ["training.phases=[{steps: 1}]"]).training.phases[0].steps == 1


def test_task_weights() -> None:
    tasks = {"a": {**TASKS["sst"], "weight": 3}, "b": TASKS["sts"], "c": TASKS["sts"]}
    recipe = Recipe.read({"tasks": tasks, "training": {"weights": {"b": 0.5}}})
    assert recipe.task_weights() == {"a": 3.0, "b": 0.5, "c": 1.0}


@pytest.mark.parametrize(
    "source",
    [
        {"tasks": TASKS},
        {"tasks": TASKS, "plan": {"embeddings": {"sst": "all", "sts": "all"}, "layer 1-4": "all"}},
        {"tasks": TASKS, "encoder": "5e-5", "plan": "no", "data": "$${x}", "device": "cuda:1"},
        {
            "tasks": {
                "t": {
                    "kind": "classify",
                    "text": "x",
                    "labels": ["1", "null", "true", "~", "2024-01-01", "0x10", "<<", "=", "1_000"],
                    "class_weights": {"1": 2},
                    "train": [{"x": "a: b #c\n", "label": 1}, {"x": " é\u2028 ", "label": None}],
                    "dev": [["${x}", 1], ["'\"", 2.5], ["a\x85", 0], ["b\r\n", 0]],
                    "test": {"hub": "a/b", "columns": {"x": "text"}, "labels": [1, 2]},
                }
            },
            "training": {"phases": [{"frozen": True, "epochs": 1}], "evaluate_every": 5},
        },
    ],
)
def test_dump_is_complete_and_reads_back(source: dict[str, Any], write: Write) -> None:
    recipe = Recipe.read(source)
    text = recipe.dump()
    again = Recipe.read(write(text))
    assert again == recipe
    assert again.dump() == text
    for field in [*Recipe.model_fields, *Training.model_fields, *Task.model_fields]:
        assert f"{field}:" in text


def test_schema_explains_every_key() -> None:
    whole = schema()
    json.dumps(whole)
    for name in ("Task", "Training", "Phase", "Hub"):
        for key, field in whole["$defs"][name]["properties"].items():
            assert field.get("description", "").endswith("."), key
    for key, field in whole["properties"].items():
        assert field.get("description", "").endswith("."), key
    assert whole["required"] == ["tasks"]
