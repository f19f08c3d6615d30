"""An ONNX graph written down by hand: values are names, an operation appends a node.

Tracing would fix shapes and unroll what the plan decides; writing the nodes keeps every weight once
under its cell's name, and needs nothing but the `onnx` package. A matrix may be stored in int8, its
input then quantised on the fly (dynamic quantisation): that is decided here, in `linear` and `look`
alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = NDArray[Any]

OPSET = 20  # the first with Gelu
IR = 10  # what onnxruntime 1.20 reads
SMALL = 2**14  # numbers; a matrix with fewer stays in fp32: nothing would be gained
STEPS = 64  # int8 weights use 7 of 8 bits: processors without VNNI overflow on all 8


@dataclass
class Block:
    """Nodes in the order of computation: the graph's own, or those of one branch."""

    nodes: list[NodeProto] = field(default_factory=list)
    rounded: dict[str, list[str]] = field(default_factory=dict)  # value -> int8, scale, zero


class Graph:
    """Nodes, weights, inputs and outputs; `model` makes the file's content of them."""

    def __init__(self, int8: bool = False):
        self.int8 = int8
        self.top = Block()
        self.block = self.top
        self.weights: dict[str, TensorProto] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self._number = itertools.count()
        self._kept: dict[tuple[Any, ...], str] = {}

    # Values.

    def input(self, name: str, kind: int, *shape: str | int) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, value: str, width: int) -> None:
        self.block.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"rows of {name}", width])
        )

    def weight(self, name: str, value: Callable[[], Array]) -> str:
        """An initializer; whoever comes with the same name shares it."""
        if name not in self.weights:
            self.weights[name] = numpy_helper.from_array(np.asarray(value(), order="C"), name)
        return name

    def ints(self, *numbers: int) -> str:
        """A constant list of whole numbers."""
        name = "ints " + " ".join(map(str, numbers))
        return self.weight(name, lambda: np.array(numbers, np.int64))

    def whole(self, value: int) -> str:
        return self.weight(f"whole {value}", lambda: np.array(value, np.int64))

    def number(self, value: float) -> str:
        return self.weight(f"number {value!r}", lambda: np.array(value, np.float32))

    # Operations.

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.ops(1, kind, *inputs, **attributes)[0]

    def ops(self, outputs: int, kind: str, *inputs: str, **attributes: Any) -> list[str]:
        """A node with several outputs."""
        names = [f"{kind} {next(self._number)}" for _ in range(outputs)]
        node = helper.make_node(kind, inputs, names, name=names[0], **attributes)
        self.block.nodes.append(node)
        return names

    def once(self, key: tuple[Any, ...], make: Callable[[], str]) -> str:
        """A value that everyone may read, computed before all branches."""
        if key not in self._kept:
            block, self.block = self.block, self.top
            self._kept[key] = make()
            self.block = block
        return self._kept[key]

    def when(
        self, condition: str, make: Callable[[], Sequence[str]], empty: Sequence[Sequence[int]]
    ) -> list[str]:
        """What `make` writes, computed where the condition holds; else zeros of these sizes."""
        chosen = self._branch("then", make)
        zeros = [numpy_helper.from_array(np.zeros(size, np.float32)) for size in empty]
        otherwise = self._branch("else", lambda: [self.op("Constant", value=z) for z in zeros])
        return self.ops(len(empty), "If", condition, then_branch=chosen, else_branch=otherwise)

    def _branch(self, name: str, make: Callable[[], Sequence[str]]) -> GraphProto:
        block, self.block = self.block, Block()
        values = [helper.make_tensor_value_info(v, TensorProto.FLOAT, None) for v in make()]
        made = helper.make_graph(self.block.nodes, f"{name} {next(self._number)}", [], values)
        self.block = block
        return made

    # Products with weights, in int8 where that is wanted.

    def linear(self, x: str, name: str, weight: Array, bias: Array | None) -> str:
        """x W' + b for a matrix x and a weight [out, in], as torch has it."""
        added = [] if bias is None else [self.weight(f"{name}.bias", lambda: bias)]
        if self.int8 and weight.size >= SMALL:
            y = self._int8_product(x, name, weight)
            return self.op("Add", y, *added) if added else y
        return self.op("Gemm", x, self.weight(f"{name}.weight", lambda: weight.T), *added)

    def _int8_product(self, x: str, name: str, weight: Array) -> str:
        scale = rounding(weight)
        matrix = self.weight(f"{name}.int8", lambda: rounded(weight, scale).T)
        steps = self.weight(f"{name}.scale", lambda: scale[:, 0])
        if x not in self.block.rounded:
            self.block.rounded[x] = self.ops(3, "DynamicQuantizeLinear", x)
        small, size, zero = self.block.rounded[x]
        whole = self.op("MatMulInteger", small, matrix, zero)
        y = self.op("Cast", whole, to=TensorProto.FLOAT)
        return self.op("Mul", y, self.op("Mul", size, steps))

    def look(self, numbers: str, name: str, table: Array) -> str:
        """The rows of a table."""
        if not self.int8 or table.size < SMALL:
            return self.op("Gather", self.weight(f"{name}.weight", lambda: table), numbers)
        scale = rounding(table)
        small = self.op(
            "Gather", self.weight(f"{name}.int8", lambda: rounded(table, scale)), numbers
        )
        steps = self.op("Gather", self.weight(f"{name}.scale", lambda: scale), numbers)
        return self.op("Mul", self.op("Cast", small, to=TensorProto.FLOAT), steps)

    def norm(self, x: str, name: str, weight: Array, bias: Array, eps: float) -> str:
        return self.op(
            "LayerNormalization",
            x,
            self.weight(f"{name}.weight", lambda: weight),
            self.weight(f"{name}.bias", lambda: bias),
            axis=-1,
            epsilon=eps,
        )

    def model(self, name: str, facts: Mapping[str, str]) -> ModelProto:
        graph = helper.make_graph(
            self.top.nodes,
            name,
            self.inputs,
            self.outputs,
            list(self.weights.values()),
        )
        made = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR,
            producer_name="bough",
        )
        helper.set_model_props(made, dict(facts))
        return made


def rounding(weight: Array) -> NDArray[np.float32]:
    """Each row's step, [rows, 1], so that its largest number is the last one of the steps."""
    largest = np.abs(weight).max(1, keepdims=True)
    steps: NDArray[np.float32] = (np.where(largest > 0, largest, 1) / STEPS).astype(np.float32)
    return steps


def rounded(weight: Array, scale: NDArray[np.float32]) -> NDArray[np.int8]:
    whole: NDArray[np.int8] = np.rint(weight / scale).astype(np.int8)
    return whole
