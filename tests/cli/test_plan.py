"""bough plan: a plan's table and its exact cost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bough.errors import UserError
from bough.plan.cost import cost
from bough.plan.encoder_shape import Shape
from bough.plan.plan import Plan
from tests import folders
from tests.command import bough


def test_plan(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "split@1, pal:8", "--tasks", "sst:5,para,sts"]
    assert bough(*words, "--layers", "6") == 0
    told = capsys.readouterr().out
    assert "layer 2-6" in told
    assert "parameters" in told
    assert bough(*words, "--encoder", tiny_folder, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    shape = Shape.read(tiny_folder)
    plan = Plan.parse("split@1, pal:8", ("sst", "para", "sts"), 2, heads=4)
    exact = cost(plan, shape, {"sst": 5, "para": 1, "sts": 1}, length=64)
    assert found["parameters"] == exact.parameters
    assert found["plan"] == plan.text
    assert found["tasks"] == ["sst", "para", "sts"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["splot@1"], "the nearest plan that works is"),
        (["full", "--tasks", "a,a"], "expected different names"),
        (["full", "--tasks", "a:0"], "expected different names"),
        (["full", "--layers", "0"], "at least one layer"),
        (["full", "--layers", "3", "--encoder", "x"], "not both"),
        (["split@7", "--layers", "3"], "3"),
    ],
)
def test_mistakes_in_plans(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bough("plan", *words) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_a_pooler_that_nobody_reads_is_not_shown(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bough("plan", "split@1", "--encoder", tiny_folder) == 0
    told = capsys.readouterr().out
    assert "\npooler " in told
    assert told.endswith("pooling: pooler, as the encoder was made for (its checkpoint has one)\n")
    shutil.copy(tiny_folder / "config.json", tmp_path)
    folders.sentence_encoder(tmp_path, {"pooling_mode_mean_tokens": True})
    assert bough("plan", "split@1", "--encoder", tmp_path) == 0
    told = capsys.readouterr().out
    assert "\npooler " not in told
    assert told.endswith("pooling: mean, as the encoder was made for (1_Pooling)\n")
    assert bough("plan", "split@1", "--encoder", tmp_path / "config.json", "--json") == 0
    shape, names = Shape.read(tmp_path), ("a", "b", "c")
    exact = cost(Plan.parse("split@1", names, 2, heads=4, pooled=()), shape, means=names)
    found = json.loads(capsys.readouterr().out)
    assert (found["parameters"], found["flops_per_example"]) == (
        exact.parameters,
        exact.flops_per_example,
    )


def test_without_an_encoder_it_is_the_recipes_default(
    tiny_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bough.model.pretrained.find", lambda name: tiny_folder)
    assert bough("plan", "split@1") == 0
    told = capsys.readouterr().out
    assert "encoder: minilm; pooling: " in told
    assert "layer 2 " in told, "it has two layers"

    def missing(name: str) -> Path:
        raise UserError("the package is not installed")

    monkeypatch.setattr("bough.model.pretrained.find", missing)
    assert bough("plan", "split@1") == 0
    told = capsys.readouterr().out
    assert "layer 2-12" in told
    assert "Sizes as in BERT-base" in told
