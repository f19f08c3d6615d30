"""What the graphs take and give for tasks that read each other."""

from __future__ import annotations

from bough.inference.onnx_names import joined, pairs_form, texts_form, twins, wanted
from bough.model.network import Network
from tests import tiny

TASKS = {
    "a": tiny.task(),
    "b": tiny.task(joint=True, number=True),
    "c": tiny.task(twin=True, labels=("no", "yes")),
    "d": tiny.task(twin=True, number=True),
}


def network(plan: str) -> Network:
    return tiny.network(plan, TASKS)


def test_twin_tasks_give_vectors_and_what_they_read_of_single_texts() -> None:
    taken, given = texts_form(network("feed:a>c>d"))
    assert taken == {"in.ids": "length", "in.types": "length", "in.asked": 4}
    vectors = {f"{task}.vector": 16 for task in TASKS}
    assert given == vectors | {"a": 3, "b": 1, "c.reads.a": 3, "d.reads.a": 3}
    assert joined(network("feed:a>c>d"), "d") == {"d.vector": 16, "d.reads.a": 3}


def test_the_pairs_graph_takes_both_sides() -> None:
    taken, given = pairs_form(network("feed:a>c"))
    sides = {"c.vector": 16, "c.reads.a": 3, "d.vector": 16}
    assert taken == {f"{n}.{side}": k for n, k in sides.items() for side in ("first", "second")}
    assert given == {"c": 1, "d": 1}


def test_what_an_answer_needs() -> None:
    chain = network("feed:a>c>d")
    assert twins(chain, "d") == ["c", "d"]
    assert wanted(chain, ["a", "b"]) == ["a", "b"]
    assert wanted(chain, ["d", "c"]) == ["c.vector", "c.reads.a", "d.vector", "d.reads.a"]
