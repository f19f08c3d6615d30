"""The code that an export carries answers as bough does, and needs no bough."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from bough.plan.encoder_shape import FAMILIES
from tests import tiny
from tests.exports import CLOSE, TASKS, model_of
from tests.in_transformers import (
    CLASSIFIER,
    CODE,
    in_transformers,
    logits,
    texts_for,
    written,
)

pytestmark = pytest.mark.usefixtures("own_modules")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "plan",
    [
        "pal:8, split@1",
        "lowrank:2@2",
        "bottleneck:2",
        "late:IS",
        "feed:a>b>c",
        "feed~:a>c, split@1, pal:4, lora:2:qkvoif, late:S",
    ],
)
def test_what_their_classes_have_no_place_for(family: str, plan: str, tmp_path: Path) -> None:
    sizes = {"embedding": 8} if family == "electra" else {}
    model = model_of(plan, TASKS, family, **sizes)
    for name, task in TASKS.items():
        written(model, tmp_path / name, name)
        texts = texts_for(task)
        theirs = in_transformers(tmp_path / name, texts, CLASSIFIER).logits
        torch.testing.assert_close(theirs, logits(model, name, texts), atol=CLOSE, rtol=0)


@pytest.mark.parametrize("fusion", ["concat", "attention"])
@pytest.mark.parametrize("reads_as", ["logits", "probabilities", "hidden"])
def test_what_a_task_reads(fusion: str, reads_as: str, tmp_path: Path) -> None:
    settings = {"fusion": fusion, "reads_as": reads_as}
    tasks = {
        "a": tiny.task(pooling="mean"),
        "b": tiny.task(joint=True, labels=("no", "yes"), head="mlp", **settings),
        "c": tiny.task(joint=True, number=True, **settings),
    }
    model = model_of("feed:a>b>c, late:S", tasks)
    written(model, tmp_path / "c", "c")
    texts = texts_for(tasks["c"])
    theirs = in_transformers(tmp_path / "c", texts, CLASSIFIER).logits
    torch.testing.assert_close(theirs, logits(model, "c", texts), atol=CLOSE, rtol=0)


def test_it_needs_no_bough(tmp_path: Path) -> None:
    model = model_of("pal:8", TASKS)
    written(model, tmp_path / "a", "a")
    code = (tmp_path / "a" / CODE).read_text()
    assert not re.search(r"^\s*(import|from) bough", code, re.MULTILINE)
