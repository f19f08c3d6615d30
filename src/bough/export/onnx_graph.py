"""The network as ONNX graphs: torch's exporter on `onnx_modules`, then branches and our names.

Every weight is there once, under its cell's name.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from onnx import (
    GraphProto,
    ModelProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)
from onnx.shape_inference import infer_shapes
from torch import Tensor, nn

from bough.export.onnx_branches import branch
from bough.export.onnx_modules import PairsModule, TextsModule
from bough.inference.onnx_names import ASKED, IDS, TYPES, Sizes, pairs_form, texts_form
from bough.model.network import Network

OPSET = 20  # the first with Gelu
Rounding = Callable[[ModelProto], ModelProto]


def texts_graph(
    network: Network, facts: Mapping[str, str], rounding: Rounding | None = None
) -> ModelProto:
    """From token ids to every task's outputs, or to the vectors of twin tasks."""
    module = TextsModule(network)
    ids, types = torch.zeros(2, 3, 5, dtype=torch.long).unbind()
    model = _traced(module, (ids, types), (IDS, TYPES), module.outputs, (0, 1))
    if rounding is not None:
        model = infer_shapes(rounding(model))
    taken, given = texts_form(network)
    needs = [{task, *network.plan.sources(task)} for task in network.tasks]
    branch(
        model.graph,
        {n: frozenset(i for i, need in enumerate(needs) if n.split(".")[0] in need) for n in given},
    )
    kinds = {IDS: TensorProto.INT64, TYPES: TensorProto.INT64, ASKED: TensorProto.BOOL}
    inputs = [
        helper.make_tensor_value_info(n, kind, (taken[n],) if n == ASKED else ("n", taken[n]))
        for n, kind in kinds.items()
    ]
    tagging = [name for name, task in network.tasks.items() if task.kind == "tag"]
    by_token = [n for n in given if n.split(".")[0] in tagging]
    return _finished(model, inputs, given, "bough", facts, by_token)


def pairs_graph(network: Network, facts: Mapping[str, str]) -> ModelProto | None:
    """From the two texts' vectors to the outputs of twin tasks; None if there are none."""
    taken, given = pairs_form(network)
    if not given:
        return None
    module = PairsModule(network)
    vectors = [torch.ones(3, int(width)) for width in taken.values()]
    model = _traced(module, (vectors,), list(taken), module.outputs, (0,))
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n", width))
        for name, width in taken.items()
    ]
    return _finished(model, inputs, given, "bough pairs", facts)


def _traced(
    module: nn.Module,
    example: tuple[Tensor | list[Tensor], ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
    dims: Sequence[int],
) -> ModelProto:
    """The module as torch exports it, with these dimensions of its inputs left open."""
    shape = dict.fromkeys(dims, torch.export.Dim.DYNAMIC)
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            module.eval(),
            example,
            input_names=inputs,
            output_names=outputs,
            opset_version=OPSET,
            dynamo=True,
            dynamic_shapes=tuple(
                [shape] * len(part) if isinstance(part, list) else shape for part in example
            ),
            verbose=False,
        )
    assert program is not None
    model: ModelProto = program.model_proto
    _cut_weights(model.graph)
    _turn_weights(model.graph)
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on libraries that are not there and on torch's own code."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _cut_weights(graph: GraphProto) -> None:
    """Weights that are used in parts are stored in parts: only a stored matrix can be rounded."""
    weights = {weight.name: weight for weight in graph.initializer}
    instead: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "Split" and node.input[0] in weights:
            whole, sizes = (numpy_helper.to_array(weights[name]) for name in node.input)
            names = [f"{node.input[0]}.{number}" for number in range(len(sizes))]
            if names[0] not in instead.values():
                parts = np.split(whole, np.cumsum(sizes)[:-1])
                graph.initializer.extend(map(numpy_helper.from_array, parts, names))
            instead |= dict(zip(node.output, names, strict=True))
    _read_instead(graph, instead)


def _turn_weights(graph: GraphProto) -> None:
    """Matrices are stored as they are multiplied, [in, out].

    onnxruntime's quantiser would turn one for every product that it stands in.
    """
    turned = set()
    for node in graph.node:
        if node.op_type == "Gemm" and helper.get_node_attr_value(node, "transB"):
            del node.attribute[:]
            turned.add(node.input[1])
    for weight in graph.initializer:
        if weight.name in turned:
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).T, weight.name))
    shapes = [value for value in graph.value_info if value.name not in turned]
    del graph.value_info[:]
    graph.value_info.extend(shapes)


def _read_instead(graph: GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]


def _finished(
    model: ModelProto,
    inputs: Sequence[ValueInfoProto],
    outputs: Sizes,
    name: str,
    facts: Mapping[str, str],
    by_token: Collection[str] = (),
) -> ModelProto:
    """The graph with our inputs and outputs, and nothing told of the code it was traced from.

    Outputs `by_token` have a row for each token of a text.
    """
    values = [
        helper.make_tensor_value_info(
            output,
            TensorProto.FLOAT,
            [f"rows of {output}", *(["length"] if output in by_token else []), width],
        )
        for output, width in outputs.items()
    ]
    nodes = model.graph.node
    nodes = [*nodes, *(n for node in nodes for a in node.attribute for n in a.g.node)]
    for node in nodes:
        del node.metadata_props[:]
    read = {value for node in nodes for value in node.input}
    weights = [weight for weight in model.graph.initializer if weight.name in read]
    graph = helper.make_graph(model.graph.node, name, inputs, values, weights)
    out = helper.make_model(
        graph,
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
        producer_name="bough",
    )
    helper.set_model_props(out, dict(facts))
    return out
