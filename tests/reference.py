"""Small random models of transformers, the reference for every family, and their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from bough.model.families.weight_names import expected
from bough.model.pretrained import Encoder
from tests import tiny

SIZES = {
    "vocab_size": tiny.VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 48,
    "initializer_range": 0.3,  # large enough for every part to matter
}
DISTILBERT_SIZES = {
    "vocab_size": tiny.VOCABULARY,
    "dim": 32,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 48,
    "max_position_embeddings": 48,
    "initializer_range": 0.3,
}
ROBERTA = {**SIZES, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
MODERNBERT = {
    **SIZES,
    "local_attention": 8,  # less than the texts are long
    "global_rope_theta": 160.0,
    "local_rope_theta": 10.0,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
    "cls_token_id": 2,
    "sep_token_id": 3,
}
DEBERTA = {
    **SIZES,
    "initializer_range": 0.2,  # three products make a score: the last bits show sooner
    "relative_attention": True,
    "position_buckets": 8,  # less than the texts are long
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "type_vocab_size": 0,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", SIZES),
    "bert relu, one segment": ("bert", {**SIZES, "hidden_act": "relu", "type_vocab_size": 1}),
    "bert gelu_new": ("bert", {**SIZES, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3}),
    "roberta": ("roberta", {**ROBERTA, "type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "xlm-roberta": ("xlm-roberta", {**ROBERTA, "type_vocab_size": 1}),
    "camembert": ("camembert", {**ROBERTA, "type_vocab_size": 1}),
    "electra": ("electra", {**SIZES, "embedding_size": 32}),
    "electra, small embeddings": ("electra", {**SIZES, "embedding_size": 16}),
    "distilbert": ("distilbert", DISTILBERT_SIZES),
    "mpnet": ("mpnet", ROBERTA),
    "modernbert": ("modernbert", {**MODERNBERT, "num_hidden_layers": 4}),  # the last sees all
    "deberta-v3": ("deberta-v2", DEBERTA),
    "modernbert, a local layer last": ("modernbert", MODERNBERT),
}


def reference(family: str, settings: dict[str, Any]) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **settings)
    model: transformers.PreTrainedModel = transformers.AutoModel.from_config(config)
    model.eval()
    with torch.no_grad():  # norms and biases start trivial, which would hide a mix-up
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 or "relative" in name:
                parameter.add_(torch.randn(parameter.shape) * 0.3)
    return model


def keep(model: transformers.PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    tiny.tokenizer(model.config.model_type).save(str(folder / "tokenizer.json"))
    return folder


def same(encoder: Encoder, model: nn.Module) -> bool:
    theirs = model.state_dict()
    return all(
        torch.equal(encoder.tensors[name], torch.cat([theirs[s] for s in sources]))
        for name, sources in expected(encoder.shape).items()
    )
