"""The sizes of an encoder, read from its `config.json`, and which families bough can run.

Most families are one network (Vaswani et al., with the norm after each half-layer) under different
names, so a family is data: here its settings, in `model.weight_names` its tensors. ModernBERT and
DeBERTa are other networks: they have further settings (`family_settings`) and modules of their own
(`model.families`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool

from bough.errors import UserError, shorten
from bough.parts_of_speech.taggers import NAME, TAGS
from bough.plan.family_settings import (
    read_deberta,
    read_modernbert,
    write_deberta,
    write_modernbert,
)


@dataclass(frozen=True)
class Family:
    """One architecture's settings, and what they are called in its `config.json`."""

    types: bool  # has an embedding for first and second text
    offset: int  # position ids start here
    pooler: bool  # its encoder comes with a pooler
    config: Mapping[str, str]  # our setting -> its key, where it is not BERT's
    eps: float = 1e-12  # where its config says none
    network: Literal["bert", "modernbert", "deberta"] = "bert"  # whose embeddings and layers it has


RENAMED_BY_DISTILBERT = {
    "width": "dim",
    "embedding": "dim",
    "layers": "n_layers",
    "heads": "n_heads",
    "inner": "hidden_dim",
    "activation": "activation",
}
RENAMED_BY_MODERNBERT = {"activation": "hidden_activation", "eps": "norm_eps"}
FAMILIES: Mapping[str, Family] = {
    "bert": Family(True, 0, True, {}),
    "roberta": Family(True, 2, True, {}),
    "xlm-roberta": Family(True, 2, True, {}),
    "camembert": Family(True, 2, True, {}),
    "electra": Family(True, 0, False, {"embedding": "embedding_size"}),
    "distilbert": Family(False, 0, False, RENAMED_BY_DISTILBERT),
    "mpnet": Family(False, 2, True, {}),
    "deberta-v2": Family(False, 0, False, {}, 1e-7, "deberta"),  # DeBERTa-v3's name, too
    "modernbert": Family(False, 0, False, RENAMED_BY_MODERNBERT, 1e-5, "modernbert"),
}
# Families that could be read and are not, and why.
REFUSED: Mapping[str, str] = {
    "albert": "all its layers are one and the same, so no task could have layers of its own",
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
    "eps": "layer_norm_eps",
}
SIZES = ("embedding", "width", "layers", "heads", "inner", "vocabulary", "positions")
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
# What no encoder comes near: a file that says more is damaged, and nothing is built by it.
LARGEST = {
    "width": 2**14, "embedding": 2**14, "inner": 2**16, "layers": 200, "heads": 2**10,
    "vocabulary": 2**22, "positions": 2**18, "types": 2**10, "relative": 2**12,
    "window": 2**18,
}  # fmt: skip
# What a shape read from a file is held to.
Size = Annotated[int, Field(ge=1, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]
Base = Annotated[float, Field(ge=0, lt=1e12)]


@dataclass(frozen=True)
class Shape:
    """The sizes of one encoder; enough to build it empty and to count its parameters."""

    family: str
    width: Size
    layers: Size
    heads: Size
    inner: Size
    vocabulary: Size
    positions: Size  # rows of the position table, the unused first ones of some families included;
    # or, without a table, how many tokens the encoder was made for
    types: Count  # 0: none
    embedding: Size  # width of the word vectors; differs from `width` in small ELECTRA models
    relative: Count  # buckets of relative positions (MPNet, DeBERTa), 0: none
    activation: str
    eps: Annotated[float, Field(ge=0, lt=1)]
    pooler: StrictBool = True  # the pretrained encoder has one
    window: Count = 0  # tokens, half on either side, that a local layer sees (ModernBERT)
    local: tuple[Size, ...] = ()  # its local layers, counted from 1
    theta: Base = 0.0  # base of its rotary positions, 0: none
    local_theta: Base = 0.0  # the same in local layers
    tagger: Annotated[str, Field(pattern=rf"^({NAME.pattern})?$")] = ""  # whose parts of speech
    # are added to what the embeddings give

    @property
    def network(self) -> str:
        return FAMILIES[self.family].network

    @property
    def offset(self) -> int:
        return FAMILIES[self.family].offset

    @property
    def longest(self) -> int:
        """How many tokens a text may have."""
        return self.positions - self.offset

    @property
    def up(self) -> int:
        """Columns of the feed-forward's first product; its second has `inner` rows."""
        return 2 * self.inner if self.network == "modernbert" else self.inner

    def reach(self, layer: int) -> int | None:
        """How far to either side a token of this layer sees; None: the whole text."""
        return self.window // 2 if layer in self.local else None

    @property
    def embedding_parameters(self) -> int:
        e = self.embedding
        tags = len(TAGS) * self.width if self.tagger else 0
        if self.network == "modernbert":
            return (self.vocabulary + 1) * e + tags
        if self.network == "deberta":
            return (self.vocabulary + self.relative + 4) * e + tags
        tables = (self.vocabulary + self.positions + self.types) * e + 2 * e
        project = (e + 1) * self.width if e != self.width else 0
        return tables + project + self.relative * self.heads + tags

    def layer_parameters(self, layer: int) -> int:
        """Weights and biases of this layer, counted from 1."""
        d, inner = self.width, self.inner
        matrices = 4 * d * d + d * self.up + inner * d
        if self.network == "modernbert":  # no biases; the first layer's input is normed already
            norms = 2 - (layer == 1) + (layer == self.layers)
            return matrices + norms * d
        return matrices + 4 * d + self.up + d + 4 * d

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
        if isinstance(name, str) and name in REFUSED:
            raise UserError(
                f"{where}: bough does not run {name} encoders: {REFUSED[name]}; "
                f"it can run {', '.join(FAMILIES)}"
            )
        if not isinstance(name, str) or name not in FAMILIES:
            raise UserError(
                f"{where}: bough cannot run an encoder of type {shorten(name)}; "
                f"it can run {', '.join(FAMILIES)}"
            )
        family = FAMILIES[name]
        kind = config.get("position_embedding_type", "absolute")
        if family.network == "bert" and kind not in ("absolute", None):
            raise UserError(
                f"{where}: position_embedding_type {kind!r} is not "
                "supported; choose an encoder with absolute positions"
            )
        if config.get("is_decoder"):
            raise UserError(f"{where}: this is a decoder (is_decoder); bough runs encoders")
        keys = {**BERT_CONFIG, **family.config}

        def whole(key: str, default: int | None = None) -> int:
            value = config.get(key, default)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(
                    f"{where}: {key} is {shorten(value)}; expected a positive whole number"
                )
            return value

        eps = config.get(keys["eps"], family.eps)
        if not isinstance(eps, float | int) or not 0 <= eps < 1:
            raise UserError(f"{where}: {keys['eps']} is {shorten(eps)}; expected a small number")
        sizes: dict[str, Any] = {setting: whole(keys[setting]) for setting in SIZES}
        further: dict[str, Any] = {}
        if name == "mpnet":
            further = {"relative": whole("relative_attention_num_buckets", 32)}
        elif family.network == "modernbert":
            further = read_modernbert(config, sizes["layers"], where)
        elif family.network == "deberta":
            further = read_deberta(config, sizes, where)
        shape = cls(
            family=name,
            **sizes,
            types=whole("type_vocab_size", 2) if family.types else 0,
            activation=config.get(keys["activation"], "gelu"),
            eps=float(eps),
            pooler=family.pooler,
            **{"relative": 0} | further,
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
        if self.network == "modernbert":
            yield from self._rotary_problems()
        if self.network == "deberta" and (self.relative < 4 or self.relative % 2):
            yield "relative", f"relative is {self.relative}; expected an even number from 4 on"
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            yield "activation", f"activation {shorten(self.activation)} is not one of {known}"

    def _rotary_problems(self) -> Iterator[tuple[str, str]]:
        if self.width // self.heads % 2:
            yield "heads", f"rotary positions want heads of an even width, not {self.heads} heads"
        for key in ("theta", "local_theta"):
            if getattr(self, key) <= 1:
                yield key, f"{key} is {getattr(self, key)}; expected a number above 1"
        if self.window < 2:
            yield "window", f"window is {self.window}; expected a token to either side"
        if any(layer > self.layers for layer in self.local):
            yield "local", f"local names layer {max(self.local)} of {self.layers}"

    def config(self) -> dict[str, Any]:
        """The `config.json` of this shape, as transformers writes it."""
        family = FAMILIES[self.family]
        keys = {**BERT_CONFIG, **family.config}
        out: dict[str, Any] = {"model_type": self.family}
        for setting in (*SIZES, "activation"):
            out[keys[setting]] = getattr(self, setting)
        if family.types:
            out["type_vocab_size"] = self.types
        if self.family == "mpnet":
            out["relative_attention_num_buckets"] = self.relative
        if self.family != "distilbert":
            out[keys["eps"]] = self.eps
        if self.network == "modernbert":
            out |= write_modernbert(vars(self))
        if self.network == "deberta":
            out |= write_deberta(vars(self))
        if self.offset:
            out |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
        return out
