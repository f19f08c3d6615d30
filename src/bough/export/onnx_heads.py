"""Heads as ONNX nodes: the same formulas as in `heads`, one function for each module there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor, nn

from bough.export.onnx_nodes import Array, Graph
from bough.model.heads import EDGE, FUSED, Fusion, Head
from bough.recipe.tasks import Task

TINY = 1e-8  # torch's lower bound for a norm in the cosine


def array(tensor: Tensor) -> Array:
    """A weight as numpy has it."""
    value: Array = tensor.detach().float().cpu().numpy()
    return value


def linear(graph: Graph, x: str, name: str, module: nn.Linear) -> str:
    bias = None if module.bias is None else array(module.bias)
    return graph.linear(x, name, array(module.weight), bias)


def norm(graph: Graph, x: str, name: str, module: nn.LayerNorm) -> str:
    return graph.norm(x, name, array(module.weight), array(module.bias), module.eps)


def write_head(
    graph: Graph, name: str, head: Head, vectors: Sequence[str], imported: Sequence[str]
) -> tuple[str, str]:
    """The outputs, and the hidden vector that they were read from."""
    if head.norm is not None:
        vectors = [norm(graph, v, f"{name}.norm", head.norm) for v in vectors]
    if head.project is not None:
        vectors = [linear(graph, v, f"{name}.project", head.project) for v in vectors]
    if head.cosine is not None:
        score = _cosine_head(graph, name, head, *vectors)
        if head.output is not None:
            read = graph.op("Concat", *imported, axis=1)
            score = graph.op("Add", score, linear(graph, read, f"{name}.output", head.output))
        return score, graph.op("Concat", *vectors, axis=1)
    x = _features(graph, head.task, vectors)
    if imported:
        fused = head.fusion
        more = imported if fused is None else [_fused(graph, name, fused, x, imported)]
        x = graph.op("Concat", x, *more, axis=1)
    assert head.hidden is not None
    assert head.output is not None
    for i, dense in enumerate(head.hidden):
        inner = dense.linear
        assert isinstance(inner, nn.Linear)
        x = graph.op("Relu", linear(graph, x, f"{name}.hidden.{i}", inner))
    return linear(graph, x, f"{name}.output", head.output), x


def _cosine_head(graph: Graph, name: str, head: Head, a: str, b: str) -> str:
    module = head.cosine
    assert module is not None
    cos = _cosine(graph, a, b)
    if module.form == "cosine":
        scale = graph.weight(f"{name}.cosine.scale", lambda: array(module.scale))
        bias = graph.weight(f"{name}.cosine.bias", lambda: array(module.bias))
        return graph.op("Add", graph.op("Mul", cos, scale), bias)
    if module.form == "cosine-linear":
        share = graph.op("Div", graph.op("Add", cos, graph.number(1)), graph.number(2))
    else:
        share = graph.op("Sigmoid", cos)
    if not module.as_logit:
        return share
    inside = graph.op("Clip", share, graph.number(EDGE), graph.number(1 - EDGE))
    rest = graph.op("Sub", graph.number(1), inside)
    return graph.op("Log", graph.op("Div", inside, rest))


def _cosine(graph: Graph, a: str, b: str) -> str:
    """[n, d], [n, d] -> [n, 1]."""

    def unit(v: str) -> str:
        size = graph.op("ReduceL2", v, graph.ints(1))
        return graph.op("Div", v, graph.op("Max", size, graph.number(TINY)))

    return graph.op("ReduceSum", graph.op("Mul", unit(a), unit(b)), graph.ints(1))


def _features(graph: Graph, task: Task, vectors: Sequence[str]) -> str:
    if len(vectors) == 1:
        return vectors[0]
    a, b = vectors
    seen: Mapping[str, Callable[[], str]] = {
        "concat": lambda: graph.op("Concat", a, b, axis=1),
        "sum": lambda: graph.op("Add", a, b),
        "product": lambda: graph.op("Mul", a, b),
        "difference": lambda: graph.op("Abs", graph.op("Sub", a, b)),
        "cosine": lambda: _cosine(graph, a, b),
    }
    return graph.op("Concat", *(seen[feature]() for feature in task.features), axis=1)


def _fused(graph: Graph, name: str, module: Fusion, x: str, imported: Sequence[str]) -> str:
    def stacked(kind: str, modules: nn.ModuleList) -> str:
        parts = []
        for i, (value, part) in enumerate(zip(imported, modules, strict=True)):
            assert isinstance(part, nn.Linear)
            y = linear(graph, value, f"{name}.fusion.{kind}.{i}", part)
            parts.append(graph.op("Unsqueeze", y, graph.ints(1)))
        return graph.op("Concat", *parts, axis=1)  # [n, imports, FUSED]

    query = graph.op("Unsqueeze", linear(graph, x, f"{name}.fusion.ask", module.ask), graph.ints(2))
    scores = graph.op("MatMul", stacked("keys", module.keys), query)
    scores = graph.op("Mul", scores, graph.number(FUSED**-0.5))
    shares = graph.op("Softmax", scores, axis=1)  # [n, imports, 1]
    weighted = graph.op("Mul", stacked("values", module.values), shares)
    return graph.op("ReduceSum", weighted, graph.ints(1), keepdims=0)


def write_export(graph: Graph, task: Task, reader: Task, outputs: str, hidden: str) -> str:
    """What `reader` gets of `task`'s head."""
    if reader.reads_as == "hidden":
        return hidden
    if reader.reads_as == "logits":
        return outputs
    if task.kind == "classify" and task.loss_name == "ce":
        return graph.op("Softmax", outputs, axis=1)
    if task.kind == "classify" and task.loss_name in ("bce", "ordinal"):
        return graph.op("Sigmoid", outputs)
    return graph.op("Clip", outputs, graph.number(0), graph.number(1))
