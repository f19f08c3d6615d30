"""The modules of an encoder's places, by its family."""

from __future__ import annotations

from torch import nn

from bough.model.families.modernbert import ModernBertEmbeddings, ModernBertLayer
from bough.model.families.parts import EmbeddingsModule, LayerModule
from bough.model.transformer import Embeddings, Layer, Pooler
from bough.plan.encoder_shape import Shape


def embeddings(shape: Shape) -> EmbeddingsModule:
    return ModernBertEmbeddings(shape) if shape.network == "modernbert" else Embeddings(shape)


def layer(shape: Shape, number: int) -> LayerModule:
    """The layer of this number, counted from 1."""
    return ModernBertLayer(shape, number) if shape.network == "modernbert" else Layer(shape)


def trunk(shape: Shape) -> dict[str, nn.Module]:
    """All places of the encoder: "embeddings", "layer 1", ..., "pooler" where it has one."""
    places: dict[str, nn.Module] = {"embeddings": embeddings(shape)}
    places |= {f"layer {n}": layer(shape, n) for n in range(1, shape.layers + 1)}
    return places | ({"pooler": Pooler(shape)} if shape.pooler else {})
