"""Which cell, which gradient: every task's path, alone and as another task's loss sees it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.model.routing import READ, Grad, Routing
from bough.plan.plan import Cell, Plan
from tests.strategies import plans

TASKS = ("a", "b", "c")


def routing(text: str, **poolings: str) -> Routing:
    """Of a plan for three tasks on two layers; the pooler is row 4, after the read-out."""
    plan = Plan.parse(text, TASKS, 2, heads=4, pooled=TASKS)
    learning = {cell for cell in plan.users() if plan.learns(cell)}
    return Routing(plan, dict.fromkeys(TASKS, "pooler") | poolings, learning)


def grads(made: Routing, task: str, consumer: str) -> list[Grad]:
    return [use.grad for use in made.in_training[task, consumer]]


def test_rows_are_the_plans_with_the_read_out_after_the_layers() -> None:
    made = routing("split@1, late:S", b="mean")
    assert made.rows == ["embeddings", "layer 1", "layer 2", READ, "pooler", "late 1"]
    cells = [use.cell for use in made.in_evaluation["b", "b"]]
    assert cells[1:4] == [Cell("layer 1", "all"), Cell("layer 2", "b"), Cell(READ, "mean")]
    assert made.in_evaluation["a", "a"][3].cell == Cell(READ, "cls")


def test_what_an_answer_needs() -> None:
    made = routing("feed:a>b>c")
    assert made.task_uses("a") == (("a", "a"),)
    assert made.task_uses("c") == (("c", "c"), ("a", "c"), ("b", "c"))
    assert made.task_uses("a", "b") == (("a", "a"), ("b", "b"), ("a", "b"))
    assert set(made.in_training) == set(made.in_evaluation) == set(made.task_uses(*TASKS))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("feed:a>b", ["", "", "", "", ""]),  # nothing to stop: the activations are shared
        ("feed:a>b, split@1", ["", "", "stop", "stop", "stop"]),
        ("feed:a>b, row@1", ["", "stop", "stop", "stop", "stop"]),
        ("feed~:a>b", ["", "", "", "", ""]),
        ("feed~:a>b, split@1", ["", "", "through", "", "through"]),
        ("feed~:a>b, row@1", ["", "through", "", "", ""]),  # what both share above learns again
    ],
)
def test_the_gradient_of_a_feed(text: str, wanted: list[Grad]) -> None:
    made = routing(text)
    assert grads(made, "a", "b") == wanted
    assert grads(made, "a", "a") == [""] * 5
    assert {use.grad for use in made.in_evaluation["a", "b"]} == {""}


def test_a_gradient_passes_only_if_every_reading_lets_it() -> None:
    for text, passes in (
        ("feed~:a>b>c", True),
        ("feed:a>b, feed~:b>c", False),
        ("feed~:a>b, feed:b>c", False),
        ("feed:a>b, feed:b>c", False),
    ):
        assert ("through" in grads(routing(f"{text}, separate"), "a", "c")) == passes, text


def test_adapters_of_the_other_task_are_frozen() -> None:
    made = routing("feed~:a>b, pal:4, lora:2/a+b")
    for row in (1, 2):
        used = made.in_training["a", "b"][row].adapters
        assert {cell.name: frozen for cell, frozen in used} == {"a": True, "a+b": False}
        assert not any(frozen for _, frozen in made.in_training["a", "a"][row].adapters)


@pytest.mark.parametrize(
    ("text", "frozen_rows"),
    [("full", 0), ("frozen", 5), ("frozen@1", 2), ("frozen@0", 1), ("frozen, pal:4@2", 2)],
)
def test_frozen_rows_end_where_something_learns(text: str, frozen_rows: int) -> None:
    assert routing(text).frozen_rows == frozen_rows


@given(plans(max_tasks=3, max_layers=3), st.data())
def test_a_loss_moves_cells_of_its_own_path_only(plan: Plan, data: st.DataObject) -> None:
    made = Routing(plan, dict.fromkeys(plan.tasks, "cls"), set(plan.users()))
    task, consumer = data.draw(st.sampled_from(list(made.in_training)))
    users = plan.users()
    path = made.in_training[task, consumer]
    stopped = [use.grad == "stop" for use in path]
    assert stopped == sorted(stopped)  # once stopped, nothing below hears of it
    for use in path:
        if use.cell is not None and use.cell.place != READ and use.grad == "":
            assert consumer in users[use.cell]
        for cell, frozen in use.adapters:
            assert frozen or use.grad == "stop" or consumer in users[cell]
