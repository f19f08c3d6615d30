"""The modules of an encoder's places, by its family."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import nn

from bough.model.families.deberta import DebertaEmbeddings, DisentangledAttention
from bough.model.families.modernbert import ModernBertEmbeddings, ModernBertLayer
from bough.model.families.parts import EmbeddingsModule, LayerModule
from bough.model.transformer import Embeddings, Layer, Pooler
from bough.parts_of_speech.taggers import TAGS
from bough.plan.encoder_shape import Shape

EMBEDDINGS: Mapping[str, Callable[[Shape], EmbeddingsModule]] = {
    "bert": Embeddings,
    "modernbert": ModernBertEmbeddings,
    "deberta": DebertaEmbeddings,
}


def embeddings(shape: Shape) -> EmbeddingsModule:
    module = EMBEDDINGS[shape.network](shape)
    if shape.tagger:
        module.tags = nn.Embedding(len(TAGS), shape.width)
    return module


def layer(shape: Shape, number: int) -> LayerModule:
    """The layer of this number, counted from 1."""
    if shape.network == "modernbert":
        return ModernBertLayer(shape, number)
    if shape.network == "deberta":
        return Layer(shape, DisentangledAttention(shape))
    return Layer(shape)


def trunk(shape: Shape) -> dict[str, nn.Module]:
    """All places of the encoder: "embeddings", "layer 1", ..., "pooler" where it has one."""
    places: dict[str, nn.Module] = {"embeddings": embeddings(shape)}
    places |= {f"layer {n}": layer(shape, n) for n in range(1, shape.layers + 1)}
    return places | ({"pooler": Pooler(shape)} if shape.pooler else {})
