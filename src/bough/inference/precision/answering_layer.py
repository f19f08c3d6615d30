"""Layers that only answer: the encoder's, each one call of C where the processor has what it takes.

`answer_in` puts them in the place of a network's plain ones. They keep the plain one's weights, by
which the network is saved, and go its way when something is to be learned, and from then on: what
the kernels have is a copy of the weights as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from bough.errors import UserError
from bough.model.attention import Layout, LayoutTensors
from bough.model.dropout import DropoutGenerator
from bough.model.families.parts import LayerAdapters, LayerModule
from bough.model.families.position_bias import distance_bias
from bough.model.network import Network
from bough.model.transformer import Embeddings, Layer, plain_attention
from bough.native.answering import (
    DEPTH,
    LANES,
    LayerWeights,
    NativeEmbeddings,
    NativeLayer,
    Precision,
    Texts,
    WeightMemory,
    available,
)
from bough.native.precision import narrow, resolve
from bough.plan.encoder_shape import Shape

CPU = torch.device("cpu")
_texts: WeakKeyDictionary[LayoutTensors, Texts] = WeakKeyDictionary()


class AnsweringLayer(Layer):
    """A layer whose answers are computed by the kernel of this precision."""

    joins = True  # until something is learned
    plain: Layer

    def __init__(self, layer: Layer, shape: Shape, precision: Precision, memory: WeightMemory):
        nn.Module.__init__(self)
        self.__dict__["plain"] = layer  # beside the modules: its parts are named once
        self.attention, self.heads, self.activation = plain_attention, layer.heads, layer.activation
        for name, part in layer.named_children():
            setattr(self, name, part)
        width = shape.width
        weight, bias = _of(layer.qkv)
        weights = LayerWeights(
            heads=layer.heads,
            queries=(weight[:width], bias[:width]),
            keys_values=(weight[width:], bias[width:]),
            out=_of(layer.out),
            up=_of(layer.up),
            down=_of(layer.down),
            norm1=_of(layer.norm1),
            norm2=_of(layer.norm2),
            eps=shape.eps,
            activation=layer.activation,
        )
        self.native = NativeLayer(weights, precision, memory)

    def forward(
        self,
        h: Tensor,
        layout: Layout,
        dropout: DropoutGenerator | None,
        cls_only: bool = False,
        adapters: LayerAdapters | None = None,
    ) -> Tensor:
        if torch.is_grad_enabled():
            self.joins = False
        if not self.joins or adapters is not None or h.device.type != "cpu":
            return super().forward(h, layout, dropout, cls_only, adapters)
        return self.native(h.contiguous(), texts_of(layout), cls_only)

    def joined(
        self, above: Sequence[LayerModule], h: Tensor, layout: Layout, cls_only: bool
    ) -> Tensor:
        layers = [layer.native for layer in above if isinstance(layer, AnsweringLayer)]
        return self.native(h.contiguous(), texts_of(layout), cls_only, layers)


class AnsweringEmbeddings(Embeddings):
    """Embeddings that are looked up, added and normed by one call."""

    plain: Embeddings

    def __init__(self, plain: Embeddings, shape: Shape):
        nn.Module.__init__(self)
        self.__dict__["plain"] = plain
        self.learned = False
        self.offset = plain.offset
        for name in ("words", "positions", "types", "norm", "project", "relative", "tags"):
            setattr(self, name, getattr(plain, name))
        tables = [(plain.words.weight, 0), (plain.positions.weight, plain.offset)]
        if plain.types is not None:
            tables.append((plain.types.weight, 0))
        self.native = NativeEmbeddings(tables, _of(plain.norm), shape.eps)

    def forward(
        self, ids: Tensor, types: Tensor, positions: Tensor, dropout: DropoutGenerator | None
    ) -> Tensor:
        self.learned = self.learned or torch.is_grad_enabled()
        if self.learned or ids.device.type != "cpu":
            return super().forward(ids, types, positions, dropout)
        if self.types is None:
            return self.native(ids, positions)
        one = self.types.num_embeddings == 1  # which every token gets, of pairs too
        return self.native(ids, positions, torch.zeros_like(types) if one else types)


def _of(part: nn.Linear | nn.LayerNorm) -> tuple[Tensor, Tensor]:
    return part.weight.detach(), part.bias.detach()


def texts_of(layout: Layout) -> Texts:
    """A layout as the kernels read it, made once for all layers."""
    tensors = layout.on(CPU)
    if tensors not in _texts:
        _texts[tensors] = Texts(tensors.lengths, _by_distance(layout), tensors.bias_of)
    return _texts[tensors]


def _by_distance(layout: Layout) -> Tensor | None:
    """The position biases, [tables, heads, 2 longest - 1]; the kernels read whole vectors, so a few
    numbers past the last one must be there."""
    if not layout.biases:
        return None
    reach = max(layout.lengths)
    tables = torch.stack([distance_bias(table, reach) for table in layout.biases]).float()
    room = tables.new_zeros(tables.numel() + LANES)
    return room[: tables.numel()].view(tables.shape).copy_(tables)


def answer_in(network: Network, precision: str, device: torch.device) -> None:
    """Let the network answer in this precision from now on: by the kernels, or by torch."""
    chosen: Precision = "int8" if precision == "int8" else resolve(precision, device)
    lacking = _lacking(network, chosen, device)
    if chosen == "int8" and lacking:
        raise UserError(f"int8: {lacking}; take precision auto, fp32 or bf16")
    for key, cell in network.cells.items():
        if isinstance(cell, AnsweringLayer | AnsweringEmbeddings):
            network.cells[key] = cell.plain
    if lacking:
        assert chosen != "int8"
        network.narrow = narrow(chosen)
        return
    memory = WeightMemory()
    network.narrow = None  # the kernels take fp32, and narrow it themselves
    for key, cell in network.cells.items():
        if isinstance(cell, Layer):
            network.cells[key] = AnsweringLayer(cell, network.shape, chosen, memory)
        elif isinstance(cell, Embeddings) and cell.project is None:
            network.cells[key] = AnsweringEmbeddings(cell, network.shape)


def _lacking(network: Network, precision: Precision, device: torch.device) -> str:
    """Why the kernels cannot answer for the network; empty if they can."""
    shape = network.shape
    layers = [cell for cell in network.cells.values() if isinstance(cell, LayerModule)]
    if device.type != "cpu":
        return f"its kernel is for the cpu, not for {device}"
    if not available(precision):
        return "this machine has no compiler, or its processor no instructions for it"
    if not all(isinstance(c, Layer) and c.attention is plain_attention for c in layers):
        return f"an encoder of the family {shape.family} has no kernel"
    if network.plan.adapters:
        return "layers with adapters have no kernel"
    if shape.width % DEPTH or shape.inner % DEPTH or shape.width // shape.heads % LANES:
        return f"an encoder of width {shape.width} with {shape.heads} heads has no kernel"
    if not shape.activation.startswith("gelu"):
        return f"an encoder with {shape.activation} has no kernel"
    return ""
