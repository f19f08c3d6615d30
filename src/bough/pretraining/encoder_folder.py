"""What a pretraining starts from, and the folder it leaves: an encoder that any recipe may name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from bough.errors import UserError
from bough.files import Content
from bough.inference.load import load_torch
from bough.model import pretrained
from bough.model.encoder_files import read_tensors
from bough.model.families.weight_names import PREFIXES, their_tensors
from bough.model.pretrained import Encoder
from bough.pretraining.masked_lm import HEAD, MaskedLM, read_head, written_head
from bough.recipe.quora_caveat import saw_quora
from bough.runs.run_dir import Run, Writer
from bough.runs.weights_file import write_weights

# Small files beside the weights that say what the encoder is and how it is read.
ALONG = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt",
    "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json",
)  # fmt: skip


def starting_point(name: str, run: str | None) -> tuple[Encoder, dict[str, Tensor] | None]:
    """The encoder, with a run's trunk if one is given, and the checkpoint's own head."""
    encoder = pretrained.load(name)
    head = read_head(read_tensors(pretrained.find(name)), encoder.shape)
    return (encoder if run is None else _with_trunk(encoder, run)), head


def write_files(name: str, writer: Writer) -> None:
    """All of the folder but the weights."""
    folder = pretrained.find(name)
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    # That an encoder has seen Quora is known by its name, and holds for this one, too.
    if not saw_quora([str(config.get("_name_or_path", ""))]):
        config["_name_or_path"] = name
    classes = config.get("architectures")
    if isinstance(classes, list) and classes:
        config["architectures"] = [re.sub(r"(Model|For\w+)$", "ForMaskedLM", str(classes[0]))]
    writer.write_json("encoder/config.json", config)
    pooling = sorted(path.relative_to(folder) for path in folder.glob("*_Pooling/config.json"))
    for file in (*map(Path, ALONG), *pooling):
        if (folder / file).is_file():
            writer.write(f"encoder/{file.as_posix()}", (folder / file).read_bytes())


def weights(model: MaskedLM, encoder: Encoder) -> Content:
    """The trunk, the untouched pooler and the head as the family's checkpoints have them."""
    ours = dict(encoder.tensors)
    for cell in model.plan.users():
        if cell != HEAD:
            module = model.cells[cell.key]
            ours |= {f"{cell.place}.{name}": t for name, t in module.state_dict().items()}
    prefix = PREFIXES[encoder.shape.family]
    theirs = {prefix + name: t for name, t in their_tensors(ours, encoder.shape).items()}
    theirs |= written_head(model.head, encoder.shape)
    return partial(write_weights, tensors=theirs)


def _with_trunk(encoder: Encoder, source: str) -> Encoder:
    """The encoder with the trunk of a finished run in place of its own."""
    run = Run.open(source)
    if not run.finished:
        raise UserError(f"{run.folder}: is not finished; go on with: bough train --resume {source}")
    model = load_torch(run)
    plan = model.plan
    trunk = [c for c in plan.users() if c.place.startswith(("embeddings", "layer "))]
    if len(trunk) > 1 + plan.layers or plan.adapters:
        raise UserError(
            f"{run.folder}: its plan is {plan.text!r}; a pretraining starts from one trunk for all "
            "tasks without adapters, as `full` has it"
        )
    if model.network.shape.tagger:
        raise UserError(
            f"{run.folder}: its trunk sees parts of speech, and a pretraining does not; start from "
            "a run without them"
        )
    theirs = replace(model.network.shape, pooler=encoder.shape.pooler)
    if theirs != encoder.shape or model.tokenizer.get_vocab() != encoder.tokenizer.get_vocab():
        raise UserError(
            f"{run.folder}: was trained on another encoder than {encoder.source!r}; name its own "
            "as `encoder`"
        )
    tensors = dict(encoder.tensors)
    poolers = [cell for cell in plan.users() if cell.place == "pooler"]
    for cell in (*trunk, *(poolers if len(poolers) == 1 and encoder.shape.pooler else ())):
        state = model.network.cells[cell.key].state_dict()
        tensors |= {f"{cell.place}.{name}": tensor for name, tensor in state.items()}
    return replace(encoder, tensors=tensors)
