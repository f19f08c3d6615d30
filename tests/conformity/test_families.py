"""Every family of encoders under every kind of plan, for every kind of task, passes these tests.

Each family is a folder as a hub would have it, with random weights. One model per family and plan
has tasks of all kinds, on single texts and on pairs, and answers them together; that must be what
each answers alone, saved and loaded, padded as on CUDA, in bf16, as what ONNX is traced from, and
what the plan's cost counts. Each family also learns, from a recipe, all kinds at once.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

import bough
from bough.inference.answers import Answer
from bough.inference.model import Text
from bough.inference.torch_model import MultiTaskModel
from bough.model import attention, pretrained
from bough.model.families.deberta import DisentangledAttention
from bough.plan.cost import cell_parameters
from bough.plan.encoder_shape import FAMILIES
from bough.recipe.kinds import Kind
from bough.recipe.tasks import Task
from tests import exports, folders, tiny

PAIR = ("one", "two")
# Of each kind a task, and two on pairs.
SETTINGS: dict[str, dict[str, Any]] = {
    "classify": {"kind": "classify", "labels": ("x", "y", "z"), "pooling": "cls"},
    "regress": {"kind": "regress", "range": (0, 5), "pooling": "mean"},
    "ordinal": {"kind": "ordinal", "labels": ("1", "2", "3", "4"), "pooling": "cls"},
    "multilabel": {"kind": "multilabel", "labels": ("a", "b"), "pooling": "mean"},
    "tag": {"kind": "tag", "labels": ("place", "person"), "pooling": "words"},
    "joint": {"kind": "classify", "labels": ("no", "yes"), "text": PAIR, "pooling": "pooler"},
    "twin": {"kind": "regress", "range": (0, 1), "text": PAIR, "pair": "twin", "pooling": "mean",
             "head": "cosine"},
}  # fmt: skip
TASKS = {name: Task(**{"text": "text", **settings}) for name, settings in SETTINGS.items()}
PLANS = [
    "full",
    "separate",
    "split@1/classify+tag",
    "row@embeddings, row@2/regress+twin",
    "late:SI, feed:classify>regress",
    "pal:4, lowrank:2@1",
    "lora:2:qkvoif, bottleneck:3",
    "frozen@1, split@1, lora:2, feed~:classify>joint",
]
TEXTS: list[Text] = [
    "the old tree is green",
    "who",
    *exports.sentences(3, 5, 30),
    *exports.pairs(6),
]


@cache
def model_of(family: str, plan: str) -> MultiTaskModel:
    encoder = tiny.encoder(family)
    network = tiny.network(plan, TASKS, encoder, stir=0.05)
    return MultiTaskModel(network, encoder.tokenizer, encoder.shape.longest)


def outputs(model: Any, names: list[str] | None = None) -> dict[str, Tensor]:
    """Each task's numbers for all texts of its form, in order."""
    asked = [
        tuple(n for n in names or SETTINGS if TASKS[n].paired == isinstance(text, tuple))
        for text in TEXTS
    ]
    texts = [text for text, wanted in zip(TEXTS, asked, strict=True) if wanted]
    asked = [wanted for wanted in asked if wanted]
    found = model.outputs(*model.forms(texts, asked), asked)
    return {name: exports.by_number(answered) for name, answered in found.items()}


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor], atol: float = 1e-5) -> None:
    assert found.keys() <= wanted.keys()
    for name, values in found.items():
        torch.testing.assert_close(values.float(), wanted[name], atol=atol, rtol=0, msg=name)


def test_every_kind_is_here() -> None:
    assert {settings["kind"] for settings in SETTINGS.values()} == set(get_args(Kind))


each = pytest.mark.parametrize("family", FAMILIES)
under = pytest.mark.parametrize("plan", PLANS)


@each
@under
def test_a_task_answers_alone_as_with_the_others(family: str, plan: str) -> None:
    model = model_of(family, plan)
    together = outputs(model)
    assert together.keys() == SETTINGS.keys()
    for name in SETTINGS:
        assert_same(outputs(model, [name]), together)
        alone = model.only(name)
        assert_same({name: outputs(alone, [name])[name]}, together)


