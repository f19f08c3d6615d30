"""The plan: its line, its table and its questions."""

from __future__ import annotations

import doctest
import re
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings

from bough.errors import UserError
from bough.plan.plan import Cell, Plan, Read
from tests.plan.parsed import TASKS, parse
from tests.strategies import plans

many = settings(max_examples=200, deadline=None)


def test_the_table_is_printed() -> None:
    plan = parse("split@4/para+sts, late:SI, pal:64, feed:sst>sts")
    assert str(plan).splitlines() == [
        "split@4/para+sts, late:SI, pal:64, feed:sst>sts",
        "                 sst  para      sts",
        "embeddings       all  all       all",
        "layer 1-4        all  all       all",
        "layer 5-6        sst  para+sts  para+sts",
        "pooler           sst  para+sts  para+sts",
        "late 1           all  all       all",
        "late 2           sst  para      sts",
        "pal 64 @ 1-6     sst  para      sts",
        "reads            -    -         sst",
    ]


def test_the_table_says_what_is_fixed() -> None:
    lines = str(parse("frozen@2, feed~:sst>para")).splitlines()
    assert [line for line in lines if line.endswith("fixed")] == [
        "embeddings       all  all   all  fixed",
        "layer 1-2        all  all   all  fixed",
    ]
    assert "layer 3-6        all  all   all" in lines
    assert "reads            -    ~sst  -" in lines


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("split@6", "full"),
        ("full, late:ISS", "late:ISS"),
        ("split@sst:4,para:4,sts:4", "split@4"),
        ("split@sst:2", "split@2/para+sts"),
        ("split@2/sst", "split@2"),
        ("row@5-6", "split@4"),
        ("row@embeddings, split@0", "separate"),
        ("split@sts:4 , sst:2,para:4", "split@sst:2,para:4,sts:4"),
        ("frozen, feed : sst > para, pal: 64, late:SI", "late:SI, pal:64, feed:sst>para, frozen"),
        ("frozen@6", "frozen"),
        ("pal:64x8", "pal:64"),
        ("pal:64x4", "pal:64x4"),
        ("pal:64@1-6/sst/para/sts", "pal:64"),
        ("pal:64/sts, pal:64/para+sst", "pal:64/sst+para/sts"),
        ("pal:64@5-5/all", "pal:64@5/all"),
        ("lora:8:vq", "lora:8"),
        ("bottleneck:4, lora:8:fq, pal:8", "pal:8, lora:8:qf, bottleneck:4"),
        ("feed:sst>para, feed:sst>sts, feed:para>sts", "feed:sst>para>sts"),
        ("feed:sts>para>sst", "feed:sts>para>sst"),
        ("separate, row@2/para+sts", "separate, row@2/para+sts"),
        ("split@3, row@1-2/para+sts", "split@3, row@1-2/para+sts"),
    ],
)
def test_one_line_per_plan(text: str, canonical: str) -> None:
    assert parse(text).text == canonical
    assert parse(canonical) == parse(text)


def test_equal_plans() -> None:
    assert parse("split@6") == parse("full") == parse("row@3/all")
    assert parse("split@0") != parse("separate")
    assert hash(parse("split@6")) == hash(parse("full"))


def test_one_task_shares_with_itself() -> None:
    plans_of_one = {parse(text, ("sst",)) for text in ("full", "separate", "split@3", "row@2")}
    assert len(plans_of_one) == 1
    assert plans_of_one.pop().layer == (("all",),) * 6
    assert parse("late:SI, pal:8", ("sst",)).text == "late:SS, pal:8"


@settings(max_examples=400, deadline=None)
@given(plans())
def test_the_line_goes_round(plan: Plan) -> None:
    for heads in (plan.heads, 12):
        again = Plan.parse(plan.text, plan.tasks, plan.layers, heads=heads, pooled=plan.pooled)
        assert again == plan
        assert again.text == plan.text or heads != plan.heads


@settings(max_examples=100, deadline=None)
@given(plans(pooled=True))
def test_the_table_goes_round(plan: Plan) -> None:
    rows = {}
    for label, names in plan.table():
        if label.split()[0] in ("embeddings", "layer", "pooler"):
            rows[label] = dict(zip(plan.tasks, names, strict=True))
    late = [dict(zip(plan.tasks, names, strict=True)) for names in plan.late]
    again = parse({"rows": rows, "late": late, "frozen": plan.frozen}, plan.tasks, plan.layers)
    assert again.rows() == plan.rows()
    assert again.frozen == plan.frozen


