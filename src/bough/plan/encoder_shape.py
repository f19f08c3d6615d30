"""The sizes of an encoder, read from its `config.json`, and which families bough can run.

All families here are one network (Vaswani et al., with the norm after each half-layer) under
different names, so a family is data: here its settings, in `model.weight_names` its tensors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StrictBool

from bough.errors import UserError, shorten


@dataclass(frozen=True)
class Family:
    """One architecture's settings, and what they are called in its `config.json`."""

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
    "bert": Family(True, 0, True, {}),
    "roberta": Family(True, 2, True, {}),
    "xlm-roberta": Family(True, 2, True, {}),
    "camembert": Family(True, 2, True, {}),
    "electra": Family(True, 0, False, {"embedding": "embedding_size"}),
    "distilbert": Family(False, 0, False, RENAMED_BY_DISTILBERT),
    "mpnet": Family(False, 2, True, {}),
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
# What no encoder comes near: a file that says more is damaged, and nothing is built by it.
LARGEST = {
    "width": 2**14, "embedding": 2**14, "inner": 2**16, "layers": 200, "heads": 2**10,
    "vocabulary": 2**22, "positions": 2**18, "types": 2**10, "relative": 2**12,
}  # fmt: skip
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
            raise UserError(
                f"{file}: no such file; an encoder is a folder with config.json, "
                "tokenizer.json and model.safetensors"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{file}: not a readable JSON file ({error})") from None
        if not isinstance(config, dict):
            raise UserError(f"{file}: expected a JSON object with the encoder's settings")
        return cls.of(config, str(file))

    @classmethod
    def of(cls, config: Mapping[str, Any], where: str = "config") -> Shape:
        name = config.get("model_type")
        if not isinstance(name, str) or name not in FAMILIES:
            raise UserError(
                f"{where}: bough cannot run an encoder of type {shorten(name)}; "
                f"it can run {', '.join(FAMILIES)}"
            )
        if config.get("position_embedding_type", "absolute") not in ("absolute", None):
            raise UserError(
                f"{where}: position_embedding_type {config['position_embedding_type']!r} is not "
                "supported; choose an encoder with absolute positions"
            )
        if config.get("is_decoder"):
            raise UserError(f"{where}: this is a decoder (is_decoder); bough runs encoders")
        family = FAMILIES[name]
        keys = {**BERT_CONFIG, **family.config}

        def whole(key: str, default: int | None = None) -> int:
            value = config.get(key, default)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(
                    f"{where}: {key} is {shorten(value)}; expected a positive whole number"
                )
            return value

        eps = config.get("layer_norm_eps", 1e-12)
        if not isinstance(eps, float | int) or not 0 <= eps < 1:
            raise UserError(f"{where}: layer_norm_eps is {shorten(eps)}; expected a small number")
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
            raise UserError(f"{where}: {problem}")
        return shape

    def problems(self) -> Iterator[tuple[str, str]]:
        """Sizes that do not go together: the one to fix, and a sentence."""
        if self.family not in FAMILIES:
            yield "family", f"{self.family!r} is not one of {', '.join(FAMILIES)}"
            return
        for key, most in LARGEST.items():
            if getattr(self, key) > most:
                yield key, f"{key} is {shorten(getattr(self, key))}; no encoder has over {most:,}"
        if self.longest < 1:
            yield "positions", f"{self.positions} positions leave no room for a token"
        if self.width % self.heads:
            yield "heads", f"width {self.width} is not a multiple of {self.heads} heads"
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            yield "activation", f"activation {shorten(self.activation)} is not one of {known}"

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
