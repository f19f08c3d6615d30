"""The modules of an encoder's places, by its family."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

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
DRAWS = {"normal_", "uniform_", "kaiming_uniform_"}  # by which torch's modules begin


class _NothingDrawn(TorchFunctionMode):
    """To draw numbers on no device, torch would import its compiler, which takes a second."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__name__", "") in DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def empty_weights() -> Iterator[None]:
    """Modules that are made within have sizes and no numbers: those come from elsewhere."""
    with torch.device("meta"), _NothingDrawn():
        yield


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
