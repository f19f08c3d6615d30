"""An encoder that sees parts of speech: as before at first, then learned, saved, and used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bough
from bough.errors import UserError
from bough.export.onnx_export import write_onnx
from bough.export.transformers_export import write_transformers
from bough.inference.evaluation import evaluate
from bough.inference.load import load_torch
from bough.parts_of_speech.taggers import TAGS
from bough.pretraining.encoder_folder import starting_point
from bough.runs.console import Silent
from bough.training.train import train
from tests import folders

FEW = {"steps": 4, "evaluate_rows": 8, "lr": 1e-2}
TEXTS: list[str | tuple[str, str]] = [
    "The old film was dull.",
    ("How old is he?", "What is his age?"),
]


def recipe(folder: Path, **training: Any) -> dict[str, Any]:
    return folders.small(folder, **{**FEW, **training}) | {"parts_of_speech": "pattern"}


@pytest.mark.parametrize("plan", ["full", "split@1", "pal:8", "feed~:sentiment>questions"])
def test_at_first_nothing_is_changed(plan: str, tiny_folder: Path, tmp_path: Path) -> None:
    """Bit for bit: the same answers of the untrained model."""
    plain = folders.small(tiny_folder, steps=1, lr=1e-30, plan=plan)
    runs = [
        train(plain, tmp_path / name, [f"parts_of_speech={name}"]) for name in ("null", "pattern")
    ]
    one, other = (load_torch(run) for run in runs)
    assert one.tagger is None
    assert other.tagger is not None
    assert np.array_equal(one.encode(TEXTS[:1]), other.encode(TEXTS[:1]))
    assert one.predict(TEXTS[0]) == other.predict(TEXTS[0])
    dev = [run.scores["dev"]["tasks"] for run in runs]
    assert dev[0] == dev[1]


def test_they_are_learned_saved_and_used(tiny_folder: Path, tmp_path: Path) -> None:
    run = train(recipe(tiny_folder), tmp_path / "run")
    model = load_torch(run)
    table = model.network.state_dict()["cells.embeddings/all.tags.weight"]
    assert table.shape == (len(TAGS), 16)
    assert table.abs().sum(1).count_nonzero() > 8, "most tags were met and moved"
    assert json.loads((run.model / "config.json").read_text())["shape"]["tagger"] == "pattern"
    assert run.recipe().parts_of_speech == "pattern"
    answers = bough.load(run.folder).predict(TEXTS)
    with torch.no_grad():
        table.zero_()
    assert np.abs(load_torch(run).encode("The film.") - model.encode("The film.")).max() > 1e-4
    assert [*answers[0]] == ["sentiment"]
    assert evaluate(run.folder).scores["tasks"].keys() == run.scores["dev"]["tasks"].keys()
    assert model.only("sentiment").tagger is model.tagger
    parameters = sum(p.numel() for p in model.network.parameters())
    assert run.cost["parameters"] == parameters


def test_scores_of_the_run_are_those_of_the_loaded_model(tiny_folder: Path, tmp_path: Path) -> None:
    run = train(recipe(tiny_folder, evaluate_rows=None), tmp_path / "run")
    again = evaluate(run.folder).scores["tasks"]
    for task, score in run.scores["dev"]["tasks"].items():
        assert again[task][score["metric"]] == pytest.approx(score[score["metric"]], abs=1e-6)


def test_a_frozen_trunk_learns_none_and_says_so(tiny_folder: Path, tmp_path: Path) -> None:
    told: list[str] = []
    display = Silent()
    display.__dict__["say"] = told.append
    run = train(recipe(tiny_folder, plan="frozen"), tmp_path / "run", display=display)
    assert any("parts of speech begin as zero" in text for text in told)
    table = load_torch(run).network.state_dict()["cells.embeddings/all.tags.weight"]
    assert not table.any()


def test_where_they_cannot_go_is_said(tiny_folder: Path, tmp_path: Path) -> None:
    run = train(recipe(tiny_folder, steps=1), tmp_path / "run")
    with pytest.raises(UserError, match=r"parts_of_speech: pattern\), which ONNX has no tagger"):
        write_onnx(run.folder, tmp_path / "onnx")
    with pytest.raises(UserError, match="which transformers has no tagger for; serve it with"):
        write_transformers(run.folder, tmp_path / "hf")
    with pytest.raises(UserError, match="its trunk sees parts of speech, and a pretraining"):
        starting_point(str(tiny_folder), str(run.folder))
    assert not (tmp_path / "onnx").exists()


@pytest.mark.parametrize("value", ["penn", "spacy:", 3, True])
def test_mistakes(value: object, tiny_folder: Path) -> None:
    settings = recipe(tiny_folder) | {"parts_of_speech": value}
    with pytest.raises(UserError, match="parts_of_speech: expected pattern, nltk, spacy:MODEL"):
        bough.Recipe.read(settings)
