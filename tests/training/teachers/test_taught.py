"""Students of teachers, from recipe to weights."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from bough.data.dataset import Data
from bough.distributed import ALONE
from bough.errors import UserError
from bough.inference.load import load_torch
from bough.inference.torch_model import MultiTaskModel
from bough.recipe.recipe import Recipe
from bough.runs.run_dir import Run
from bough.training.loop import Stopped
from bough.training.teachers.kept_answers import answered
from bough.training.teachers.taught import digests, mean_answers, taught
from bough.training.train import resume, train
from tests import folders, ranks
from tests.finished import FEW, logged
from tests.same import assert_same_run

BOTH = ("sentiment", "similarity")


@pytest.fixture(scope="module")
def teachers(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, `a` and `b`, of other seeds."""
    folder = tmp_path_factory.mktemp("teachers")
    for seed, name in enumerate("ab"):
        train(folders.small(tiny_folder, BOTH, steps=20, seed=seed), folder / name)
    return folder


def student(tiny_folder: Path, teacher: object, **training: Any) -> dict[str, Any]:
    recipe = folders.small(tiny_folder, BOTH, **{**FEW, **training})
    tasks = {name: {**recipe["tasks"][name], "teacher": teacher} for name in BOTH}
    return recipe | {"tasks": tasks}


def test_the_mean_of_several_teachers(tiny_folder: Path, teachers: Path) -> None:
    both = student(tiny_folder, [str(teachers / "a"), str(teachers / "b")])
    data = Data.gather(Recipe.read(both))
    for name in BOTH:
        texts = data.rows[name]["train"].texts
        root = Path("/")
        mean = mean_answers(name, data.tasks[name], texts, root, "cpu", lambda text: None)
        each = [answered(load_torch(teachers / t), name, texts) for t in "ab"]
        torch.testing.assert_close(mean, (each[0] + each[1]) / 2)


def test_texts_without_labels_are_taught_too(tiny_folder: Path, teachers: Path) -> None:
    recipe = student(tiny_folder, str(teachers / "a"))
    rows = tiny_folder.parent / "rows"
    more = {"unlabelled": ["similarity", str(rows / "sentiment-dev.csv")]}
    recipe["tasks"]["sentiment"] |= more
    read = Recipe.read(recipe)
    data = Data.gather(read)
    model = load_torch(teachers / "a")
    examples = data.examples("train", model.tokenizer, model.longest)
    arguments = (data, model.tokenizer, model.longest, Path("/"), "cpu", ALONE, lambda text: None)
    found = taught(examples, *arguments)["sentiment"]
    train_rows, extra = data.rows["sentiment"]["train"], data.unlabelled["sentiment"]
    pairs = data.rows["similarity"]["train"].texts
    with open(rows / "sentiment-dev.csv", encoding="utf-8", newline="") as file:
        dev = [(row["text"].strip(),) for row in csv.DictReader(file)]
    wanted = dict.fromkeys([*((text,) for pair in pairs for text in pair), *dev])
    own = set(train_rows.texts)
    assert extra.texts == [text for text in wanted if text not in own]
    assert found.taught is not None
    assert found.labelled is not None
    assert len(found) == len(found.taught) == len(train_rows) + len(extra)
    assert int(found.labelled.sum()) == len(train_rows)
    assert found.labels is not None
    assert torch.equal(found.labels, torch.tensor(train_rows.labels))
    expected = answered(model, "sentiment", [*train_rows.texts, *extra.texts])
    torch.testing.assert_close(found.taught, expected)
    limited = Recipe.read(recipe, ["tasks.sentiment.limit.unlabelled=5"])
    assert len(Data.gather(limited).unlabelled["sentiment"]) == 5


def test_a_student_of_the_teachers_shape_comes_to_its_answers(
    tiny_folder: Path, teachers: Path, tmp_path: Path
) -> None:
    """With weight 1 and no dropout, from another start, on the labels' texts alone."""
    recipe = student(
        tiny_folder, str(teachers / "a"), steps=400, lr=3e-3, dropout=0.0, seed=7, decay=0.0,
        distil={"weight": 1.0, "anneal": False}, evaluate_every=400, select="last",
    )  # fmt: skip
    for task in recipe["tasks"].values():
        task["dropout"] = 0.0
    run = train(recipe, tmp_path / "run")
    losses = [entry["loss"] for entry in logged(run)]
    for name in BOTH:
        assert losses[-1][name] < 0.05 * losses[0][name]
    data = Data.gather(Recipe.read(recipe))
    models: list[MultiTaskModel] = [load_torch(run), load_torch(teachers / "a")]
    for model in models:  # each was calibrated to its own dev rows
        tasks = model.network.tasks
        tasks["sentiment"] = tasks["sentiment"].model_copy(update={"temperature": None})
    for name in BOTH:
        ours, theirs = (answered(m, name, data.rows[name]["train"].texts) for m in models)
        if name == "similarity":
            assert float((ours - theirs).abs().mean()) < 0.1  # of 0 to 5
        else:
            assert float((ours.argmax(1) == theirs.argmax(1)).float().mean()) > 0.95


