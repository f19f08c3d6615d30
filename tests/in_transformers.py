"""Exports for transformers, loaded by it, beside bough's own answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bough.data.packing import Pack
from bough.data.tokens import tokenise
from bough.export.transformers_export import write_checkpoint
from bough.inference.model import Text
from bough.inference.torch_model import MultiTaskModel
from bough.model.forward import PackedForward
from bough.recipe.tasks import Task
from tests.exports import CLOSE, by_number, mixed

CODE = "modeling_bough.py"
CLASSIFIER = "AutoModelForSequenceClassification"


def in_transformers(folder: Path, texts: list[Text], kind: str) -> Any:
    """The loaded model's output for the texts, padded together."""
    import transformers

    trust = {"trust_remote_code": True} if (folder / CODE).exists() else {}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **trust)
    loader = getattr(transformers, kind)
    model, found = loader.from_pretrained(folder, output_loading_info=True, **trust)
    strange = {k: v for k, v in found.items() if v and not all("pooler" in name for name in v)}
    assert not strange
    firsts = [t if isinstance(t, str) else t[0] for t in texts]
    seconds = None if isinstance(texts[0], str) else [t[1] for t in texts]
    inputs = tokenizer(firsts, seconds, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        return model.eval()(**inputs)


def written(model: MultiTaskModel, folder: Path, task: str, trunk: bool = False) -> str:
    """Why the code went along, or nothing."""
    folder.mkdir()
    why = write_checkpoint(model, folder, task, trunk)
    assert bool(why) == (folder / CODE).exists()
    return why


def logits(model: MultiTaskModel, task: str, texts: list[Text]) -> Tensor:
    """Our outputs in transformers' form: [0, z] for two classes, numbers in their range."""
    asked = [(task,)] * len(texts)
    z = by_number(model.outputs(*model.forms(texts, asked), asked)[task])
    if model.tasks[task].kind == "regress":
        low, high = model.tasks[task].range or (0, 1)
        return low + z * (high - low)
    return torch.cat([torch.zeros_like(z), z], 1) if z.shape[1] == 1 else z


@torch.no_grad()
def vectors(model: MultiTaskModel, task: str, texts: list[Text]) -> Tensor:
    """What this task's head reads of each text or joint pair."""
    parts = [(text,) if isinstance(text, str) else text for text in texts]
    sequences, _ = tokenise(parts, model.tokenizer, model.longest)
    pack = Pack.of([(sequences, np.arange(len(texts)))])
    network = model.network
    forward = PackedForward(network.routing, network.cells, pack, [(task,)] * len(texts), None)
    forward.run()
    rows, index = forward.vectors()[task, task]
    return rows[index]


def texts_for(task: Task) -> list[Text]:
    return [t for t in mixed(14) if isinstance(t, tuple) == task.paired]


def same_answers(model: MultiTaskModel, name: str, folder: Path, texts: list[Text]) -> None:
    """Labels, probabilities and numbers, as a user reads them off."""
    theirs = in_transformers(folder, texts, CLASSIFIER).logits
    config = json.loads((folder / "config.json").read_text())
    labels = list(config["id2label"].values())
    for answer, row in zip(model.predict(texts, name), theirs, strict=True):
        said = answer[name]
        if said.probabilities is None:
            low, high = model.tasks[name].range or (0, 1)
            assert said.value == pytest.approx(min(max(float(row), low), high), abs=CLOSE)
        else:
            assert list(said.probabilities) == labels
            assert list(said.probabilities.values()) == pytest.approx(
                row.softmax(0).tolist(), abs=CLOSE
            )
