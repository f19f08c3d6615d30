"""The network as an ONNX graph: the same rows, cells and streams that `walk` passes.

The graph takes one *bucket*: texts of equal length, `ids` and `types` [n, length], so there is no
padding and no mask. Tasks walk together for as long as the plan lets them, so the shared prefix is
there once; rows that only some tasks need stand in a branch that runs when one of them is `asked`.

A twin pair's two texts differ in length and come in two buckets: for those tasks the graph gives
each text's vector, and a second small graph, `pairs`, has their heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, TensorProto
from torch import Tensor, nn

from bough import adapters
from bough.attention import bucket
from bough.heads import FUSED, Cosine, Dense, Fusion, Head
from bough.network import Network
from bough.onnx_nodes import Array, Graph
from bough.plan import Cell
from bough.tasks import Task
from bough.trunk import Embeddings, Layer, Pooler
from bough.walk import READ, Use

IDS, TYPES, ASKED = "ids", "types", "asked"
SIDES = ("first", "second")  # the two texts of a twin pair


def vector_name(task: str) -> str:
    """The output with each text's vector as this task's head reads it."""
    return f"{task}.vector"


def read_name(reader: str, source: str) -> str:
    """The output with what a twin task reads of a task on single texts."""
    return f"{reader}.{source}"


def twins(network: Network, task: str) -> list[str]:
    """The twin tasks, sources first, whose heads this twin task's answer needs."""
    return [t for t in (*network.plan.sources(task), task) if network.tasks[t].twin]


def text_reads(network: Network, task: str) -> list[str]:
    """The sources on single texts that this task's own head reads."""
    sources = (read.source for read in network.plan.reading(task))
    return [source for source in sources if not network.tasks[source].paired]


def text_outputs(network: Network, task: str) -> list[str]:
    """The outputs of the texts' graph that this task's answer needs."""
    if not network.tasks[task].twin:
        return [task]
    return [
        name
        for t in twins(network, task)
        for name in (vector_name(t), *(read_name(t, s) for s in text_reads(network, t)))
    ]


