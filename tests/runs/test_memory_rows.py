"""Rows in memory become files of the run, from which it goes on and is judged, wherever it is."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas
import pytest

from bough.comparison.compare import compare
from bough.inference.evaluation import evaluate
from bough.recipe.recipe import Recipe
from bough.runs.memory_rows import is_stored, stored
from bough.runs.run_dir import Run
from bough.training.loop import Failed
from bough.training.train import resume, train
from bough.training.trainer import Trainer
from tests import folders
from tests.finished import FEW

ROWS = [
    ("A fine film.", "good"),
    ("Not for me.", "bad"),
    ('It says "no", twice.', "bad"),
    ("Très bien 東京.", "good"),
]


def recipe(tiny_folder: Path, rows: Any = ROWS) -> dict[str, Any]:
    made = folders.small(tiny_folder, ("sentiment",), **FEW)
    mood = {"kind": "classify", "text": "text", "train": rows, "dev": rows[:2]}
    return made | {"tasks": {"mood": mood}}


def test_the_recipe_names_a_file(tiny_folder: Path, tmp_path: Path) -> None:
    frame = pandas.DataFrame(ROWS, columns=["text", "label"])
    run = train(recipe(tiny_folder, frame), tmp_path / "run")
    text = run.recipe_file.read_text()
    assert "fine film" not in text
    written = Recipe.read(run.recipe_file).tasks["mood"]
    assert is_stored(str(written.train))
    assert len((run.folder / str(written.train)).read_text().splitlines()) == 4
    assert "rows in memory" in (run.model / "README.md").read_text()
    moved = Path(shutil.move(run.folder, tmp_path / "elsewhere"))
    assert evaluate(moved).scores == Run(moved).scores["dev"]
    told: list[str] = []
    evaluate(moved, say=told.append)
    told = [line for line in told if "commonest class" not in line]
    assert told == [], "they are the rows that the run was judged on"


def test_a_run_beside_files_keeps_its_rows_too(tiny_folder: Path, tmp_path: Path) -> None:
    made = folders.small(tiny_folder, ("sentiment",), **FEW)
    made["tasks"]["mood"] = recipe(tiny_folder)["tasks"]["mood"]
    first = train(made, tmp_path / "a")
    second = train(made, tmp_path / "b", ["training.seed=1"])
    assert evaluate(first).scores == first.scores["dev"]
    (variant,) = compare([first.folder, second.folder]).variants
    assert variant.seeds == (0, 1), "the same rows, so that only the seed differs"
    other = train(recipe(tiny_folder, ROWS[::-1]), tmp_path / "c")
    plain = train(recipe(tiny_folder), tmp_path / "d")
    names = {str(Recipe.read(run.recipe_file).tasks["mood"].train) for run in (other, plain)}
    assert len(names) == 2


def test_going_on_from_them(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rows that were refused among them, which are refused again."""
    bad = [*ROWS, ("one", "two", "three"), {"text": "", "label": "bad"}]
    made = recipe(tiny_folder, bad) | {"rows": "skip"}
    whole = train(made, tmp_path / "whole")

    def fail(*_: object) -> None:
        raise Failed("on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_finish", fail)
        with pytest.raises(Failed):
            train(made, tmp_path / "run")
    gone_on = resume(tmp_path / "run")
    assert gone_on.scores == whole.scores
    for name in ("README.md", "model.safetensors"):
        both = [(run.model / name).read_bytes() for run in (gone_on, whole)]
        if name != "README.md":  # which tells the seconds
            assert both[0] == both[1]


def test_files_and_hub_sets_stay_what_they_are(tiny_folder: Path) -> None:
    given = Recipe.read(folders.small(tiny_folder))
    same, files = stored(given, given.tasks)
    assert files == {}
    assert same == given
    hub = {"kind": "classify", "text": "text", "train": {"hub": "a/set"}, "dev": {"hub": "a/set"}}
    mood = recipe(tiny_folder)["tasks"]["mood"]
    mixed = Recipe.read(recipe(tiny_folder) | {"tasks": {"hub": hub, "mood": mood}})
    kept, files = stored(mixed, mixed.tasks)
    assert len(files) == 2
    assert kept.tasks["hub"] == mixed.tasks["hub"]
    assert kept.data == mixed.data, "not all of it is in the run"
    assert not is_stored("rows/mine.jsonl")
    assert not is_stored("data/mood-train-0123456789ab.jsonl")


def test_tasks_on_the_same_rows_have_one_file(tiny_folder: Path) -> None:
    """As they are drawn together, when the run begins and when it goes on."""
    rows = [{"text": text, "mood": mood, "loud": len(text)} for text, mood in ROWS]
    table = {"text": "text", "train": rows, "dev": rows[:2]}
    told = folders.small(tiny_folder, ("sentiment",)) | {
        "tasks": {
            "mood": {"kind": "classify", "label": "mood", **table},
            "loud": {"kind": "regress", "label": "loud", **table},
        }
    }
    made = Recipe.read(told)
    kept, files = stored(made, made.tasks)
    assert len(files) == 2
    assert kept.tasks["mood"].train == kept.tasks["loud"].train
    assert kept.tasks["mood"].dev == kept.tasks["loud"].dev
