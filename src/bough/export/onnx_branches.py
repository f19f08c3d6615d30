"""Nodes of an ONNX graph that only some tasks need run only when one of those is asked.

Nodes that the same tasks need go together into one `If`. What a node needs is needed by all that
need the node, so a branch that runs has all its inputs; where it does not run, its outputs are
there without rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import GraphProto, NodeProto, TypeProto, helper, numpy_helper

from bough.inference.onnx_names import ASKED

Users = frozenset[int]  # numbers of tasks, as they are asked


def branch(graph: GraphProto, users: Mapping[str, Users]) -> None:
    """Put the graph's nodes into branches; `users` has for every output the tasks that need it."""
    every = frozenset[int]().union(*users.values())
    groups: dict[Users, list[NodeProto]] = {every: []}
    for node, needed_by in _needed(graph, users):
        groups.setdefault(needed_by, []).append(node)
    groups.pop(frozenset(), None)
    types = {value.name: value.type for value in (*graph.value_info, *graph.output)}
    out = groups.pop(every)
    for needed_by in sorted(groups, key=len, reverse=True):
        inside = groups[needed_by]
        others = {
            name for key in groups if key != needed_by for n in groups[key] for name in n.input
        }
        given = [name for n in inside for name in n.output if name in others or name in users]
        numbers = f"asked {' '.join(map(str, sorted(needed_by)))}"
        graph.initializer.append(numpy_helper.from_array(np.array(sorted(needed_by)), numbers))
        out += [
            helper.make_node("Gather", [ASKED, numbers], [f"{numbers}: each"]),
            helper.make_node("ReduceMax", [f"{numbers}: each"], [f"{numbers}: any"], keepdims=0),
            helper.make_node(
                "If",
                [f"{numbers}: any"],
                given,
                then_branch=_graph(_renamed(inside, given), given, "then", types),
                else_branch=_graph([_empty(n, types[n]) for n in given], given, "else", types),
            ),
        ]
    del graph.node[:]
    graph.node.extend(out)


def _needed(graph: GraphProto, users: Mapping[str, Users]) -> list[tuple[NodeProto, Users]]:
    """Each node with the tasks that need it."""
    needed_by = dict(users)
    out: list[tuple[NodeProto, Users]] = []
    for node in reversed(graph.node):
        mine = frozenset[int]().union(*(needed_by.get(name, ()) for name in node.output))
        for name in node.input:
            needed_by[name] = needed_by.get(name, frozenset()) | mine
        out.append((node, mine))
    return out[::-1]


def _renamed(nodes: list[NodeProto], given: list[str]) -> list[NodeProto]:
    """Copies of a branch's nodes in which what it gives has a name of the branch's own."""
    out = []
    for node in nodes:
        copy = NodeProto()
        copy.CopyFrom(node)
        for names in (copy.input, copy.output):
            names[:] = [f"{name}: then" if name in given else name for name in names]
        out.append(copy)
    return out


def _empty(name: str, kind: TypeProto) -> NodeProto:
    sizes = [dim.dim_value for dim in kind.tensor_type.shape.dim]  # 0 where it is open
    zeros = np.zeros(sizes, helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))
    value = numpy_helper.from_array(zeros)
    return helper.make_node("Constant", [], [f"{name}: else"], value=value)


def _graph(
    nodes: list[NodeProto], given: list[str], name: str, types: Mapping[str, TypeProto]
) -> GraphProto:
    outputs = [
        helper.make_tensor_value_info(f"{n}: {name}", types[n].tensor_type.elem_type, None)
        for n in given
    ]
    return helper.make_graph(nodes, name, [], outputs)
