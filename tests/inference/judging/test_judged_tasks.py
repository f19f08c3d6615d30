"""Whose labels a column holds: by the recipe's files, by the columns, or by who asks."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bough
from bough.errors import UserError
from bough.export.onnx_export import write_onnx
from bough.inference.load import load
from bough.inference.model import Model
from bough.training.train import train
from tests import folders

HEADER, LINES = "sentence\tlabel\tstars\n", "a good film\t1\t4\na bad film\t0\t2\n"
ROWS = [{"sentence": "a good film", "label": "1"}, {"sentence": "a bad film", "label": "0"}]
WHICH = r"its labels may be those of task film or phone; say which to judge, with --task NAME"


def binary(folder: str, **more: Any) -> dict[str, Any]:
    files = {split: f"{folder}/{split}.tsv" for split in ("train", "dev")}
    return {"kind": "classify", "text": "sentence", "label": "label", **files, **more}


@pytest.fixture(scope="module")
def model(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Two tasks with the same columns and classes, and two more on the table of the first."""
    folder = tmp_path_factory.mktemp("alike")
    for name in ("films", "phones"):
        (folder / name).mkdir()
        (folder / name / "train.tsv").write_text(HEADER + LINES * (8 + len(name)))
        (folder / name / "dev.tsv").write_text(HEADER + LINES * len(name))
    shutil.copy(folder / "phones" / "dev.tsv", folder / "phones" / "phones-test.tsv")
    recipe = folders.recipe(tiny_folder, rows=folder, steps=1, batch=4)
    recipe["tasks"] = {
        "film": binary("films"),
        "phone": binary("phones", test="phones/phones-test.tsv"),
        "stars": binary("films", label="stars", kind="regress", range=[0, 5]),
    }
    return load(train(recipe, folder / "run"))


def judged(model: Model, rows: Any, **asked: Any) -> set[str]:
    return set(bough.evaluate(model, rows, **asked).scores["tasks"])


def data(model: Model) -> Path:
    assert model.origin is not None
    return model.origin.parent.parent


def test_a_file_of_the_recipe_judges_the_tasks_that_name_it(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judged(model, data(model) / "films" / "dev.tsv") == {"film", "stars"}
    assert judged(model, data(model) / "phones" / "train.tsv") == {"phone"}
    monkeypatch.chdir(data(model) / "films")
    assert judged(model, "../phones/dev.tsv") == {"phone"}


def test_a_file_of_the_same_name_does_too(model: Model, tmp_path: Path) -> None:
    copy = shutil.copy(data(model) / "films" / "dev.tsv", tmp_path / "phones-test.tsv")
    assert judged(model, copy) == {"phone"}
    both = shutil.copy(copy, tmp_path / "dev.tsv")  # a name that both tasks' files have
    with pytest.raises(UserError, match=WHICH):
        judged(model, both)
    (tmp_path / "phones-test.tsv").write_text("sentence\tstars\na good film\t4\n")
    assert judged(model, copy) == {"stars"}, "it has not the columns of the task of that name"


def test_labels_of_several_tasks_ask_whose_they_are(model: Model, tmp_path: Path) -> None:
    file = tmp_path / "new.tsv"
    file.write_text(HEADER + LINES)
    for rows in (file, ROWS, [("a good film", "1")]):
        with pytest.raises(UserError, match="may be those of task film or phone") as said:
            judged(model, rows)
        assert "\n" not in str(said.value)
        assert judged(model, rows, tasks="film") == {"film"}
    assert judged(model, file, tasks=["film", "phone"]) == {"film", "phone"}
    assert judged(model, [{"sentence": "a good film", "stars": 4}]) == {"stars"}
    assert judged(model, file, label="stars") == {"stars"}
    with pytest.raises(UserError, match=WHICH):
        judged(model, file, label="label")
    file.write_text("review\tmood\na good film\t1\n")
    with pytest.raises(UserError, match="may be those of task film or phone or stars"):
        judged(model, file, label="mood", text="review")


def test_tasks_with_labels_of_their_own_are_judged_together(model: Model, tmp_path: Path) -> None:
    rows = [{"sentence": "a good film", "label": "1", "stars": 4, "mood": "0"}]
    other = replace(model, facts={**model.facts})
    other.tasks["phone"] = (own := model.tasks["phone"]).model_copy(update={"label": "mood"})
    try:
        assert judged(other, rows) == {"film", "phone", "stars"}
    finally:
        other.tasks["phone"] = own


def test_a_model_without_its_run_knows_the_files_by_name_and_size(
    model: Model, tmp_path: Path
) -> None:
    alone = replace(model, origin=None)
    assert judged(alone, data(model) / "phones" / "phones-test.tsv") == {"phone"}
    with pytest.raises(UserError, match=WHICH):
        judged(alone, data(model) / "films" / "dev.tsv")
    exported = load(write_onnx(data(model) / "run", tmp_path / "onnx"))
    assert judged(exported, data(model) / "phones" / "phones-test.tsv") == {"phone"}


def test_a_run_whose_recipe_cannot_be_read_still_judges(model: Model, tmp_path: Path) -> None:
    run = Path(shutil.copytree(data(model) / "run", tmp_path / "run"))
    (run / "recipe.yaml").write_text("tasks: [")
    assert judged(load(run), data(model) / "phones" / "phones-test.tsv") == {"phone"}
