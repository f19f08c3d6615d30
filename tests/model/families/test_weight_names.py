"""Every tensor of a checkpoint finds its place, under old names, too, or is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, BertForSequenceClassification, PreTrainedModel

from bough.errors import UserError
from bough.model import pretrained
from bough.model.families.weight_names import expected
from bough.plan.encoder_shape import Shape
from tests.reference import MODELS, SIZES, keep, reference, same


@pytest.mark.parametrize("kind", MODELS)
def test_every_tensor_is_used_or_named_and_counted(kind: str, tmp_path: Path) -> None:
    family, settings = MODELS[kind]
    model = reference(family, settings)
    encoder = pretrained.load(str(keep(model, tmp_path)))
    used = {source for sources in expected(encoder.shape).values() for source in sources}
    assert used | set(encoder.unused) == set(load_file(tmp_path / "model.safetensors"))
    assert not encoder.unused
    shape = encoder.shape
    layers = sum(shape.layer_parameters(n) for n in range(1, shape.layers + 1))
    counted = shape.embedding_parameters + layers
    counted += shape.pooler_parameters if shape.pooler else 0
    assert counted == sum(p.numel() for p in model.parameters())
    assert counted == sum(t.numel() for t in encoder.tensors.values())


def test_a_checkpoint_with_a_head_and_old_names(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = AutoConfig.for_model("bert", **{**SIZES, "num_hidden_layers": 1})
    model = BertForSequenceClassification(config)
    keep(model, tmp_path)
    file = tmp_path / "model.safetensors"
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in load_file(file).items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(48)
    save_file(old, file)
    encoder = pretrained.load(str(tmp_path))
    assert same(encoder, model.bert)
    assert encoder.unused == (
        "classifier.bias",
        "classifier.weight",
    )


def test_a_checkpoint_without_pooler_is_one_without_pooler(
    model: PreTrainedModel, tmp_path: Path
) -> None:
    keep(model, tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({n: t for n, t in load_file(file).items() if "pooler" not in n}, file)
    encoder = pretrained.load(str(tmp_path))
    assert not encoder.weights("pooler")
    assert not encoder.shape.pooler
    assert encoder.shape == replace(Shape.read(tmp_path), pooler=False)


def test_missing_and_wrong_tensors_are_refused(model: PreTrainedModel, tmp_path: Path) -> None:
    keep(model, tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    gone = "encoder.layer.0.attention.self.key.weight"
    save_file({n: t for n, t in tensors.items() if n != gone}, file)
    with pytest.raises(UserError, match=f"1 of .* missing, first '{gone}'"):
        pretrained.load(str(tmp_path))
    save_file(tensors | {"pooler.dense.weight": torch.zeros(3, 3)}, file)
    with pytest.raises(UserError, match=r"pooler.dense.weight.*\[3, 3\].*\[32, 32\]"):
        pretrained.load(str(tmp_path))
    file.write_bytes(b"nonsense")
    with pytest.raises(UserError, match="cannot be read as safetensors"):
        pretrained.load(str(tmp_path))
    file.unlink()
    with pytest.raises(UserError, match=r"no model\.safetensors"):
        pretrained.load(str(tmp_path))
