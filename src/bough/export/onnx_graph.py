"""The network as an ONNX graph: the same rows, cells and streams that `PackedForward` passes.

The graph takes one *bucket*: texts of equal length, `ids` and `types` [n, length], so there is no
padding and no mask. Between attentions the states are one matrix, a row per token, [n length, d].
Tasks walk together for as long as the plan lets them, so the shared prefix is there once; rows that
only some tasks need stand in a branch that runs when one of them is `asked`.

A twin pair's two texts differ in length and come in two buckets: for those tasks the graph gives
each text's vector, and a second small graph has the heads that join them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from onnx import ModelProto, TensorProto
from torch import nn

from bough.export.onnx_heads import array, linear, norm, write_export, write_head
from bough.export.onnx_nodes import Array, Graph
from bough.inference.onnx_names import ASKED, IDS, SIDES, TYPES, joined, read_name, vector_name
from bough.model.adapters import PAL, Bottleneck, LoRA, LowRank, Narrow
from bough.model.attention import position_bucket
from bough.model.heads import Dense, Head, hidden_size
from bough.model.network import Network
from bough.model.routing import READ, RowUse
from bough.model.transformer import Embeddings, Layer, Pooler
from bough.plan.plan import Cell


def write_texts(network: Network, facts: Mapping[str, str], int8: bool = False) -> ModelProto:
    """From token ids to every task's outputs, or to the vectors of twin tasks."""
    return _Texts(network, int8).write(facts)


def write_pairs(network: Network, facts: Mapping[str, str]) -> ModelProto | None:
    """From the two texts' vectors to the outputs of twin tasks; None if there are none."""
    graph = Graph()
    heads: dict[str, tuple[str, str]] = {}
    tasks = network.tasks
    for task in network.plan.order():
        if not tasks[task].twin:
            continue
        for name, width in joined(network, task).items():
            for side in SIDES:
                graph.input(f"{name}.{side}", TensorProto.FLOAT, "n", width)
        imported: list[str] = []
        for read in network.plan.reading(task):
            source = read.source
            if tasks[source].paired:
                imported.append(write_export(graph, tasks[source], tasks[task], *heads[source]))
            else:
                imported += [f"{read_name(task, source)}.{side}" for side in SIDES]
        vectors = [f"{vector_name(task)}.{side}" for side in SIDES]
        heads[task] = write_head(graph, *_head_of(network, task), vectors, imported)
        graph.output(task, heads[task][0], tasks[task].outputs)
    return graph.model("bough pairs", facts) if heads else None


def _head_of(network: Network, task: str) -> tuple[str, Head]:
    key = Cell("head", task).key
    head = network.cells[key]
    assert isinstance(head, Head)
    return key, head


