"""Files and columns that a recipe names, held against the files before a row is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bough.data import tables
from bough.data.source_check import check_files
from bough.data.tables import PART
from bough.errors import UserError
from bough.recipe.recipe import Recipe


@pytest.fixture
def mood(tmp_path: Path) -> dict[str, Any]:
    """A task on files that are there."""
    for name in ("train", "dev"):
        (tmp_path / f"{name}.csv").write_text("text,label\ngood,yes\nbad,no\n", encoding="utf-8")
    (tmp_path / "test.csv").write_text("text\nfair\n", encoding="utf-8")
    files = {split: f"{split}.csv" for split in ("train", "dev", "test")}
    return {"kind": "classify", "text": "text", "label": "label", **files}


def recipe(folder: Path, **tasks: dict[str, Any]) -> Recipe:
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump({"tasks": tasks}, default_flow_style=False), encoding="utf-8")
    return Recipe.read(file)


def refused(*recipes: Recipe) -> str:
    with pytest.raises(UserError) as error:
        check_files(recipes)
    return str(error.value)


def test_a_test_file_needs_no_labels(mood, tmp_path):
    check_files([recipe(tmp_path, mood=mood)])


@pytest.mark.parametrize(
    ("changed", "line", "sentence"),
    [
        ({"dev": "dve.csv"}, 3, "dve.csv does not exist; did you mean 'dev.csv'?"),
        ({"text": "txt"}, 7, "train.csv has no column 'txt'; it has text, label"),
        ({"label": "lable"}, 5, "train.csv has no column 'lable'; it has text, label"),
        ({"dev": "test.csv"}, 5, "test.csv has no column 'label'; it has text"),
        ({"dev": None}, 2, "has no dev rows; set tasks.mood.dev to a file"),
        ({"train": "train.xlsx"}, 8, "train.xlsx is of no kind bough reads"),
        ({"train": "twice.csv"}, 8, "twice.csv has several columns 'text'"),
    ],
)
def test_the_line_of_the_recipe_is_named(mood, tmp_path, changed, line, sentence):
    (tmp_path / "train.xlsx").write_bytes(b"PK")
    (tmp_path / "twice.csv").write_text("text,text,label\na,b,c\n", encoding="utf-8")
    said = refused(recipe(tmp_path, mood=mood | changed))
    assert said.startswith(f"{tmp_path / 'recipe.yaml'} line {line}: task 'mood'")
    assert sentence in said


def test_texts_without_labels_are_looked_at_too(mood, tmp_path):
    (tmp_path / "more.csv").write_text("txt\nfair\n", encoding="utf-8")
    teacher = {"teacher": {"model": "elsewhere"}, "unlabelled": ["more.csv"]}
    assert "more.csv has no column 'text'; it has txt" in refused(
        recipe(tmp_path, mood=mood | teacher)
    )


def test_a_column_of_json_may_come_late(mood, tmp_path):
    rows = [{"label": "yes"}] * (PART + 5) + [{"text": "good", "label": "no"}]
    text = "\n".join(map(json.dumps, rows))
    (tmp_path / "train.jsonl").write_text(text, encoding="utf-8")
    check_files([recipe(tmp_path, mood=mood | {"train": "train.jsonl"})])


def test_only_the_first_rows_are_read_and_once_for_all_recipes(mood, tmp_path, monkeypatch):
    with open(tmp_path / "train.csv", "a", encoding="utf-8") as file:
        file.write("fair,yes\n" * 3 * PART)
    read: list[str] = []
    parts = tables.parts

    def counted(path: Path, wanted: tables.Wanted) -> Iterator[tables.Table]:
        for part in parts(path, wanted):
            read.append(path.name)
            yield part

    monkeypatch.setattr(tables, "parts", counted)
    one = recipe(tmp_path, mood=mood)
    check_files([one, Recipe.read(one, ["training.seed=1"])])
    assert read == ["train.csv", "dev.csv", "test.csv"]
