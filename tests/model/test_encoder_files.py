"""What an encoder's folder may hold, and what is refused of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from bough.errors import UserError
from bough.model import pretrained
from bough.model.encoder_files import read_tokenizer
from bough.plan.encoder_shape import Shape
from tests import tiny
from tests.reference import keep, same


def test_half_precision_is_read_as_single(model: PreTrainedModel, tmp_path: Path) -> None:
    encoder = pretrained.load(str(keep(model.bfloat16(), tmp_path)))
    assert {tensor.dtype for tensor in encoder.tensors.values()} == {torch.float32}


def test_bin_files_are_read_as_weights_only(model: PreTrainedModel, tmp_path: Path) -> None:
    keep(model, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    assert same(pretrained.load(str(tmp_path)), model)


class Evil:
    """Runs a command when it is unpickled by a careless reader."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.file),)


def test_a_bin_file_with_code_is_refused_and_not_run(
    model: PreTrainedModel, tmp_path: Path
) -> None:
    keep(model, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({"embeddings": Evil(tmp_path / "ran")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model.bin: .*safetensors"):
        pretrained.load(str(tmp_path))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"no pickle", b"\x80\x04]."])
def test_a_broken_bin_file(content: bytes, model: PreTrainedModel, tmp_path: Path) -> None:
    keep(model, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(UserError, match=r"pytorch_model\.bin"):
        pretrained.load(str(tmp_path))


def test_sharded_safetensors(model: PreTrainedModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    tiny.tokenizer().save(str(tmp_path / "tokenizer.json"))
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert same(pretrained.load(str(tmp_path)), model)
    shards[0].unlink()
    with pytest.raises(UserError, match=shards[0].name):
        pretrained.load(str(tmp_path))


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": "../x"}}'])
def test_a_broken_index(index: str, model: PreTrainedModel, tmp_path: Path) -> None:
    keep(model, tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path.parent / "x")
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(UserError, match=r"index\.json"):
        pretrained.load(str(tmp_path))


def test_tokenizer_files(model: PreTrainedModel, tmp_path: Path) -> None:
    keep(model, tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer\.json: not a tokenizer"):
        pretrained.load(str(tmp_path))
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"tokenizer\.json: no such file.*AutoTokenizer"):
        pretrained.load(str(tmp_path))


def _changed(folder: Path, to: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    change(content)
    to.mkdir(exist_ok=True)
    (to / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return to


def _number_texts(content: dict[str, Any], form: str) -> None:
    """The last special token of one form is of a third text."""
    content["post_processor"][form][-1]["SpecialToken"]["type_id"] = 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.update(post_processor=None), "puts no special token before a text"),
        (lambda c: c["model"]["vocab"].update(beyond=99_999), "has a token of number 99,999"),
        (
            lambda c: c["model"].update(unk_token="[NONE]"),
            "cannot read a text|not a tokenizer file",
        ),
        *(
            (partial(_number_texts, form=form), "numbers texts, as those of a pair, up to 2")
            for form in ("single", "pair")
        ),
    ],
)
def test_tokenizers_that_do_not_fit(
    change: Callable[[dict[str, Any]], object], said: str, tiny_folder: Path, tmp_path: Path
) -> None:
    shape = Shape.read(tiny_folder)
    read_tokenizer(tiny_folder, shape)
    with pytest.raises(UserError, match=said):
        read_tokenizer(_changed(tiny_folder, tmp_path / "bad", change), shape)