class _Texts:
    def __init__(self, network: Network, int8: bool):
        self.network = network
        self.plan, self.tasks, self.shape = network.plan, network.tasks, network.shape
        self.graph = Graph(int8)
        self.uses = {t: network.routing.in_evaluation[t, t] for t in self.plan.tasks}
        self.vectors: dict[str, str] = {}
        self.firsts: set[str] = set()  # states that have each text's first token alone
        self.heads: dict[str, tuple[str, str]] = {}  # outputs, hidden

    def write(self, facts: Mapping[str, str]) -> ModelProto:
        graph = self.graph
        graph.input(IDS, TensorProto.INT64, "n", "length")
        graph.input(TYPES, TensorProto.INT64, "n", "length")
        graph.input(ASKED, TensorProto.BOOL, len(self.tasks))
        self._walk(0, self.plan.tasks, IDS)
        for task in self.plan.order():
            graph.output(vector_name(task), self.vectors[task], self.shape.width)
            if not self.tasks[task].twin:
                self.heads[task] = self._head(task)
                graph.output(task, self.heads[task][0], self.tasks[task].outputs)
                continue
            widths = joined(self.network, task)
            for read in self.plan.reading(task):
                name = read_name(task, read.source)
                if name in widths:
                    graph.output(name, self._export(read.source, task), widths[name])
        return graph.model("bough", facts)

    # The rows.

    def _walk(self, row: int, tasks: tuple[str, ...], state: str) -> None:
        """The rows from `row` on for tasks that stand together at `state`."""
        rows = len(self.uses[tasks[0]])
        end = row
        while end < rows and len({self.uses[task][end] for task in tasks}) == 1:
            end += 1

        def pass_rows() -> list[str]:
            value = state
            for number, use in enumerate(self.uses[tasks[0]][row:end], row):
                value = self._pass(number, use, tasks, value)
            return [value]

        if row <= self.plan.layers and end > row:  # embeddings or layers: worth a branch
            (value,) = self._where_asked(tasks, pass_rows, [(0, self.shape.width)])
        else:
            (value,) = pass_rows()
        if end == rows:
            self.vectors |= dict.fromkeys(tasks, value)
            return
        parts: dict[RowUse, list[str]] = {}
        for task in tasks:
            parts.setdefault(self.uses[task][end], []).append(task)
        for part in parts.values():
            self._walk(end, tuple(part), value)

    def _where_asked(
        self, tasks: Iterable[str], write: Callable[[], list[str]], empty: Sequence[Sequence[int]]
    ) -> list[str]:
        """What `write` writes, in a branch unless every question needs one of these tasks.

        Where nobody asks there are no texts, and what follows runs on nothing.
        """
        graph = self.graph
        wanted = [i for i, t in enumerate(self.tasks) if {t, *self.plan.sources(t)} & {*tasks}]
        if len(wanted) == len(self.tasks):
            return write()

        def any_asked() -> str:
            chosen = graph.op("Gather", ASKED, graph.ints(*wanted))
            most = graph.op("ReduceMax", graph.op("Cast", chosen, to=TensorProto.INT32), keepdims=0)
            return graph.op("Cast", most, to=TensorProto.BOOL)

        return graph.when(graph.once(("asked", *wanted), any_asked), write, empty)

    def _pass(self, row: int, use: RowUse, tasks: Sequence[str], state: str) -> str:
        graph = self.graph
        if use.cell is None:
            return state
        if use.cell.place == READ:
            if use.cell.name == "mean":
                texts = _by_text(graph, state, self.shape.width)
                return graph.op("ReduceMean", texts, graph.ints(1), keepdims=0)
            return state if state in self.firsts else _first(graph, state, self.shape.width)
        key = use.cell.key
        module = self.network.cells[key]
        if isinstance(module, Embeddings):
            return self._embed(key, module)
        if isinstance(module, Layer):
            last = row == self.plan.layers
            firsts = last and all(self.tasks[task].pooling != "mean" for task in tasks)
            beside = [(cell.key, self.network.cells[cell.key]) for cell, _ in use.adapters]
            bias = self._bias(tasks[0])
            layer = _Layer(
                graph, key, row, beside, self.shape.activation, bias, firsts, self.shape.width
            )
            out = layer.write(module, state)
            self.firsts |= {out} if firsts else set()
            return out
        if isinstance(module, Pooler):
            return graph.op("Tanh", linear(graph, state, f"{key}.dense", module.dense))
        assert isinstance(module, Dense)
        return graph.op("Relu", linear(graph, state, f"{key}.linear", module.linear))

    def _embed(self, key: str, module: Embeddings) -> str:
        graph = self.graph
        x = graph.look(IDS, f"{key}.words", array(module.words.weight))
        places = graph.weight(
            f"{key}.positions", lambda: array(module.positions.weight)[self.shape.offset :]
        )
        x = graph.op("Add", x, graph.op("Slice", places, graph.ints(0), _length(graph)))
        if module.types is not None:
            kinds = array(module.types.weight)
            if len(kinds) > 1:
                kind = graph.look(TYPES, f"{key}.types", kinds)
            else:  # one segment vector goes to every token, of pairs too
                kind = graph.weight(f"{key}.types", lambda: kinds[0])
            x = graph.op("Add", x, kind)
        x = norm(graph, x, f"{key}.norm", module.norm)
        x = graph.op("Reshape", x, graph.ints(-1, module.norm.normalized_shape[0]))
        return x if module.project is None else linear(graph, x, f"{key}.project", module.project)

    def _bias(self, task: str) -> str | None:
        """MPNet's bias by distance, [1, heads, length, length], of this task's embeddings."""
        cell = self.uses[task][0].cell
        assert cell is not None
        key = cell.key
        relative = self.network.cells[key].relative
        if relative is None:
            return None
        assert isinstance(relative, nn.Embedding)
        table, graph, longest = array(relative.weight), self.graph, self.shape.longest

        def by_distance() -> Array:
            distances = torch.arange(1 - longest, longest)
            value: Array = table[position_bucket(distances, len(table)).numpy()]
            return value

        def write() -> str:
            length = graph.op("Squeeze", _length(graph), graph.ints(0))
            at = graph.op("Range", graph.whole(0), length, graph.whole(1))
            distance = graph.op("Sub", graph.op("Unsqueeze", at, graph.ints(1)), at)
            number = graph.op("Add", distance, graph.ints(longest - 1))
            found = graph.op("Gather", graph.weight(f"{key}.relative", by_distance), number)
            found = graph.op("Transpose", found, perm=[2, 0, 1])
            return graph.op("Unsqueeze", found, graph.ints(0))

        return graph.once(("bias", key), write)

    # Heads.

    def _head(self, task: str) -> tuple[str, str]:
        key, head = _head_of(self.network, task)
        sources = [read.source for read in self.plan.reading(task)]

        def write() -> list[str]:
            imported = [self._export(source, task) for source in sources]
            return [*write_head(self.graph, key, head, [self.vectors[task]], imported)]

        if not sources:
            outputs, hidden = write()
        else:  # a reader that nobody asks may have no vectors while its sources have
            hidden_width = hidden_size(
                self.tasks[task], self.shape.width, self.network.imports[task]
            )
            empty = [(0, self.tasks[task].outputs), (0, hidden_width)]
            outputs, hidden = self._where_asked([task], write, empty)
        return outputs, hidden

    def _export(self, source: str, reader: str) -> str:
        return write_export(self.graph, self.tasks[source], self.tasks[reader], *self.heads[source])