# The three questions.


def test_path() -> None:
    plan = parse("split@4/para+sts, late:SI, pal:64@5-6/sts, lora:8@6/all")
    steps = plan.path("sts")
    assert [step.cell.key for step in steps] == [
        "embeddings/all",
        *(f"layer{n}/all" for n in range(1, 5)),
        "layer5/para+sts",
        "layer6/para+sts",
        "pooler/para+sts",
        "late1/all",
        "late2/sts",
    ]
    pal, lora = plan.adapters
    assert steps[5].adapters == ((pal, Cell("pal:64@5-6", "sts")),)
    assert steps[6].adapters == (
        (pal, Cell("pal:64@5-6", "sts")),
        (lora, Cell("lora:8:qv@6", "all")),
    )
    assert plan.path("sst")[5].adapters == ()


def test_tasks_without_the_pooler_go_round_it() -> None:
    plan = parse("full, late:S", pooled=["sst", "sts"])
    assert plan.pooler == ("sst+sts", None, "sst+sts")
    assert plan.pooled == ("sst", "sts")
    assert "pooler" not in [step.cell.place for step in plan.path("para")]
    assert plan.users()[Cell("pooler", "sst+sts")] == ("sst", "sts")
    assert "pooler" not in [label for label, _ in parse("full", pooled=[]).table()]


def test_a_head_has_one_user() -> None:
    users = parse("feed~:sst>para>sts").users()
    assert [users[Cell("head", task)] for task in TASKS] == [(task,) for task in TASKS]


def test_a_head_that_its_readers_move_is_theirs_too() -> None:
    plan = parse("feed~0.1:sst>para>sts")
    users = plan.users()
    assert [users[Cell("head", task)] for task in ("sst", "para", "sts")] == [
        ("sst", "para", "sts"),
        ("para", "sts"),
        ("sts",),
    ]
    assert dict(plan.table())["reads"] == (None, "~0.1:sst", "~0.1:sst+~0.1:para")


@pytest.mark.parametrize("share", ["0.0001", "0.9999", "1", "0.5"])
def test_a_share_goes_round(share: str) -> None:
    assert parse(f"feed~{share}:sst>para").text == f"feed~{share}:sst>para"


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("feed~0.5:sst>para, feed~0.1:para>sts", 0.1),  # the least on the way
        ("feed~0.5:sst>para>sts", 0.5),
        ("feed~0.5:sst>para, feed~0.1:para>sts, feed~0.3:sst>sts", 0.3),  # of the better way
        ("feed~:sst>para, feed~0.1:para>sts", 0.0),  # the head between passes it on, unmoved
        ("feed~0.5:sst>para, feed:para>sts", 0.0),
    ],
)
def test_how_far_a_reader_moves_what_its_source_reads(text: str, share: float) -> None:
    assert parse(text).moves("sts", "sst") == share


@many
@given(plans())
def test_users_are_those_who_walk_there(plan: Plan) -> None:
    walked: dict[Cell, list[str]] = {
        Cell("head", head): [t for t in plan.tasks if t == head or plan.moves(t, head)]
        for head in plan.tasks
    }
    for task in plan.tasks:
        path = plan.path(task)
        cells = [step.cell for step in path] + [c for step in path for _, c in step.adapters]
        for cell in dict.fromkeys(cells):
            walked.setdefault(cell, []).append(task)
    assert plan.users() == {cell: tuple(tasks) for cell, tasks in walked.items()}
    keys = [cell.key for cell in walked]
    assert len(set(keys)) == len(keys)
    assert not any(re.search(r"[.\s]", key) for key in keys)


