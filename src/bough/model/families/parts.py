"""What the forward pass knows of an encoder's embeddings and layers, whatever its family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor, nn

from bough.model.attention import Layout
from bough.model.dropout import DropoutGenerator
from bough.native.linear import RowLinear


class LayerAdapters(Protocol):
    """What a layer's adapters add. Neighbouring texts with the same adapters are a segment."""

    def matrix(self, letters: str, x: Tensor, y: Tensor) -> Tensor:
        """`y`, the product of `x` with the matrices of these letters, with what is added to it."""

    def parallel(
        self, h: Tensor, dropout: DropoutGenerator | None, cls_only: bool
    ) -> Tensor | None:
        """What runs parallel to the layer, from the layer's input."""

    def after(self, y: Tensor) -> Tensor:
        """What follows the layer."""

    def each(self, letters: str, x: Tensor, y: Tensor) -> list[Tensor]:
        """As `matrix`, of rows that are no text's own: for each segment."""

    def segment_of(self) -> list[int]:
        """Of each text."""


Attention = Callable[
    [
        Tensor,
        Tensor | None,
        RowLinear,
        Layout,
        int,
        DropoutGenerator | None,
        LayerAdapters | None,
    ],
    Tensor,
]
"""Rows, the first ones if only they ask, matrices, layout, heads, dropout, adapters -> mixtures."""


class EmbeddingsModule(nn.Module):
    """Ids, segments and positions, each [tokens] -> [tokens, d]."""

    words: nn.Embedding
    relative: nn.Embedding | None  # for relative positions, a row for each bucket of distances
    tags: nn.Embedding | None  # of parts of speech: added to what comes out

    def __init__(self) -> None:
        super().__init__()
        self.register_module("tags", None)

    def forward(
        self, ids: Tensor, types: Tensor, positions: Tensor, dropout: DropoutGenerator | None
    ) -> Tensor:
        raise NotImplementedError

    def position_table(self) -> Tensor:
        """What the layers above are given of `relative`, where there is one."""
        raise NotImplementedError


class LayerModule(nn.Module):
    """[tokens, d] -> [tokens, d]; with `cls_only` each text's first row alone, [texts, d]."""

    joins = False  # whether layers like it go together in one call, where nothing is learned

    def forward(
        self,
        h: Tensor,
        layout: Layout,
        dropout: DropoutGenerator | None,
        cls_only: bool = False,
        adapters: LayerAdapters | None = None,
    ) -> Tensor:
        raise NotImplementedError

    def joined(
        self, above: Sequence[LayerModule], h: Tensor, layout: Layout, cls_only: bool
    ) -> Tensor:
        """Through this layer and those above at once."""
        raise NotImplementedError