class _Layer:
    """One layer with its adapters: [n length, d] -> the same, or [n, d] with `firsts`."""

    def __init__(
        self,
        graph: Graph,
        key: str,
        row: int,
        beside: Sequence[tuple[str, nn.Module]],
        activation: str,
        bias: str | None,
        firsts: bool,
        width: int,
    ):
        self.graph, self.key, self.row, self.firsts = graph, key, row, firsts
        self.adapters, self.activation = beside, activation
        if bias is not None and firsts:
            bias = graph.op("Slice", bias, graph.ints(0), graph.ints(1), graph.ints(2))
        self.bias = bias
        self.width = width

    def write(self, module: Layer, h: str) -> str:
        graph, key = self.graph, self.key
        d = self.width
        x = _first(graph, h, d) if self.firsts else h
        weights, biases = array(module.qkv.weight), array(module.qkv.bias)

        def part(letter: str, rows: str) -> str:
            own = slice("qkv".index(letter) * d, ("qkv".index(letter) + 1) * d)
            y = graph.linear(rows, f"{key}.{letter}", weights[own], biases[own])
            return self._changed(letter, rows, y)

        def matrix(letter: str, name: str, linear_: nn.Linear, rows: str) -> str:
            return self._changed(letter, rows, linear(graph, rows, f"{key}.{name}", linear_))

        q, k, v = part("q", x), part("k", h), part("v", h)
        mixed = _attend(graph, q, k, v, module.heads, d, self.bias, self.firsts)
        m = graph.op("Add", matrix("o", "out", module.out, mixed), x)
        m = norm(graph, m, f"{key}.norm1", module.norm1)
        inner = self._activate(matrix("i", "up", module.up, m))
        y = graph.op("Add", matrix("f", "down", module.down, inner), m)
        for name, adapter in self.adapters:
            added = self._beside(name, adapter, h)
            y = y if added is None else graph.op("Add", y, added)
        out = norm(graph, y, f"{key}.norm2", module.norm2)
        after = [self._after(name, adapter, out) for name, adapter in self.adapters]
        for added in after:
            out = out if added is None else graph.op("Add", out, added)
        return out

    def _activate(self, x: str) -> str:
        if self.activation == "relu":
            return self.graph.op("Relu", x)
        form = "none" if self.activation == "gelu" else "tanh"
        return self.graph.op("Gelu", x, approximate=form)

    # Adapters.

    def _changed(self, letter: str, x: str, y: str) -> str:
        """`y`, the product of `x` with the matrix of this letter, with what is added to it."""
        for name, adapter in self.adapters:
            if isinstance(adapter, LoRA) and letter in adapter.matrices:
                y = self.graph.op("Add", y, self._narrow(name, f"{self.row}{letter}", adapter, x))
        return y

    def _beside(self, name: str, adapter: nn.Module, h: str) -> str | None:
        graph = self.graph
        if isinstance(adapter, LowRank):
            x = _first(graph, h, self.width) if self.firsts else h
            return self._narrow(name, f"{self.row}", adapter, x)
        if not isinstance(adapter, PAL):
            return None
        small = linear(graph, h, f"{name}.encode", adapter.encode)
        qkv = adapter.qkv[f"{self.row}"]
        assert isinstance(qkv, nn.Linear)
        s = qkv.in_features
        asking = _first(graph, small, s) if self.firsts else small
        weights = array(qkv.weight)
        q, k, v = (
            graph.linear(rows, f"{name}.{self.row}.{letter}", weights[i * s : (i + 1) * s], None)
            for i, (letter, rows) in enumerate((("q", asking), ("k", small), ("v", small)))
        )
        mixed = _attend(graph, q, k, v, adapter.heads, s, None, self.firsts)
        out = linear(graph, mixed, f"{name}.decode", adapter.decode)
        return graph.op("Gelu", out)

    def _after(self, name: str, adapter: nn.Module, y: str) -> str | None:
        if isinstance(adapter, Bottleneck):
            return self._narrow(name, f"{self.row}", adapter, y)
        return None

    def _narrow(self, name: str, part: str, adapter: LoRA | LowRank | Bottleneck, x: str) -> str:
        graph, module = self.graph, adapter.parts[part]
        assert isinstance(module, Narrow)
        small = linear(graph, x, f"{name}.{part}.down", module.down)
        small = graph.op("Gelu", small) if module.nonlinear else small
        return linear(graph, small, f"{name}.{part}.up", module.up)


