"""What encoders bough can run: their shape, read from `config.json`, and their weights' names.

All families here are one network (Vaswani et al., with the norm after each half-layer) under
different names, so a family is data: where its settings and its tensors are called what. No torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StrictBool

from bough.mistakes import Mistake

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
EMBEDDINGS: Names = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "types": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "project": "embeddings_project",
    "relative": "encoder.relative_attention_bias",
}


@dataclass(frozen=True)
class Family:
    """One architecture's names: in `config.json`, and of its tensors."""

    prefix: str  # what checkpoints with a task head on top put before the encoder's names
    layer: Names
    types: bool  # has an embedding for first and second text
    offset: int  # position ids start here
    pooler: bool  # its encoder comes with a pooler
    config: Mapping[str, str]  # our setting -> its key, where it is not BERT's


RENAMED_BY_DISTILBERT = {
    "width": "dim",
    "embedding": "dim",
    "layers": "n_layers",
    "heads": "n_heads",
    "inner": "hidden_dim",
    "activation": "activation",
}
FAMILIES: Mapping[str, Family] = {
    "bert": Family("bert.", BERT_LAYER, True, 0, True, {}),
    "roberta": Family("roberta.", BERT_LAYER, True, 2, True, {}),
    "xlm-roberta": Family("roberta.", BERT_LAYER, True, 2, True, {}),
    "camembert": Family("roberta.", BERT_LAYER, True, 2, True, {}),
    "electra": Family("electra.", BERT_LAYER, True, 0, False, {"embedding": "embedding_size"}),
    "distilbert": Family("distilbert.", DISTILBERT_LAYER, False, 0, False, RENAMED_BY_DISTILBERT),
    "mpnet": Family("mpnet.", MPNET_LAYER, False, 2, True, {}),
}
BERT_CONFIG = {
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "inner": "intermediate_size",
    "activation": "hidden_act",
    "embedding": "hidden_size",
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
}
SIZES = ("embedding", "width", "layers", "heads", "inner", "vocabulary", "positions")
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
# What a shape read from a file is held to.
Size = Annotated[int, Field(ge=1, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]


@dataclass(frozen=True)
class Shape:
    """The sizes of one encoder; enough to build it empty and to count its parameters."""

    family: str
    width: Size
    layers: Size
    heads: Size
    inner: Size
    vocabulary: Size
    positions: Size  # rows of the position table, the unused first ones of some families included
    types: Count  # 0: none
    embedding: Size  # width of the word vectors; differs from `width` in small ELECTRA models
    relative: Count  # buckets of relative positions (MPNet), 0: none
    activation: str
    eps: Annotated[float, Field(ge=0, lt=1)]
    pooler: StrictBool = True  # the pretrained encoder has one

    @property
    def offset(self) -> int:
        return FAMILIES[self.family].offset

    @property
    def longest(self) -> int:
        """How many tokens a text may have."""
        return self.positions - self.offset

    @property
    def embedding_parameters(self) -> int:
        e = self.embedding
        tables = (self.vocabulary + self.positions + self.types) * e + 2 * e
        project = (e + 1) * self.width if e != self.width else 0
        return tables + project + self.relative * self.heads

    @property
    def layer_parameters(self) -> int:
        d, inner = self.width, self.inner
        return 4 * d * (d + 1) + inner * (d + 1) + d * (inner + 1) + 4 * d

    @property
    def pooler_parameters(self) -> int:
        return self.width * (self.width + 1)

    @classmethod
    def read(cls, path: str | Path) -> Shape:
        """From a folder that has a `config.json`, or from that file."""
        file = Path(path)
        file = file / "config.json" if file.is_dir() else file
        try:
            config = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise Mistake(
                f"{file}: no such file; an encoder is a folder with config.json, "
                "tokenizer.json and model.safetensors"
            ) from None
        except (OSError, ValueError) as error:
            raise Mistake(f"{file}: not a readable JSON file ({error})") from None
        if not isinstance(config, dict):
            raise Mistake(f"{file}: expected a JSON object with the encoder's settings")
        return cls.of(config, str(file))

    @classmethod
    def of(cls, config: Mapping[str, Any], where: str = "config") -> Shape:
        name = config.get("model_type")
        if not isinstance(name, str) or name not in FAMILIES:
            raise Mistake(
                f"{where}: bough cannot run an encoder of type {name!r}; "
                f"it can run {', '.join(FAMILIES)}"
            )
        if config.get("position_embedding_type", "absolute") not in ("absolute", None):
            raise Mistake(
                f"{where}: position_embedding_type {config['position_embedding_type']!r} is not "
                "supported; choose an encoder with absolute positions"
            )
        if config.get("is_decoder"):
            raise Mistake(f"{where}: this is a decoder (is_decoder); bough runs encoders")
        family = FAMILIES[name]
        keys = {**BERT_CONFIG, **family.config}

        def whole(key: str, default: int | None = None) -> int:
            value = config.get(key, default)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise Mistake(f"{where}: {key} is {value!r}; expected a positive whole number")
            return value

        eps = config.get("layer_norm_eps", 1e-12)
        if not isinstance(eps, float | int) or not 0 <= eps < 1:
            raise Mistake(f"{where}: layer_norm_eps is {eps!r}; expected a small number")
        shape = cls(
            family=name,
            **{setting: whole(keys[setting]) for setting in SIZES},
            types=whole("type_vocab_size", 2) if family.types else 0,
            relative=whole("relative_attention_num_buckets", 32) if name == "mpnet" else 0,
            activation=config.get(keys["activation"], "gelu"),
            eps=float(eps),
            pooler=family.pooler,
        )
        for _, problem in shape.problems():
            raise Mistake(f"{where}: {problem}")
        return shape

    def problems(self) -> Iterator[tuple[str, str]]:
        """Sizes that do not go together: the one to mend, and a sentence."""
        if self.family not in FAMILIES:
            yield "family", f"{self.family!r} is not one of {', '.join(FAMILIES)}"
            return
        if self.width % self.heads:
            yield "heads", f"width {self.width} is not a multiple of {self.heads} heads"
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            yield "activation", f"activation {self.activation!r} is not one of {known}"

    def config(self) -> dict[str, Any]:
        """The `config.json` of this shape, as transformers writes it."""
        family = FAMILIES[self.family]
        keys = {**BERT_CONFIG, **family.config}
        out: dict[str, Any] = {"model_type": self.family}
        for setting in (*SIZES, "activation"):
            out[keys[setting]] = getattr(self, setting)
        if family.types:
            out["type_vocab_size"] = self.types
        if self.relative:
            out["relative_attention_num_buckets"] = self.relative
        if self.family != "distilbert":
            out["layer_norm_eps"] = self.eps
        if self.offset:
            out |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
        return out