class Texts:
    """Writes the graph from token ids to outputs, or to the vectors of twin tasks."""

    def __init__(self, network: Network, int8: bool):
        self.network = network
        self.plan, self.tasks, self.shape = network.plan, network.tasks, network.shape
        self.graph = Graph(int8)
        self.uses = {t: network.route.plain[t, t] for t in self.plan.tasks}
        self.vectors: dict[str, str] = {}
        self.heads: dict[str, tuple[str, str]] = {}  # outputs, hidden

    def write(self, facts: dict[str, str]) -> ModelProto:
        graph = self.graph
        graph.input(IDS, TensorProto.INT64, "n", "length")
        graph.input(TYPES, TensorProto.INT64, "n", "length")
        graph.input(ASKED, TensorProto.BOOL, len(self.tasks))
        self._walk(0, self.plan.tasks, IDS)
        for task in self.plan.order():
            graph.output(vector_name(task), self.vectors[task], self.shape.width)
            if self.tasks[task].twin:
                for source in text_reads(self.network, task):
                    value = self._export(source, task)
                    width = self._width(source, task)
                    graph.output(read_name(task, source), value, width)
            else:
                self.heads[task] = self._head(task)
                graph.output(task, self.heads[task][0], self.tasks[task].outputs)
        return graph.model("bough", facts)

    # The rows.

    def _walk(self, row: int, tasks: tuple[str, ...], state: str) -> None:
        """The rows from `row` on for tasks that stand together at `state`."""
        end = row
        while end < len(self.uses[tasks[0]]) and len({self.uses[t][end] for t in tasks}) == 1:
            end += 1

        def pass_rows() -> str:
            value = state
            for number, use in enumerate(self.uses[tasks[0]][row:end], row):
                value = self._pass(number, use, tasks, value)
            return value

        heavy = row <= self.plan.layers  # embeddings or layers: worth a branch
        value = self._where_needed(tasks, pass_rows, end) if heavy and end > row else pass_rows()
        if end == len(self.uses[tasks[0]]):
            self.vectors |= dict.fromkeys(tasks, value)
            return
        parts: dict[Use, list[str]] = {}
        for task in tasks:
            parts.setdefault(self.uses[task][end], []).append(task)
        for part in parts.values():
            self._walk(end, tuple(part), value)

    def _where_needed(self, tasks: Sequence[str], write: Callable[[], str], end: int) -> str:
        wanted = {t for t in self.tasks if {t, *self.plan.sources(t)} & set(tasks)}
        if wanted == set(self.tasks):
            return write()
        # No texts of one token, or no vectors: what follows runs on nothing.
        read = end > 1 + self.plan.layers
        empty = (0, self.shape.width) if read else (0, 1, self.shape.width)
        return self.graph.when(self._asked(wanted), write, empty)

    def _asked(self, tasks: set[str]) -> str:
        """Whether any of these tasks is asked."""
        numbers = [i for i, task in enumerate(self.tasks) if task in tasks]
        graph = self.graph

        def write() -> str:
            flags = graph.op("Cast", ASKED, to=TensorProto.INT32)
            chosen = graph.op("Gather", flags, graph.ints(*numbers))
            most = graph.op("ReduceMax", chosen, keepdims=0)
            return graph.op("Cast", most, to=TensorProto.BOOL)

        return graph.once(("asked", *numbers), write)

    def _pass(self, row: int, use: Use, tasks: Sequence[str], state: str) -> str:
        graph = self.graph
        if use.cell is None:
            return state
        if use.cell.place == READ:
            if use.cell.name == "mean":
                return graph.op("ReduceMean", state, graph.ints(1), keepdims=0)
            return graph.op("Squeeze", self._first(state), graph.ints(1))
        module, key = self.network.cells[use.cell.key], use.cell.key
        if isinstance(module, Embeddings):
            return self._embed(key, module)
        if isinstance(module, Layer):
            last = row == self.plan.layers
            firsts = last and all(self.tasks[t].pooling != "mean" for t in tasks)
            return LayerWriter(self, row, use, self._bias(tasks[0]), firsts).write(module, state)
        if isinstance(module, Pooler):
            return graph.op("Tanh", self.linear(state, f"{key}.dense", module.dense))
        assert isinstance(module, Dense)
        return graph.op("Relu", self.linear(state, f"{key}.linear", module.linear))

    def _embed(self, key: str, module: Embeddings) -> str:
        graph = self.graph
        x = graph.look(IDS, f"{key}.words", array(module.words.weight))
        places = array(module.positions.weight)[self.shape.offset :]
        table = graph.weight(f"{key}.positions", lambda: places)
        x = graph.op("Add", x, graph.op("Slice", table, graph.ints(0), self._length()))
        if module.types is not None:
            kinds = array(module.types.weight)
            if len(kinds) > 1:
                x = graph.op("Add", x, graph.look(TYPES, f"{key}.types", kinds))
            else:
                x = graph.op("Add", x, graph.weight(f"{key}.types", lambda: kinds[0]))
        x = self.norm(x, f"{key}.norm", module.norm)
        return x if module.project is None else self.linear(x, f"{key}.project", module.project)

    def _length(self) -> str:
        """The texts' length, as a list of one."""
        graph = self.graph
        return graph.once(("length",), lambda: graph.op("Shape", IDS, start=1, end=2))

    def _bias(self, task: str) -> str | None:
        """MPNet's bias by distance, [1, heads, length, length], of this task's embeddings."""
        cell = self.uses[task][0].cell
        assert cell is not None
        relative = self.network.cells[cell.key].relative
        if relative is None:
            return None
        assert isinstance(relative, nn.Embedding)
        graph, longest = self.graph, self.shape.longest
        distances = torch.arange(1 - longest, longest)
        by_distance = array(relative.weight)[bucket(distances, relative.num_embeddings)]

        def write() -> str:
            length = graph.op("Squeeze", self._length(), graph.ints(0))
            at = graph.op("Range", graph.whole(0), length, graph.whole(1))
            down = graph.op("Unsqueeze", at, graph.ints(1))
            distance = graph.op("Add", graph.op("Sub", down, at), graph.ints(longest - 1))
            table = graph.weight(f"{cell.key}.relative", lambda: by_distance)
            found = graph.op("Gather", table, distance)
            return graph.op(
                "Unsqueeze", graph.op("Transpose", found, perm=[2, 0, 1]), graph.ints(0)
            )

        return graph.once(("bias", cell.key), write)

    def _first(self, state: str) -> str:
        """Each text's first token: [n, length, d] -> [n, 1, d]."""
        graph = self.graph
        return graph.op("Slice", state, graph.ints(0), graph.ints(1), graph.ints(1))

    # Heads.

    def _head(self, task: str) -> tuple[str, str]:
        head = self.network.cells[Cell("head", task).key]
        assert isinstance(head, Head)
        sources = [read.source for read in self.plan.reading(task)]
        writer = HeadWriter(self.graph, task, head)
        if not sources:
            return writer.write([self.vectors[task]], [])
        # A reader that nobody asks may have no vectors while its sources have: then it must wait.
        both: list[str] = []

        def write() -> str:
            both[:] = writer.write([self.vectors[task]], [self._export(s, task) for s in sources])
            return self.graph.op("Concat", *both, axis=1)

        width = self.tasks[task].outputs
        wanted = {t for t in self.tasks if task in (t, *self.plan.sources(t))}
        joined = self.graph.when(self._asked(wanted), write, (0, width + 1))
        outputs = self._columns(joined, 0, width)
        return outputs, self._columns(joined, width, 2**31)

    def _columns(self, x: str, first: int, last: int) -> str:
        graph = self.graph
        return graph.op("Slice", x, graph.ints(first), graph.ints(last), graph.ints(1))

    def _export(self, source: str, reader: str) -> str:
        return export(self.graph, self.tasks[source], self.tasks[reader], *self.heads[source])

    def _width(self, source: str, reader: str) -> int:
        at = [read.source for read in self.plan.reading(reader)].index(source)
        sizes = self.network.imports[reader]
        before = [s for s, _ in _by_source(self.network, reader)]
        del before
        return sizes[sum(_times(self.network, reader)[:at])]

    # Modules of torch.

    def linear(self, x: str, name: str, module: nn.Linear) -> str:
        return linear(self.graph, x, name, module)

    def norm(self, x: str, name: str, module: nn.LayerNorm) -> str:
        return norm(self.graph, x, name, module)
