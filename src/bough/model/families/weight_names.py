"""What each family's checkpoints call their tensors, beside what they are called here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from bough.errors import UserError
from bough.model.families import build
from bough.plan.encoder_shape import FAMILIES, Shape

# Our parameter names -> theirs, without the model's prefix. `{n}` is the layer, counted from 0.
# A tuple is stacked along the first axis: query, key and value become one matrix product.
Names = Mapping[str, str | tuple[str, ...]]

BERT_LAYER: Names = {
    "qkv": (
        "encoder.layer.{n}.attention.self.query",
        "encoder.layer.{n}.attention.self.key",
        "encoder.layer.{n}.attention.self.value",
    ),
    "out": "encoder.layer.{n}.attention.output.dense",
    "norm1": "encoder.layer.{n}.attention.output.LayerNorm",
    "up": "encoder.layer.{n}.intermediate.dense",
    "down": "encoder.layer.{n}.output.dense",
    "norm2": "encoder.layer.{n}.output.LayerNorm",
}
DISTILBERT_LAYER: Names = {
    "qkv": (
        "transformer.layer.{n}.attention.q_lin",
        "transformer.layer.{n}.attention.k_lin",
        "transformer.layer.{n}.attention.v_lin",
    ),
    "out": "transformer.layer.{n}.attention.out_lin",
    "norm1": "transformer.layer.{n}.sa_layer_norm",
    "up": "transformer.layer.{n}.ffn.lin1",
    "down": "transformer.layer.{n}.ffn.lin2",
    "norm2": "transformer.layer.{n}.output_layer_norm",
}
MPNET_LAYER: Names = {
    **BERT_LAYER,
    "qkv": (
        "encoder.layer.{n}.attention.attn.q",
        "encoder.layer.{n}.attention.attn.k",
        "encoder.layer.{n}.attention.attn.v",
    ),
    "out": "encoder.layer.{n}.attention.attn.o",
    "norm1": "encoder.layer.{n}.attention.LayerNorm",
}
DEBERTA_LAYER: Names = {
    **BERT_LAYER,
    "qkv": (
        "encoder.layer.{n}.attention.self.query_proj",
        "encoder.layer.{n}.attention.self.key_proj",
        "encoder.layer.{n}.attention.self.value_proj",
    ),
}
MODERNBERT_LAYER: Names = {
    "qkv": "layers.{n}.attn.Wqkv",
    "out": "layers.{n}.attn.Wo",
    "norm1": "layers.{n}.attn_norm",
    "up": "layers.{n}.mlp.Wi",
    "down": "layers.{n}.mlp.Wo",
    "norm2": "layers.{n}.mlp_norm",
    "final": "final_norm",
}
BERT_EMBEDDINGS: Names = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "types": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "project": "embeddings_project",
    "relative": "encoder.relative_attention_bias",
}
MODERNBERT_EMBEDDINGS: Names = {"words": "embeddings.tok_embeddings", "norm": "embeddings.norm"}
DEBERTA_EMBEDDINGS: Names = {
    "words": "embeddings.word_embeddings",
    "norm": "embeddings.LayerNorm",
    "relative": "encoder.rel_embeddings",
    "relative_norm": "encoder.LayerNorm",
}
POOLER: Names = {"dense": "pooler.dense"}
# What checkpoints with a task head on top put before the encoder's names.
PREFIXES = {
    **{family: f"{family}." for family in FAMILIES},
    **dict.fromkeys(("xlm-roberta", "camembert"), "roberta."),
    "modernbert": "model.",
    "deberta-v2": "deberta.",
}
EMBEDDINGS = dict.fromkeys(FAMILIES, BERT_EMBEDDINGS) | {
    "modernbert": MODERNBERT_EMBEDDINGS,
    "deberta-v2": DEBERTA_EMBEDDINGS,
}
LAYERS = dict.fromkeys(FAMILIES, BERT_LAYER) | {
    "distilbert": DISTILBERT_LAYER,
    "mpnet": MPNET_LAYER,
    "modernbert": MODERNBERT_LAYER,
    "deberta-v2": DEBERTA_LAYER,
}


class Classifier(NamedTuple):
    """How a family's sequence classifier reads [CLS]: its hidden layer, and its tensors' names."""

    activation: str
    hidden: str
    output: str


_ROBERTA = Classifier("tanh", "classifier.dense", "classifier.out_proj")
CLASSIFIERS: Mapping[str, Classifier] = {
    "bert": Classifier("tanh", "bert.pooler.dense", "classifier"),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert", "mpnet"), _ROBERTA),
    "distilbert": Classifier("relu", "pre_classifier", "classifier"),
    "electra": Classifier("gelu", "classifier.dense", "classifier.out_proj"),
}


def tensor_sizes(shape: Shape) -> dict[str, torch.Size]:
    """Our tensors by name, "layer 1.qkv.weight", and their sizes."""
    with build.empty_weights():
        places = build.trunk(shape)
    return {
        f"{place}.{name}": tensor.shape
        for place, module in places.items()
        for name, tensor in module.named_parameters()
    }


def expected(shape: Shape) -> dict[str, tuple[str, ...]]:
    """Our tensor names -> the checkpoint's, several where they are stacked."""
    family = shape.family
    names = {"embeddings": EMBEDDINGS[family], "layer": LAYERS[family], "pooler": POOLER}
    out: dict[str, tuple[str, ...]] = {}
    for ours in tensor_sizes(shape):
        place, part, kind = ours.split(".")
        where, _, number = place.partition(" ")
        theirs = names[where][part]
        stacked = (theirs,) if isinstance(theirs, str) else theirs
        out[ours] = tuple(f"{t.format(n=int(number or 1) - 1)}.{kind}" for t in stacked)
    return out


def their_tensors(ours: Mapping[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    """Our tensors under the checkpoint's names, without the model's prefix; parts are views."""
    out: dict[str, Tensor] = {}
    for name, theirs in expected(shape).items():
        out |= dict(zip(theirs, ours[name].chunk(len(theirs)), strict=True))
    return out


def translate(
    theirs: dict[str, Tensor], shape: Shape, folder: Path
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The checkpoint's tensors under our names, and those that were not needed."""
    prefix = PREFIXES[shape.family]
    # Early BERT checkpoints call a norm's weight gamma and its bias beta.
    aliases = {
        re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name)).removeprefix(prefix): name
        for name in theirs
    }
    sizes = tensor_sizes(shape)
    ours: dict[str, Tensor] = {}
    used: set[str] = set()
    missing: list[str] = []
    for name, sources in expected(shape).items():
        if all(source in aliases for source in sources):
            parts = [theirs[aliases[source]] for source in sources]
            rows, *rest = sizes[name]
            size = [rows // len(parts), *rest]
            for source, part in zip(sources, parts, strict=True):
                if list(part.shape) != size:
                    raise UserError(
                        f"{folder}: tensor {source!r} has shape {list(part.shape)}, "
                        f"but by config.json it has {size}"
                    )
            ours[name] = (torch.cat(parts) if len(parts) > 1 else parts[0]).float()
            used |= {aliases[source] for source in sources}
        elif not name.startswith("pooler."):  # a checkpoint without pooler gets a fresh one
            missing += [source for source in sources if source not in aliases]
    if missing:
        raise UserError(
            f"{folder}: {len(missing)} of the encoder's tensors are missing, first {missing[0]!r}; "
            f"expected the weights of a {shape.family} model"
        )
    # Old checkpoints also have the numbers 0, 1, 2, ... of the positions.
    left = {name for name in set(theirs) - used if not name.endswith("position_ids")}
    return ours, tuple(sorted(left))