@each
@under
def test_what_is_padded_on_cuda_is_the_same(
    family: str, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(family, plan)
    wanted = outputs(model)

    def padded(*given: Any) -> Tensor:
        return attention.attend_padded(*given, *[None] * (5 - len(given)))

    monkeypatch.setattr(attention, "attend", padded)
    monkeypatch.setattr(DisentangledAttention, "_by_bucket", DisentangledAttention._padded)
    assert_same(outputs(model), wanted)


@each
@under
@pytest.mark.parametrize("kernels", ["bough's", "torch's"])
def test_products_in_bf16_are_near(
    family: str, plan: str, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(family, plan)
    wanted = outputs(model)
    monkeypatch.setattr(model.network, "narrow", torch.bfloat16)
    if kernels == "torch's":
        monkeypatch.setattr("bough.native.kernels.available", lambda *rows: False)
    found = outputs(model)
    for name, values in found.items():
        spread = float(wanted[name].std()) + 0.1
        torch.testing.assert_close(values, wanted[name], atol=0.15 * spread, rtol=0.05, msg=name)
    assert any(not torch.equal(found[name], wanted[name]) for name in found)


@each
@under
def test_saved_and_loaded(family: str, plan: str, tmp_path: Path) -> None:
    """Bit for bit, every weight once, and as many as the plan counts."""
    model = model_of(family, plan)
    loaded = bough.load(model.save(tmp_path / "model"))
    assert isinstance(loaded, MultiTaskModel)
    assert_same(outputs(loaded), outputs(model), atol=0)
    cells = {c: n for c, n in cell_parameters(model.plan, model.network.shape).items()
             if c.place != "head"}  # fmt: skip
    for cell, size in cells.items():
        assert sum(p.numel() for p in loaded.network.cells[cell.key].parameters()) == size


@each
@under
def test_what_onnx_is_traced_from(family: str, plan: str) -> None:
    model = model_of(family, plan)
    exported = exports.untraced(model)
    for ours, theirs in zip(model.predict(TEXTS), exported.predict(TEXTS), strict=True):
        assert ours.keys() == theirs.keys()
        for name, answer in ours.items():
            assert said(theirs[name])[0] == said(answer)[0]
            assert said(theirs[name])[1] == pytest.approx(said(answer)[1], abs=exports.CLOSE)


def said(answer: Answer) -> tuple[list[Any], list[float]]:
    """An answer's words, and its numbers."""
    spans = answer.spans or ()
    words = [answer.label, answer.labels, answer.cut, *((s.start, s.end, s.label) for s in spans)]
    shares = (answer.probabilities or {}).values()
    return words, [answer.value or 0.0, *shares, *(span.score for span in spans)]


@each
def test_it_learns_all_kinds(family: str, tmp_path: Path) -> None:
    """From its folder, by a recipe, with the pooling that the family has of its own."""
    folder = folders.of_family(tmp_path / "encoder", family)
    encoder = pretrained.load(str(folder))
    rows = folders.all_kinds(tmp_path)
    recipe = {
        "encoder": str(folder), "plan": "split@1, lora:2", "data": str(tmp_path),
        "tasks": {
            name: {"kind": task.kind, "text": list(task.columns), "pair": task.pair,
                   "range": task.range, "label": name, "train": "rows.jsonl", "dev": "rows.jsonl"}
            for name, task in TASKS.items()
        },
        "training": {"steps": 3, "batch": 4, "lr": 1e-3, "seed": 0},
    }  # fmt: skip
    run = bough.train(recipe, out=tmp_path / "run")
    losses = [entry["loss"] for entry in run.metrics() if "loss" in entry][-1]
    assert losses.keys() == SETTINGS.keys()
    model = bough.load(run)
    own = encoder.pooling.name
    assert {t.pooling for t in model.tasks.values()} == {own, "words"}
    said = model.predict(rows[0]["text"])
    assert all(isinstance(answer, Answer) and answer.finite for answer in said.values())
    assert (
        json.loads((run.folder / "model" / "config.json").read_text())["shape"]["family"] == family
    )
