"""All tasks' rows together: gathered, noted, known by their digests, and as tokens."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bough.data.dataset import Data
from bough.errors import UserError
from bough.recipe.recipe import Recipe
from tests import folders, tiny


def test_every_task_and_split(tiny_folder: Path) -> None:
    data = Data.gather(Recipe.read(folders.small(tiny_folder)))
    assert set(data.tasks) == set(folders.TASKS)
    assert all(set(splits) == {"train", "dev"} for splits in data.rows.values())
    examples = data.examples("dev", tiny.tokenizer(), 30)
    for task, own in examples.items():
        assert len(own) == len(data.rows[task]["dev"])
    assert data.examples("test", tiny.tokenizer(), 30) == {}
    only = Data.gather(Recipe.read(folders.small(tiny_folder)), ["dev"])
    assert all(set(splits) == {"dev"} for splits in only.rows.values())


@pytest.mark.parametrize(
    ("written", "wrong", "said"),
    [
        ("sentiment-train.csv", "sentiment-trian.csv", "'sentiment': .* did you mean 'sentiment-t"),
        ("label: label", "label: lable", "'sentiment': .* has no column 'lable'.* mean 'label'"),
        ("text: text", "text: texts", "'sentiment': .* has no column 'texts'.* mean 'text'"),
    ],
)
def test_a_wrong_file_or_column_is_told_with_its_line(
    tiny_folder: Path, tmp_path: Path, written: str, wrong: str, said: str
) -> None:
    recipe = folders.small(tiny_folder, ("sentiment",))
    recipe["tasks"]["sentiment"] = {"label": "label", **recipe["tasks"]["sentiment"]}
    lines = yaml.safe_dump(recipe, default_flow_style=False).replace(written, wrong).splitlines()
    number = next(n for n, line in enumerate(lines, 1) if wrong in line)
    file = tmp_path / "recipe.yaml"
    file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(UserError, match=f"recipe.yaml line {number}: task {said}"):
        Data.gather(Recipe.read(file))


def test_digests_change_with_the_rows_alone(tiny_folder: Path, tmp_path: Path) -> None:
    rows = folders.data(tmp_path / "rows")
    recipe = folders.small(tiny_folder) | {"data": str(rows)}
    before = Data.gather(Recipe.read(recipe)).digests()
    assert before == Data.gather(Recipe.read(recipe)).digests()
    file = rows / "sentiment-train.csv"
    file.write_text(file.read_text() + "One more.,neutral\n")
    after = Data.gather(Recipe.read(recipe)).digests()
    changed = [(t, s) for t in after for s in after[t] if after[t][s] != before[t][s]]
    assert changed == [("sentiment", "train")]
    assert after["sentiment"]["train"]["rows"] == before["sentiment"]["train"]["rows"] + 1


def test_what_was_skipped_is_noted(tiny_folder: Path, tmp_path: Path) -> None:
    rows = folders.data(tmp_path / "rows")
    file = rows / "sentiment-train.csv"
    file.write_text(file.read_text() + ",neutral\n")
    data = Data.gather(
        Recipe.read(folders.small(tiny_folder) | {"data": str(rows), "rows": "skip"})
    )
    (note,) = data.notes()
    assert "sentiment-train.csv" in note
    assert "1 " in note


def test_rows_to_be_judged_on_that_repeat_others_are_noted(
    tiny_folder: Path, tmp_path: Path
) -> None:
    """Whatever their labels are; to learn from a row twice is no fault."""
    rows = folders.data(tmp_path / "rows")
    for split in ("train", "dev"):
        file = rows / f"sentiment-{split}.csv"
        file.write_text(file.read_text() + "Said twice.,neutral\nSaid twice.,positive\n")
    data = Data.gather(Recipe.read(folders.small(tiny_folder) | {"data": str(rows)}))
    (note,) = data.notes()
    many = len(data.rows["sentiment"]["dev"])
    assert f"sentiment-dev.csv: 1 of {many} dev rows repeat the texts of others" in note
    assert data.digests()["sentiment"]["dev"]["repeated"] == 1


def test_what_is_odd_about_the_rows_is_noticed(tiny_folder: Path, tmp_path: Path) -> None:
    rows = folders.data(tmp_path / "rows")
    file = rows / "sentiment-train.csv"
    lines = file.read_text().splitlines()
    dev = (rows / "sentiment-dev.csv").read_text().splitlines()[1:3]
    file.write_text("\n".join([*lines, *dev, "So so.,netural"]) + "\n")
    data = Data.gather(Recipe.read(folders.small(tiny_folder) | {"data": str(rows)}))
    said = [note for note in data.noticed() if note.startswith("task 'sentiment'")]
    assert "6 classes in 67 train rows" in said[0]
    assert f"'netural' (one row, the first in line {len(lines) + 3}) is nearly 'neutral'" in said[1]
    assert "2 of 16 dev rows have texts of train rows" in said[-1]


def test_limits_are_told_in_one_line(tiny_folder: Path) -> None:
    recipe = folders.small(tiny_folder)
    limits = {"limit": {"train": 9, "dev": 5}}
    recipe["tasks"] = {name: task | limits for name, task in recipe["tasks"].items()}
    (said,) = Data.gather(Recipe.read(recipe)).notes()
    assert said.startswith("of the rows, as `limit` says: sentiment train 9 of 64, sentiment dev 5")
    assert said.endswith("similarity train 9 of 64, similarity dev 5 of 16")


@pytest.mark.parametrize(
    ("package", "source"), [("datasets", {"hub": "some/set"}), ("pyarrow", "rows.parquet")]
)
def test_a_missing_package_is_said_before_anything_is_read(
    package: str, source: Any, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = folders.small(tiny_folder)
    recipe["tasks"]["similarity"] = recipe["tasks"]["similarity"] | {"dev": source}

    def read(*_: object, **__: object) -> None:
        raise AssertionError("rows are read")

    monkeypatch.setattr("bough.data.checked_rows.load", read)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match="which needs the hub extra"):
        Data.gather(Recipe.read(recipe))


def test_tasks_of_one_table_have_its_texts_in_common(tmp_path: Path) -> None:
    """Empty cells are not learned from, and counted; a task alone on a table has to have labels."""
    lines = "text,mood,grade\nthe old tree,good,1\nis green,,2\nwho does,bad,\na leaf,good,5\n"
    for split in ("train", "dev"):
        (tmp_path / f"{split}.csv").write_text(lines)
    files: dict[str, Any] = {"text": "text", "train": "train.csv", "dev": "dev.csv"}
    tasks = {
        "mood": {"kind": "classify", "label": "mood", **files},
        "grade": {"kind": "regress", "label": "grade", "range": [1, 5], **files},
    }
    recipe = Recipe.read({"encoder": "minilm", "data": str(tmp_path), "tasks": tasks})
    data = Data.gather(recipe)
    found = data.examples("train", tiny.tokenizer(), 30)
    assert found["mood"].sequences is found["grade"].sequences
    assert {n: own.index[:, 0].tolist() for n, own in found.items()} == {
        "mood": [0, 2, 3], "grade": [0, 1, 3]
    }  # fmt: skip
    said = data.notes()
    assert len(said) == 4
    assert "task 'mood': 1 of 4 train rows have no label" in said[0]
    assert said[0].endswith("column 'mood'): nothing is learned from them")
    assert said[1].endswith("column 'mood'): they are not judged")
    assert len(Data.gather(recipe, ["dev"], only=["mood"]).rows["mood"]["dev"]) == 3
    alone = recipe.model_copy(update={"tasks": {"mood": recipe.tasks["mood"]}})
    with pytest.raises(UserError, match="line 3, column 'mood': the label is empty"):
        Data.gather(alone)
