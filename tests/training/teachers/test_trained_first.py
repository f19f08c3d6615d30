"""A recipe as a teacher: trained once, found again, and gone on with where it was stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bough.errors import UserError
from bough.recipe.recipe import Recipe
from bough.runs.run_dir import Run
from bough.training.train import train
from bough.training.trainer import Trainer
from tests import folders
from tests.finished import FEW

TASK = "sentiment"


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The folders that were trained into, in order."""
    monkeypatch.chdir(tmp_path)
    counted: list[str] = []
    real = Trainer.run

    def counting(self: Trainer) -> None:
        counted.append(self.writer.run.folder.name)
        real(self)

    monkeypatch.setattr(Trainer, "run", counting)
    return counted


def written(tiny_folder: Path, file: str, teacher: object = (), **training: Any) -> str:
    recipe = folders.small(tiny_folder, (TASK,), **{**FEW, **training})
    recipe["tasks"] = {TASK: {**recipe["tasks"][TASK], "teacher": teacher}}
    Path(file).write_text(Recipe.read(recipe).dump())
    return file


def test_it_is_trained_first_and_never_again(tiny_folder: Path, trained: list[str]) -> None:
    teacher = written(tiny_folder, "big.yaml", seed=3)
    one = written(tiny_folder, "one.yaml", teacher)
    train(one, "runs/one")
    (kept,) = Path("runs/teachers").glob("big-*")
    assert trained == [kept.name, "one"]
    train(written(tiny_folder, "two.yaml", teacher, seed=1), "runs/two")
    assert trained == [kept.name, "one", "two"]
    (told,) = Run.open("runs/two").recipe().tasks[TASK].teacher
    assert told.recipe is None
    assert told.model == str(kept.absolute())
    written(tiny_folder, "big.yaml", seed=4)  # another recipe is another teacher
    train(one, "runs/three")
    assert trained[3].startswith("big-")
    assert trained[3] != kept.name


def test_one_that_was_stopped_is_gone_on_with(tiny_folder: Path, trained: list[str]) -> None:
    one = written(tiny_folder, "one.yaml", written(tiny_folder, "big.yaml", seed=3))
    train(one, "runs/one")
    (kept,) = Path("runs/teachers").glob("big-*")
    before = (kept / "model" / "model.safetensors").read_bytes()
    (kept / "scores.json").unlink()
    train(one, "runs/two")
    assert trained == [kept.name, "one", kept.name, "two"]
    assert (kept / "model" / "model.safetensors").read_bytes() == before
    assert Run(kept).finished


def test_teachers_may_have_teachers_but_not_themselves(
    tiny_folder: Path, trained: list[str]
) -> None:
    second = written(tiny_folder, "second.yaml", written(tiny_folder, "first.yaml", seed=3))
    train(written(tiny_folder, "third.yaml", second), "runs/third")
    assert [name.partition("-")[0] for name in trained] == ["first", "second", "third"]
    written(tiny_folder, "first.yaml", "second.yaml")
    with pytest.raises(UserError, match=r"its teacher teaches itself \(.*second.yaml > .*first"):
        train("third.yaml", "runs/fourth")
    assert not Path("runs/fourth").exists()


def test_a_mistake_in_it_is_said_before_anything_is_written(
    tiny_folder: Path, trained: list[str]
) -> None:
    Path("bad.yaml").write_text("tasks: {a: {kind: classify}}")
    with pytest.raises(UserError, match=r"bad.yaml.*text is missing"):
        train(written(tiny_folder, "one.yaml", "bad.yaml"), "runs/one")
    assert trained == []
    assert not Path("runs/one").exists()