def test_it_is_resumed_bit_for_bit(
    tiny_folder: Path, teachers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = student(tiny_folder, str(teachers / "a"), steps=6, evaluate_every=2, save_every=0)
    recipe["tasks"]["sentiment"]["unlabelled"] = "similarity"
    whole = train(recipe, tmp_path / "whole")

    with pytest.raises(Stopped):
        train(recipe, tmp_path / "stopped", display=Interrupting())
    monkeypatch.setenv("BOUGH_CACHE", str(tmp_path / "cold"))
    shutil.rmtree(tmp_path / "stopped" / "taught")  # as in runs of before: the teacher is asked
    assert_same_run(whole, resume(tmp_path / "stopped"))


class Interrupting:
    """A display that stops the run in its third step."""

    def __init__(self) -> None:
        self.steps = 0

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None

    def step(self, moment: object) -> None:
        self.steps += 1
        if self.steps == 3:
            raise Stopped("here")


@pytest.mark.parametrize("gone", [True, False])
def test_it_goes_on_with_its_own_answers_when_its_teacher_is_gone_or_another(
    gone: bool, tiny_folder: Path, teachers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = load_torch(teachers / "a").save(tmp_path / "teacher")
    recipe = student(tiny_folder, str(teacher), steps=6, evaluate_every=2, save_every=0)
    recipe["tasks"]["sentiment"]["unlabelled"] = "similarity"
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Stopped):
        train(recipe, tmp_path / "stopped", display=Interrupting())
    monkeypatch.setenv("BOUGH_CACHE", str(tmp_path / "cold"))
    shutil.rmtree(teacher)
    if not gone:
        load_torch(teachers / "b").save(teacher)
    assert_same_run(whole, resume(tmp_path / "stopped"))


def test_answers_that_are_others_are_not_resumed_with(
    tiny_folder: Path, teachers: Path, tmp_path: Path
) -> None:
    """Where a run has none of its own, or they are damaged."""
    moved = load_torch(teachers / "a").save(tmp_path / "teacher")
    recipe = student(tiny_folder, str(moved))
    run = train(recipe, tmp_path / "run")
    (run.folder / "scores.json").unlink()
    load_torch(teachers / "b").save(tmp_path / "teacher")
    for file in (run.folder / "taught").iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match="the teachers of task 'sentiment' answer otherwise"):
        resume(run.folder)


def test_teachers_are_no_part_of_the_model(
    tiny_folder: Path, teachers: Path, tmp_path: Path
) -> None:
    run = train(student(tiny_folder, str(teachers / "a")), tmp_path / "run")
    config = (run.model / "config.json").read_text()
    assert str(teachers) not in config
    assert Run.open(tmp_path / "run").environment["teachers"].keys() == set(BOTH)
    assert load_torch(run).tasks["sentiment"].teacher == ()
    card = (run.model / "README.md").read_text()
    assert "taught sentiment by a; similarity by a (weight 1)" in card


def test_processes_learn_the_same(tiny_folder: Path, teachers: Path, tmp_path: Path) -> None:
    recipe = student(tiny_folder, str(teachers / "a"), dropout=0.0)
    for task in recipe["tasks"].values():
        task["dropout"] = 0.0
    recipe["tasks"]["sentiment"]["unlabelled"] = "similarity"
    (tmp_path / "recipe.yaml").write_text(Recipe.read(recipe).dump())
    ranks.together(2, tmp_path, "tests.training.teachers.test_taught:train_here")
    alone, shared = train(recipe, tmp_path / "alone"), Run.open(tmp_path / "shared")
    assert shared.environment["teachers"] == alone.environment["teachers"]
    for one, other in zip(logged(alone), logged(shared), strict=True):
        for name, value in one["loss"].items():
            # A loss of next to nothing is a difference of numbers near 1, and no better than they.
            assert other["loss"][name] == pytest.approx(value, rel=1e-4, abs=1e-7)


def train_here(folder: Path) -> None:
    train(folder / "recipe.yaml", folder / "shared")


def test_answers_are_known_by_their_digest(tiny_folder: Path) -> None:
    assert digests({}) == {}
