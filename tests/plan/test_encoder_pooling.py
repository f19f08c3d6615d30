"""An encoder is read as it was made for: its folder says how, or its pooler, or its family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from bough.errors import UserError
from bough.plan.encoder_pooling import WITHOUT_POOLER, EncoderPooling, has_pooler, read_pooling
from bough.plan.encoder_shape import FAMILIES
from tests import tiny
from tests.folders import sentence_encoder

WITH, WITHOUT = tiny.shape("bert"), tiny.shape("bert", pooler=False)


@pytest.mark.parametrize(
    ("config", "name", "reason"),
    [
        ({"pooling_mode_mean_tokens": True}, "mean", "as the encoder was made for (1_Pooling)"),
        ({"pooling_mode_cls_token": True}, "cls", "as the encoder was made for (1_Pooling)"),
        ({"pooling_mode": "mean"}, "mean", "as the encoder was made for (1_Pooling)"),
        ({"pooling_mode": "cls"}, "cls", "as the encoder was made for (1_Pooling)"),
        ({"pooling_mode_max_tokens": True}, "mean", "the nearest to max, which"),
        ({"pooling_mode": "weightedmean"}, "mean", "the nearest to weightedmean, which"),
        ({"pooling_mode": ["cls", "mean"]}, "mean", "the nearest to cls and mean, which"),
        ({"pooling_mode": ["cls", "lasttoken"]}, "cls", "the nearest to cls and lasttoken, which"),
        ({"pooling_mode_lasttoken": True}, None, "the encoder's own is lasttoken (1_Pooling)"),
        ({"pooling_mode_mean_tokens": False}, None, "names no pooling"),
        ({"pooling_mode": 7}, None, "the encoder's own is 7"),
        ([], None, "names no pooling"),
    ],
)
def test_a_folder_of_sentence_transformers(
    config: Any, name: str | None, reason: str, tmp_path: Path
) -> None:
    found = read_pooling(sentence_encoder(tmp_path, config), WITH)
    assert found.name == name
    assert reason in found.reason


def test_the_modules_say_where_the_pooling_is(tmp_path: Path) -> None:
    sentence_encoder(tmp_path, {"pooling_mode": "cls"}, "2_Pooling")
    assert str(read_pooling(tmp_path, WITH)) == "cls, as the encoder was made for (2_Pooling)"
    folder = tmp_path / "inside"
    folder.mkdir()
    outside = [{"type": "sentence_transformers.models.Pooling", "path": "../2_Pooling"}]
    for modules in (json.dumps(outside), "[7", "7", "[7]"):
        (folder / "modules.json").write_text(modules)
        assert read_pooling(folder, WITH).name == "pooler"


def test_without_such_a_folder_the_checkpoint_says_it(tmp_path: Path) -> None:
    assert read_pooling(tmp_path, WITH).name == "pooler"
    assert str(read_pooling(tmp_path, WITHOUT)).startswith("mean, as the encoder has no pooler")
    roberta = tiny.shape("roberta", pooler=False)
    assert read_pooling(tmp_path, roberta).name == "cls"
    assert WITHOUT_POOLER.keys() == FAMILIES.keys()
    by_name = read_pooling(tmp_path, WITH, ["sentence-transformers/all-MiniLM-L6-v2"])
    assert by_name.name == "mean"


def test_a_pooler_is_found_by_its_weights_name(tmp_path: Path) -> None:
    assert has_pooler(tmp_path, True)
    assert not has_pooler(tmp_path, False)
    for name, there in (("bert.pooler.dense.weight", True), ("bert.x.weight", False)):
        save_file({name: np.zeros(1)}, tmp_path / "model.safetensors")
        assert has_pooler(tmp_path, not there) == there
    (tmp_path / "model.safetensors").write_bytes(b"none")
    assert has_pooler(tmp_path, True)
    index = {"weight_map": {"pooler.dense.weight": "model-1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert has_pooler(tmp_path, False)


def test_only_auto_is_resolved() -> None:
    tasks = {"a": tiny.task(pooling="auto"), "b": tiny.task(pooling="cls")}
    resolved = EncoderPooling("mean", "").resolve(tasks)
    assert {name: task.pooling for name, task in resolved.items()} == {"a": "mean", "b": "cls"}
    unknown = EncoderPooling(None, "the encoder's own is lasttoken (1_Pooling)")
    assert unknown.resolve({"b": tasks["b"]}) == {"b": tasks["b"]}
    with pytest.raises(UserError, match=r"tasks.a.pooling: auto .* lasttoken .*; set mean, cls or"):
        unknown.resolve(tasks)