@many
@given(plans())
def test_shared_activations_are_computed_once(plan: Plan) -> None:
    """Against the rule as the page states it: equal names from the top down."""
    rows = plan.rows()
    assert plan.distinct_steps([]) == 0
    asked = {*plan.tasks[:2], *(s for t in plan.tasks[:2] for s in plan.sources(t))}
    steps = 0
    for n in range(len(rows)):
        seen = set()
        for i, task in enumerate(plan.tasks):
            if task in asked and rows[n][1][i] is not None:
                above: list[object] = [names[i] for _, names in rows[: n + 1]]
                above += [a.names[i] for a in plan.adapters if a.first <= n]
                seen.add(tuple(above))
        steps += len(seen)
    assert plan.distinct_steps(plan.tasks[:2]) == steps


def test_distinct_steps() -> None:
    assert parse("full").distinct_steps(TASKS) == 8
    assert parse("split@3").distinct_steps(TASKS) == 4 + 3 * 4
    assert parse("separate").distinct_steps(TASKS) == 24
    assert parse("separate").distinct_steps(["sst"]) == 8
    assert parse("pal:64").distinct_steps(TASKS) == 1 + 3 * 7
    assert parse("pal:64@6").distinct_steps(TASKS) == 6 + 3 * 2
    assert parse("separate, feed:sst>para").distinct_steps(["para"]) == 16
    assert parse("row@1").distinct_steps(TASKS) == 1 + 3 * 7  # common weights, other activations


def test_feeds() -> None:
    plan = parse("feed:sts>para, feed~:para>sst")
    assert plan.reads == ((Read("para", 0.0),), (Read("sts"),), ())
    assert plan.order() == ("sts", "para", "sst")
    assert plan.sources("sst") == ("sts", "para")
    assert plan.sources("sts") == ()
    assert plan.reading("sst") == (Read("para", 0.0),)


def test_a_diamond_of_feeds() -> None:
    tasks = ("a", "b", "c", "d")
    plan = parse("feed:a>b>d, feed:a>c>d", tasks)
    assert plan.reads[3] == (Read("a"), Read("b"), Read("c"))
    assert parse(plan.text, tasks) == plan


@many
@given(plans())
def test_heads_come_after_what_they_read(plan: Plan) -> None:
    order = plan.order()
    assert sorted(order) == sorted(plan.tasks)
    for task in plan.tasks:
        assert all(order.index(s) < order.index(task) for s in plan.sources(task))
        assert {r.source for r in plan.reading(task)} <= {*plan.sources(task)}
    for a, b in combinations(plan.tasks, 2):  # without a reason, tasks stay in their order
        if not any(plan.reads):
            assert order.index(a) < order.index(b)


def test_frozen() -> None:
    def learning(text: str) -> set[str]:
        plan = parse(text)
        return {cell.place for cell in plan.users() if plan.learns(cell)}

    everything = {"embeddings", *(f"layer {n}" for n in range(1, 7)), "pooler", "head"}
    assert learning("full") == everything
    assert learning("frozen@0") == everything - {"embeddings"}
    assert learning("frozen@4") == {"layer 5", "layer 6", "pooler", "head"}
    assert learning("frozen, late:S, lora:8") == {"late 1", "lora:8:qv@1-6", "head"}


@many
@given(plans())
def test_one_task_alone_walks_the_same_path(plan: Plan) -> None:
    for task in plan.tasks:
        alone = plan.only(task)
        assert set(alone.tasks) == {task, *plan.sources(task)}
        for kept in alone.tasks:
            pairs = list(zip(plan.path(kept), alone.path(kept), strict=True))
            assert [a.cell.place for a, _ in pairs] == [b.cell.place for _, b in pairs]
            assert [len(a.adapters) for a, _ in pairs] == [len(b.adapters) for _, b in pairs]
            assert [plan.learns(a.cell) for a, _ in pairs] == [
                alone.learns(b.cell) for _, b in pairs
            ]
        names = {Cell(c.place, "") for c in alone.users() if c.place != "head"}
        assert names <= {Cell(c.place, "") for c in plan.users()}
        line = Plan.parse(alone.text, alone.tasks, alone.layers, heads=4, pooled=alone.pooled)
        assert line == alone


def test_unknown_task_asked() -> None:
    with pytest.raises(UserError, match="no task 'sstt' in this plan; did you mean 'sst'"):
        parse("full").path("sstt")


def test_the_documentation_is_true() -> None:
    page = Path(__file__).parents[2] / "docs" / "plans.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert (failed, tried > 5) == (0, True)
