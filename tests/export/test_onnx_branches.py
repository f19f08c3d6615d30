"""Nodes in branches: what nobody asks for does not run."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from bough.export.onnx_branches import branch
from bough.inference.onnx_names import ASKED

USERS = {"a": frozenset({0}), "b": frozenset({1, 2}), "c": frozenset({2})}


def model() -> onnx.ModelProto:
    """x -> all; a and b read it, c reads b; nobody reads `unread`."""
    text = """
        agraph (float[n, 2] x, bool[3] in) => (float[r, 2] a, float[s, 2] b, float[t, 2] c)
        <float[n, 2] all, float[n, 2] deep, float half, float unread> {
            all = Relu(x)
            half = Neg(minus)
            a = Mul(all, half)
            deep = Exp(all)
            b = Mul(deep, half)
            both = Add(deep, b)
            unread = Neg(half)
            c = Mul(both, half)
        }
    """
    graph = onnx.parser.parse_graph(text)
    graph.input[1].name = ASKED
    graph.initializer.append(numpy_helper.from_array(np.array(-0.5, np.float32), "minus"))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made)


def branches(graph: onnx.GraphProto) -> list[list[str]]:
    """The operations of every branch."""
    inner = [a.g for n in graph.node for a in n.attribute if a.name == "then_branch"]
    return [[node.op_type for node in part.node] for part in inner]


def test_nodes_that_the_same_tasks_need_are_one_branch() -> None:
    made = model()
    branch(made.graph, USERS)
    onnx.checker.check_model(made, full_check=True)
    assert branches(made.graph) == [["Exp", "Mul"], ["Mul"], ["Add", "Mul"]]
    outside = [node.op_type for node in made.graph.node]
    assert outside[:2] == ["Relu", "Neg"]  # what all need
    assert outside.count("Neg") == 1  # nobody reads the other one


@pytest.mark.parametrize(
    "asked", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 0, 0)]
)
def test_a_branch_runs_when_one_of_its_tasks_is_asked(asked: tuple[int, int, int]) -> None:
    import onnxruntime

    made = model()
    branch(made.graph, USERS)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    x = np.array([[1, -2], [3, 4], [0, 1]], np.float32)
    values = session.run(["a", "b", "c"], {"x": x, ASKED: np.array(asked, bool)})
    rows = np.maximum(x, 0)
    b = np.exp(rows) / 2
    wanted = [rows / 2, b, (np.exp(rows) + b) / 2]
    for value, whole, users in zip(values, wanted, USERS.values(), strict=True):
        if any(asked[number] for number in users):
            np.testing.assert_allclose(value, whole, rtol=1e-6)
        else:
            assert value.shape == (0, 2)


def test_a_graph_that_all_tasks_need_has_no_branch() -> None:
    made = model()
    branch(made.graph, dict.fromkeys(USERS, frozenset({0})))
    assert "If" not in [node.op_type for node in made.graph.node]
