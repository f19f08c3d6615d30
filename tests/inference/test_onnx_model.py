"""Answers from an ONNX folder; folders that are none, or do not fit."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from bough.errors import UserError
from bough.inference import onnx_model
from bough.inference.folder import save_metadata
from bough.inference.predict_file import answer_file
from bough.recipe.tasks import Task
from tests import serving, tiny
from tests.exports import CLOSE, TWINS, exported, mixed, model_of, sentences

THREE = {name: TWINS[name] for name in "acd"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of TWINS under split@1."""
    out = tmp_path_factory.mktemp("onnx")
    exported(model_of("split@1", TWINS), out)
    return out


@pytest.fixture(scope="module")
def folder_of_three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("three")
    exported(model_of("full", THREE, layers=1), out)
    return out


def test_answers_come_in_order_and_in_labels(folder: Path) -> None:
    model, other = model_of("split@1", TWINS), onnx_model.load(folder, threads=1)
    texts = mixed(40)
    for ours, theirs in zip(model.predict(texts), other.predict(texts), strict=True):
        assert list(ours) == list(theirs)
        for task, answer in ours.items():
            assert answer.label == theirs[task].label
            assert (answer.score or answer.value) == pytest.approx(
                theirs[task].score or theirs[task].value, abs=CLOSE
            )
    single = sentences(7)
    np.testing.assert_allclose(model.encode(single, "b"), other.encode(single, "b"), atol=CLOSE)
    with pytest.raises(UserError, match="no task 'x'"):
        other.encode(single, "x")
    np.testing.assert_allclose(model.encode(single), other.encode(single), atol=CLOSE)
    other.facts = {"pooling": {"name": "mean", "reason": "a test's"}}
    with pytest.raises(UserError, match=r"not the encoder's own \(mean\); name a task: .*'a'"):
        other.encode(single)


def test_an_export_is_not_saved_as_a_model(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="an ONNX export cannot be saved as a model"):
        onnx_model.load(folder, threads=1).save(tmp_path / "other")


def test_threads_share_a_session(folder: Path) -> None:
    """As the server has it: the weights are common, each thread has a tokenizer of its own."""
    other = onnx_model.load(folder, threads=1)
    words = other.tokenizer.to_str()
    texts = [mixed(30)[i:] + mixed(30)[:i] for i in range(4)]
    alone = [other.predict(part) for part in texts]
    with ThreadPoolExecutor(4) as pool:
        copies = [replace(other, tokenizer=Tokenizer.from_str(words)) for _ in texts]
        together = list(pool.map(lambda model, part: model.predict(part), copies, texts))
    assert together == alone


@pytest.mark.parametrize(
    ("plan", "tasks", "reason"),
    [
        ("full", {"x": TWINS["a"]}, "its tasks are a,c,d"),
        ("full", {"d": TWINS["d"], "a": TWINS["a"], "c": TWINS["c"]}, "its tasks are a,c,d"),
        ("full", {"a": tiny.task(labels=("no", "yes"))}, "a differs"),
        ("full", {"c": tiny.task(twin=True, head="mlp")}, "c differs"),
        ("feed:a>c", {}, "c.reads.a differs"),
    ],
)
def test_a_graph_beside_another_models_config(
    plan: str, tasks: dict[str, Task], reason: str, folder_of_three: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folder_of_three, tmp_path / "copy"))
    fitting = tasks if len(tasks) == 3 else THREE | tasks
    save_metadata(model_of(plan, fitting, layers=1), copy)
    with pytest.raises(UserError, match=re.escape(f"beside it ({reason}); export the run anew")):
        onnx_model.load(copy)


def test_files_are_answered_from_an_export(folder: Path, tmp_path: Path) -> None:
    model = model_of("split@1", TWINS)
    (tmp_path / "in.txt").write_text("the old tree\na leaf\n", encoding="utf-8")
    answer_file(folder, str(tmp_path / "in.txt"), tmp_path / "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    for line, text in zip(lines, ("the old tree", "a leaf"), strict=True):
        answers = json.loads(line)
        assert answers.pop("id") == text
        assert serving.same(answers, model.predict(text))


def test_what_is_no_export_is_said(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no model\.onnx"):
        onnx_model.load(tmp_path)
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(UserError, match="onnxruntime cannot read it"):
        onnx_model.load(copy)
    (copy / "config.json").write_text("{}")
    with pytest.raises(UserError, match="not a bough model's config"):
        onnx_model.load(copy)
