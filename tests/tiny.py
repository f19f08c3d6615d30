"""Small random encoders, networks and batches, made without transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn

from bough.data.checked_rows import Rows
from bough.data.examples import Examples
from bough.data.packing import Pack
from bough.model.attention import Layout
from bough.model.dropout import DropoutGenerator
from bough.model.families import build
from bough.model.families.parts import EmbeddingsModule
from bough.model.network import Network, plan_of
from bough.model.pretrained import Encoder
from bough.plan.encoder_pooling import EncoderPooling
from bough.plan.encoder_shape import FAMILIES, Shape
from bough.plan.plan import Plan
from bough.recipe.tasks import Task

SENTENCES = """
    the old tree is green and the leaf was not bright
    who does grow a bough over one root or under two
    where does the film fall but what is very good on three in bad slow
"""
WORDS = sorted(set(SENTENCES.split()))
VOCABULARY = len(WORDS) + 4


def tokenizer(family: str = "bert") -> Tokenizer:
    """Words to ids, with the special tokens and segment ids of the family."""
    roberta = FAMILIES[family].offset == 2
    start, end, pad, unknown = (
        ("<s>", "</s>", "<pad>", "<unk>") if roberta else ("[CLS]", "[SEP]", "[PAD]", "[UNK]")
    )
    specials = [start, pad, end, unknown] if roberta else [pad, unknown, start, end]
    ids = {word: i for i, word in enumerate([*specials, *WORDS])}
    made = Tokenizer(models.WordLevel(ids, unk_token=unknown))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} {end} $B {end}" if roberta else f"{start} $A {end} $B:1 {end}:1",
        special_tokens=[(start, ids[start]), (end, ids[end])],
    )
    return made


def shape(family: str = "bert", **changes: Any) -> Shape:
    config: dict[str, Any] = {
        "family": family,
        "width": 16,
        "layers": 2,
        "heads": 4,
        "inner": 24,
        "vocabulary": VOCABULARY,
        "positions": 40,
        "types": 2 if FAMILIES[family].types else 0,
        "embedding": 16,
        "relative": {"mpnet": 32, "deberta-v2": 8}.get(family, 0),
        "activation": "gelu",
        "eps": 1e-12,
        "pooler": FAMILIES[family].pooler,
    }
    if family == "modernbert":  # a window of two tokens to either side, in the second layer
        config |= {"window": 4, "local": (2,), "theta": 160.0, "local_theta": 10.0}
    return Shape(**config | changes)


@cache
def encoder(family: str = "bert", seed: int = 0, **changes: Any) -> Encoder:
    """A random encoder whose weights are large enough for differences to show."""
    sizes = shape(family, **changes)
    places = build.trunk(sizes)
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        f"{place}.{name}": torch.randn(tensor.shape, generator=generator) * 0.2
        + (1.0 if ("norm" in name or "final" in name) and name.endswith("weight") else 0.0)
        for place, module in places.items()
        for name, tensor in module.state_dict().items()
    }
    pooling = EncoderPooling("pooler", "a test's")
    return Encoder(sizes, tensors, tokenizer(family), (), "tiny", pooling)


def trunk(source: Encoder) -> nn.ModuleDict:
    """The encoder's places as modules: "embeddings", "layer 1", ..., "pooler" where it has one."""
    places = build.trunk(source.shape)
    for place, module in places.items():
        module.load_state_dict(source.weights(place))
    return nn.ModuleDict(places)


def encode(places: nn.ModuleDict, pack: Pack, cls_only: bool = False) -> Tensor:
    """The plain pass through all layers: [tokens, d], or with `cls_only` [texts, d]."""
    embeddings = places["embeddings"]
    assert isinstance(embeddings, EmbeddingsModule)
    tables = () if embeddings.relative is None else (embeddings.position_table(),)
    layout = Layout(pack.lengths, tables)
    h: Tensor = embeddings(*pack.tokens.unbind(1), None)
    layers = [module for place, module in places.items() if place.startswith("layer")]
    for layer in layers[:-1]:
        h = layer(h, layout, None)
    out: Tensor = layers[-1](h, layout, None, cls_only)
    return out


def pack(lengths: Sequence[int], seed: int = 0, pairs: bool = False) -> Pack:
    """Random sequences of these lengths; with `pairs` the second half is the second segment."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, VOCABULARY, (sum(lengths),), generator=generator)
    positions = torch.cat([torch.arange(n) for n in lengths])
    types = torch.cat([(torch.arange(n) >= n / 2) & pairs for n in lengths]).long()
    return Pack(torch.stack([ids, types, positions], 1), tuple(lengths))


def task(**settings: Any) -> Task:
    """A task with three classes on one text, or `number=True`; `twin` or `joint` for a pair."""
    base: dict[str, Any] = {"kind": "classify", "labels": ("x", "y", "z")}
    if settings.pop("number", False):
        base = {"kind": "regress", "range": (0, 5)}
    base |= {"text": "text", "pooling": "pooler"}
    if settings.pop("twin", False):
        base |= {"text": ("one", "two"), "pair": "twin"}
    if settings.pop("joint", False):
        base |= {"text": ("one", "two")}
    return Task(**base | settings)


def network(
    plan: str | Plan,
    tasks: Mapping[str, Task],
    source: Encoder | None = None,
    seed: int = 0,
    stir: float = 0.0,
) -> Network:
    """A network for the plan; `stir` adds noise, so that fresh adapters do something."""
    source = encoder() if source is None else source
    made = plan if isinstance(plan, Plan) else plan_of(plan, tasks, source.shape)
    model = Network.pretrained(made, tasks, source, seed)
    if stir:
        add_noise(model, stir, seed + 1)
    return model


@torch.no_grad()
def add_noise(module: nn.Module, scale: float, seed: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)


def dropout(seed: int = 0, rate: float = 0.3) -> DropoutGenerator:
    return DropoutGenerator(torch.Generator().manual_seed(seed), rate)


def rows(texts: list[tuple[str, ...]], labels: list[Any] | None = None) -> Rows:
    numbers = list(range(len(texts)))
    return Rows(texts, labels, [str(n) for n in numbers], "memory", numbers)


def examples() -> dict[str, Examples]:
    """Three examples of a task on one text, of a twin and of a joint one, which has no labels."""
    words = tokenizer()
    sentences: list[tuple[str, ...]] = [("a tree",), ("who",), ("the leaf is green",)]
    pairs: list[tuple[str, ...]] = [("a", "b"), ("the root", "is old"), ("what", "where does it")]
    single, twin, joint = task(), task(twin=True, number=True), task(joint=True)
    return {
        "single": Examples.of(single, rows(sentences, [2, 0, 1]), words, 40),
        "twin": Examples.of(twin, rows(pairs, [0.5, 4.75, 3.0]), words, 40),
        "joint": Examples.of(joint, rows(pairs), words, 40),
    }


def unpacked(pack: Pack) -> list[list[list[int]]]:
    return [part.T.tolist() for part in pack.tokens.split(pack.lengths)]
