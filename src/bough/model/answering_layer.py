"""Layers that only answer: the encoder's, each one call of C where the processor has what it takes.

`answer_natively` puts them in a network's place of the plain ones. They keep the plain one's weights,
by which the network is saved, and go its way wherever the kernel does not: with adapters, or when
something is to be learned.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bough.model.attention import Layout, position_bucket
from bough.model.dropout import DropoutGenerator
from bough.model.network import Network
from bough.model.transformer import ACTIVATION, Layer, LayerAdapters
from bough.native.answering import DEPTH, LANES, LayerWeights, NativeLayer, Precision, Texts
from bough.plan.encoder_shape import Shape


class AnsweringLayer(Layer):
    """A layer whose answers are computed by the kernel of this precision."""

    def __init__(self, layer: Layer, shape: Shape, precision: Precision):
        nn.Module.__init__(self)
        self.heads, self.activation = layer.heads, layer.activation
        for name, part in layer.named_children():
            setattr(self, name, part)
        width = shape.width
        weight, bias = layer.qkv.weight.detach(), layer.qkv.bias.detach()
        weights = LayerWeights(
            layer.heads,
            (weight[:width], bias[:width]),
            (weight[width:], bias[width:]),
            *((part.weight.detach(), part.bias.detach()) for part in (layer.out, layer.up)),
            (layer.down.weight.detach(), layer.down.bias.detach()),
            *((part.weight.detach(), part.bias.detach()) for part in (layer.norm1, layer.norm2)),
            shape.eps,
            layer.activation,
        )
        self.native = NativeLayer(weights, precision)

    def forward(
        self,
        h: Tensor,
        layout: Layout,
        dropout: DropoutGenerator | None,
        cls_only: bool = False,
        adapters: LayerAdapters | None = None,
    ) -> Tensor:
        if torch.is_grad_enabled() or adapters is not None or h.device.type != "cpu":
            return super().forward(h, layout, dropout, cls_only, adapters)
        return self.native(h.contiguous(), texts_of(layout), cls_only)


def texts_of(layout: Layout) -> Texts:
    """A layout as the kernel reads it, made once."""
    tensors = layout.on(torch.device("cpu"))
    if not layout.biases:
        return Texts(tensors.lengths)
    reach = max(layout.lengths)
    distance = torch.arange(reach - 1, -reach, -1)  # of a query behind its key
    tables = [table[position_bucket(distance, len(table))].T for table in layout.biases]
    stacked = torch.stack(tables).float()
    # The kernel reads whole vectors: a few numbers past the last one must be there.
    room = stacked.new_zeros(stacked.numel() + LANES)
    bias = room[: stacked.numel()].view(stacked.shape).copy_(stacked)
    return Texts(tensors.lengths, bias, tensors.bias_of)


def fits(shape: Shape) -> bool:
    """Whether the kernels take an encoder of these sizes."""
    return (
        shape.width % DEPTH == 0
        and shape.inner % DEPTH == 0
        and shape.width // shape.heads % LANES == 0
        and shape.activation.startswith("gelu")
    )


def answer_natively(network: Network, precision: Precision) -> None:
    """From now on the network's layers answer in this precision."""
    for key, cell in network.cells.items():
        if isinstance(cell, Layer):
            network.cells[key] = AnsweringLayer(cell, network.shape, precision)
