"""A teacher is asked once: its answers are found again, and only where nothing has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bough.errors import UserError
from bough.inference.torch_model import MultiTaskModel
from bough.model.losses import answers
from bough.recipe.tasks import Task
from bough.recipe.teacher import Teacher
from bough.training.teachers import kept_answers
from bough.training.teachers.kept_answers import answered, model_answers
from bough.training.teachers.soft_answers import SoftAnswers
from tests import tiny
from tests.exports import TASKS, model_of, sentences
from tests.training.teachers.test_sequence_classifier import classifier

TEXTS: list[tuple[str, ...]] = [(text,) for text in sentences(20)]
PAIRS: list[tuple[str, ...]] = [*zip(sentences(8), sentences(8, seed=1), strict=True)]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """How many texts each pass of a model was given."""
    monkeypatch.setenv("BOUGH_CACHE", str(tmp_path / "cache"))
    counted: list[int] = []
    real = MultiTaskModel.outputs

    def counting(self: MultiTaskModel, *arguments: Any) -> Any:
        counted.append(len(arguments[-1]))
        return real(self, *arguments)

    monkeypatch.setattr(MultiTaskModel, "outputs", counting)
    return counted


def ask(name: str, asking: Task, texts: list[tuple[str, ...]], **teacher: Any) -> SoftAnswers:
    said: list[str] = []
    return model_answers(name, asking, Teacher(**teacher), texts, "cpu", said.append)


def test_once_for_all_runs(passes: list[int], tmp_path: Path) -> None:
    folder = str(model_of("full", TASKS).save(tmp_path / "m"))
    first = ask("a", TASKS["a"], TEXTS, model=folder)
    again = ask("a", TASKS["a"], TEXTS, model=folder)
    assert passes == [20]
    assert torch.equal(first.values, again.values)
    assert first.labels == again.labels == ("x", "y", "z")
    numbers = ask("b", TASKS["b"], PAIRS, model=folder)
    assert (numbers.labels, numbers.range) == (None, (0.0, 5.0))
    assert passes == [20, 8]
    ask("a", TASKS["a"], TEXTS[:-1], model=folder)  # other texts
    model_of("split@1", TASKS).save(folder)  # other weights
    ask("a", TASKS["a"], TEXTS, model=folder)
    assert passes == [20, 8, 19, 20]


def test_it_is_what_the_model_answers(passes: list[int], tmp_path: Path) -> None:
    model = model_of("full", TASKS)
    folder = str(model.save(tmp_path / "m"))
    values = ask("other", tiny.task(labels=("z", "y", "x")), TEXTS, model=folder, task="a").values
    told = model.predict([text for (text,) in TEXTS], "a")
    shares = [list((answer["a"].probabilities or {}).values()) for answer in told]
    torch.testing.assert_close(values, torch.tensor(shares))


def test_a_damaged_or_missing_cache_is_no_harm(
    passes: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(model_of("full", TASKS).save(tmp_path / "m"))
    first = ask("a", TASKS["a"], TEXTS, model=folder)
    (file,) = (tmp_path / "cache").glob("*.npy")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert torch.equal(ask("a", TASKS["a"], TEXTS, model=folder).values, first.values)
    assert passes == [20, 20]
    monkeypatch.setenv("BOUGH_CACHE_GB", "0")
    monkeypatch.setenv("BOUGH_CACHE", str(tmp_path / "none"))
    assert torch.equal(ask("a", TASKS["a"], TEXTS, model=folder).values, first.values)
    assert passes == [20, 20, 20]


def test_classifiers_of_transformers(passes: list[int], tmp_path: Path) -> None:
    folder = str(classifier("bert", tmp_path / "m", numbers=False))
    for _ in range(2):
        assert ask("t", tiny.task(), TEXTS, model=folder).labels == ("bad", "good", "NEUTRAL")
    assert passes == [20]
    number = str(classifier("bert", tmp_path / "n", numbers=True))
    task = tiny.task(number=True, joint=True)
    assert ask("t", task, PAIRS, model=number, range=(-9, 9)).range == (-9, 9)
    assert ask("t", task, PAIRS, model=number).range == (0, 5)
    assert passes == [20, 8, 8]


def test_mistakes(tmp_path: Path) -> None:
    folder = str(model_of("full", TASKS).save(tmp_path / "m"))
    with pytest.raises(UserError, match=r"has no task 'd', only a, b, c; name one"):
        ask("d", TASKS["a"], TEXTS, model=folder)
    with pytest.raises(UserError, match="judges pairs, and the task one text"):
        ask("c", TASKS["a"], TEXTS, model=folder)
    several = tiny.task(kind="multilabel")
    with pytest.raises(UserError, match="gives a text one answer, and the task any number of"):
        ask("a", several, TEXTS, model=folder)
    with pytest.raises(UserError, match="no such run or model folder"):
        ask("a", TASKS["a"], TEXTS, model=str(tmp_path / "none"))


def test_many_texts_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("full", TASKS)
    whole = answered(model, "a", TEXTS)
    monkeypatch.setattr(kept_answers, "WINDOW", 7)
    torch.testing.assert_close(answered(model, "a", TEXTS), whole)
    asked = [("a",)] * len(TEXTS)
    numbers, outputs = model.outputs(*model.forms([t for (t,) in TEXTS], asked), asked)["a"]
    shares = answers(model.tasks["a"], outputs)[1]
    assert shares is not None
    torch.testing.assert_close(whole[numbers], shares)