def _attend(
    graph: Graph, q: str, k: str, v: str, heads: int, width: int, bias: str | None, firsts: bool
) -> str:
    """Each token's mixture of its text; with `firsts` there is one question per text."""
    size = width // heads

    def apart(x: str, order: list[int], single: bool = False) -> str:
        if single:
            x = graph.op("Reshape", x, graph.ints(-1, 1, heads, size))
        else:
            x = _by_text(graph, x, heads, size)
        return graph.op("Transpose", x, perm=order)

    scores = graph.op("MatMul", apart(q, [0, 2, 1, 3], firsts), apart(k, [0, 2, 3, 1]))
    scores = graph.op("Mul", scores, graph.number(size**-0.5))
    scores = scores if bias is None else graph.op("Add", scores, bias)
    shares = graph.op("Softmax", scores, axis=-1)
    mixed = graph.op("MatMul", shares, apart(v, [0, 2, 1, 3]))
    return graph.op(
        "Reshape", graph.op("Transpose", mixed, perm=[0, 2, 1, 3]), graph.ints(-1, width)
    )


def _length(graph: Graph) -> str:
    """The texts' length, as a list of one."""
    return graph.once(("length",), lambda: graph.op("Shape", IDS, start=1, end=2))


def _by_text(graph: Graph, x: str, *sizes: int) -> str:
    """[n length, d] -> [n, length, sizes]."""

    def shape() -> str:
        return graph.op("Concat", graph.ints(-1), _length(graph), graph.ints(*sizes), axis=0)

    return graph.op("Reshape", x, graph.once(("by text", *sizes), shape))


def _first(graph: Graph, state: str, width: int) -> str:
    """Each text's first token: [n length, d] -> [n, d]."""
    return graph.op("Gather", _by_text(graph, state, width), graph.whole(0), axis=1)
