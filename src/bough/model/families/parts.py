"""What the forward pass knows of an encoder's embeddings and layers, whatever its family."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from bough.model.attention import Layout
from bough.model.dropout import DropoutGenerator


class LayerAdapters(Protocol):
    """What a layer's adapters add; every method but `parallel` returns its input's shape."""

    def matrix(self, letters: str, x: Tensor, y: Tensor) -> Tensor:
        """`y`, the product of `x` with the matrices of these letters, with what is added to it."""

    def parallel(
        self, h: Tensor, dropout: DropoutGenerator | None, cls_only: bool
    ) -> Tensor | None:
        """What runs parallel to the layer, from the layer's input."""

    def after(self, y: Tensor) -> Tensor:
        """What follows the layer."""


class EmbeddingsModule(nn.Module):
    """Ids, segments and positions, each [tokens] -> [tokens, d]."""

    words: nn.Embedding

    def forward(
        self, ids: Tensor, types: Tensor, positions: Tensor, dropout: DropoutGenerator | None
    ) -> Tensor:
        raise NotImplementedError

    def position_table(self) -> Tensor | None:
        """What all layers above need for relative positions, a row for each bucket of them."""
        return None


class LayerModule(nn.Module):
    """[tokens, d] -> [tokens, d]; with `cls_only` each text's first row alone, [texts, d]."""

    def forward(
        self,
        h: Tensor,
        layout: Layout,
        dropout: DropoutGenerator | None,
        cls_only: bool = False,
        adapters: LayerAdapters | None = None,
    ) -> Tensor:
        raise NotImplementedError
