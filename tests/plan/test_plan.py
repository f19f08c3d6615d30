"""The plan: its line, its table, its questions and its refusals."""

from __future__ import annotations

import doctest
import re
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.errors import UserError
from bough.plan.plan import Cell, Plan, Read
from tests.strategies import plans

TASKS = ("sst", "para", "sts")
ALL = ("all", "all", "all")
PAIRS = ("sst", "para+sts", "para+sts")

many = settings(max_examples=200, deadline=None)


def parse(text: object, tasks: tuple[str, ...] = TASKS, layers: int = 6, **other: object) -> Plan:
    return Plan.parse(text, tasks, layers, **other)  # type: ignore[arg-type]


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
    ("text", "rows"),
    [
        ("full", [ALL] * 8),
        ("separate", [TASKS] * 8),
        ("split@0", [ALL] + [TASKS] * 7),
        ("split@4", [ALL] * 5 + [TASKS] * 3),
        ("split@4/para+sts", [ALL] * 5 + [PAIRS] * 3),
        ("split@sst:2,para:4,sts:4", [ALL] * 3 + [PAIRS] * 2 + [TASKS] * 3),
        ("split@sst:2", [ALL] * 3 + [PAIRS] * 5),
        ("row@5-6/para+sts", [ALL] * 5 + [PAIRS] * 3),
        ("row@1, row@embeddings", [TASKS] * 2 + [ALL] * 6),
        ("separate, row@2-3/all", [TASKS] * 2 + [ALL] * 2 + [TASKS] * 4),
        ("row@pooler", [ALL] * 7 + [TASKS]),
        ("split@3, row@pooler/all", [ALL] * 4 + [TASKS] * 3 + [ALL]),
        ("late:ISS", [ALL] * 8 + [TASKS, ALL, ALL]),
        ("late:SI/para+sts", [ALL] * 8 + [PAIRS, TASKS]),
        ("late:SSS/para+sts, row@late2-3/all", [ALL] * 8 + [PAIRS, ALL, ALL]),
    ],
)
def test_sharing(text: str, rows: list[tuple[str, ...]]) -> None:
    assert [names for _, names in parse(text).rows()] == rows


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


def test_tasks_may_be_called_like_terms() -> None:
    tasks = ("pal", "feed", "row")
    plan = parse("split@pal:2,feed:4,row:4, pal:8", tasks)
    assert plan.layer[2] == ("pal", "feed+row", "feed+row")
    assert plan.adapters[0].size == 8
    assert parse(plan.text, tasks) == plan


# The three questions.


def test_way() -> None:
    plan = parse("split@4/para+sts, late:SI, pal:64@5-6/sts, lora:8@6/all")
    steps = plan.way("sts")
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
    assert plan.way("sst")[5].adapters == ()


def test_tasks_without_the_pooler_go_round_it() -> None:
    plan = parse("full, late:S", pooled=["sst", "sts"])
    assert plan.pooler == ("sst+sts", None, "sst+sts")
    assert plan.pooled == ("sst", "sts")
    assert "pooler" not in [step.cell.place for step in plan.way("para")]
    assert plan.users()[Cell("pooler", "sst+sts")] == ("sst", "sts")
    assert "pooler" not in [label for label, _ in parse("full", pooled=[]).table()]


def test_a_head_has_one_user() -> None:
    users = parse("feed~:sst>para>sts").users()
    assert [users[Cell("head", task)] for task in TASKS] == [(task,) for task in TASKS]


@many
@given(plans())
def test_users_are_those_who_walk_there(plan: Plan) -> None:
    walked: dict[Cell, list[str]] = {Cell("head", task): [task] for task in plan.tasks}
    for task in plan.tasks:
        way = plan.way(task)
        cells = [step.cell for step in way] + [c for step in way for _, c in step.adapters]
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
    assert plan.reads == ((Read("para", True),), (Read("sts", False),), ())
    assert plan.order() == ("sts", "para", "sst")
    assert plan.sources("sst") == ("sts", "para")
    assert plan.sources("sts") == ()
    assert plan.reading("sst") == (Read("para", True),)


def test_a_diamond_of_feeds() -> None:
    tasks = ("a", "b", "c", "d")
    plan = parse("feed:a>b>d, feed:a>c>d", tasks)
    assert plan.reads[3] == (Read("a", False), Read("b", False), Read("c", False))
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
def test_one_task_alone_walks_the_same_way(plan: Plan) -> None:
    for task in plan.tasks:
        alone = plan.only(task)
        assert set(alone.tasks) == {task, *plan.sources(task)}
        for kept in alone.tasks:
            ways = list(zip(plan.way(kept), alone.way(kept), strict=True))
            assert [a.cell.place for a, _ in ways] == [b.cell.place for _, b in ways]
            assert [len(a.adapters) for a, _ in ways] == [len(b.adapters) for _, b in ways]
            assert [plan.learns(a.cell) for a, _ in ways] == [alone.learns(b.cell) for _, b in ways]
        names = {Cell(c.place, "") for c in alone.users() if c.place != "head"}
        assert names <= {Cell(c.place, "") for c in plan.users()}
        line = Plan.parse(alone.text, alone.tasks, alone.layers, heads=4, pooled=alone.pooled)
        assert line == alone


def test_unknown_task_asked() -> None:
    with pytest.raises(UserError, match="no task 'sstt' in this plan; did you mean 'sst'"):
        parse("full").way("sstt")


# PAL heads.


@pytest.mark.parametrize(
    ("text", "trunk", "heads"),
    [
        ("pal:204", 12, 12),
        ("pal:64", 12, 8),
        ("pal:64x16", 12, 16),
        ("pal:326x2", 12, 2),
        ("pal:64", 16, 16),
        ("pal:8", 2, 2),
        ("pal:8", 4, 4),
        ("pal:13", 12, 1),
    ],
)
def test_pal_heads(text: str, trunk: int, heads: int) -> None:
    plan = parse(text, heads=trunk)
    assert plan.adapters[0].heads == heads
    assert parse(plan.text, heads=trunk) == parse(plan.text, heads=12) == plan


# The long form.


def test_mapping() -> None:
    rows = {
        "embeddings": "all",
        "layer 1-2": "all",
        "layer 3": {"sst": "x", "para": "y", "sts": "y"},
        "layer 5-6": "own",
        "pooler": "sst+sts",
    }
    adapters = ["pal:64", "lora: 8 /sst"]
    plan = parse(
        {"rows": rows, "late": "IS", "adapters": adapters, "feed": "sst>sts", "frozen": 2},
    )
    assert plan.layer == (ALL, ALL, PAIRS, PAIRS, TASKS, TASKS)
    assert plan.pooler == ("sst+sts", "para", "sst+sts")
    assert plan == parse(
        "row@3-4/para+sts, row@5-6, row@pooler/sst+sts, late:IS, pal:64, lora:8/sst, "
        "feed:sst>sts, frozen@2"
    )
    assert parse({"text": "split@3"}) == parse("split@3")
    assert parse({"late": ["own", "para+sts", {"sst": 1, "para": 1}]}).late == (
        TASKS,
        PAIRS,
        ("sst+para", "sst+para", "sts"),
    )
    assert parse({"feed": ["feed~:sst>para", "para>sts"], "frozen": True}).text == (
        "feed:para>sts, feed~:sst>para, frozen"
    )
    assert parse({}) == parse("full")


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"row": {}}, "plan, row: unknown key.*say 'rows'"),
        ({"rows": ["all"]}, "plan, rows: rows are a mapping"),
        ({"rows": {"layer 7": "all"}}, "plan, rows, layer 7: .*from 1 to 6"),
        ({"rows": {"layer 1": {"parra": 1}}}, "rows, layer 1: .*unknown task 'parra'.*say 'para'"),
        ({"rows": {"layer 1": "all", "1": "own"}}, "a second time"),
        ({"adapters": ["pal:326"]}, "plan, adapters: .*say 'pal:324'"),
        ({"adapters": ["full"]}, "'full' is no adapter"),
        ({"adapters": 5}, "plan, adapters: 5 is neither text nor a list"),
        ({"late": {"a": 1}}, "plan, late: .* is neither text nor a list"),
        ({"feed": ["sst>sst"]}, "plan, feed: 'sst' would read itself"),
        ({"frozen": 9}, "plan, frozen: 'frozen@9' is deeper"),
        (3, "a plan is a line of text or a mapping, not 3"),
        ({"text": 3}, "a plan is a line of text or a mapping, not 3"),
    ],
)
def test_mapping_refused(mapping: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(mapping)


# Refusals.

REFUSED = [
    ("split@9", "deeper than the trunk, which has 6 layers", "split@6"),
    ("split@-1", "negative", "split@0"),
    ("split", "does not say after which layer", "split@3"),
    ("split@para/sts", "does not say after which layer", "split@3"),
    (
        "split@sst:2,parra:3",
        "unknown task 'parra'; the tasks are sst, para, sts",
        "split@sst:2,para:3",
    ),
    ("split@sst:2,sst:3", "'sst' leaves twice", "split@sst:2"),
    ("split@sst:2,sts:30", "deeper than the trunk", "split@sst:2,sts:6"),
    ("split@3/para+sts/sts+sst", "'sts' stands in two groups", "split@3/para+sts/sst"),
    ("split@3/", "a name is missing", "split@3"),
    ("split@3/para++sts", "a name is missing", "split@3/para+sts"),
    ("split@3/all/sst", "nobody for a second group", "split@3/all"),
    ("full, separate", "'full' and 'separate' both say what is shared", "full"),
    ("full@3", "stands alone", "full"),
    ("splt@3", "unknown term 'splt@3'", "split@3"),
    ("pals:64", "unknown term 'pals:64'", "pal:64"),
    ("what", "unknown term 'what'; the terms look like full", None),
    ("", "empty term", "full"),
    ("split@3,,late:S", "empty term", "split@3, late:S"),
    ("late:", "needs a letter for every late layer", "late:S"),
    ("late:iss", "needs a letter", "late:ISS"),
    ("late:S, late:I", "second line of late layers", "late:S"),
    ("late:S/parra+sst", "unknown task 'parra'", "late:S/para+sst"),
    ("row@9", "layers from 1 to 6", "row@6"),
    ("row@poler/all", "there is no row 'poler'", "row@pooler/all"),
    ("row@1-3, row@2", "changes the row 'layer 2' a second time", "row@1-3"),
    ("row@late1", "needs late layers", "full"),
    ("late:S, row@late2-3/all", "from 1 to 1", "late:S, row@late1/all"),
    ("pal:326", "326 in 'pal:326' is not divisible by the trunk's 12 heads", "pal:324"),
    ("pal:326x12", "not divisible by 12 heads", "pal:324x12"),
    ("pal:64x0", "at least one head", "pal:64"),
    ("pal:0", "at least 1", "pal:12"),
    ("lora:-8", "at least 1", "lora:1"),
    ("lora:0:qv@2/sst", "at least 1", "lora:1:qv@2/sst"),
    ("lora:8:qz", "matrices", "lora:8:q"),
    ("lora:8:z", "matrices", "lora:8"),
    ("lora:8:qq", "matrices", "lora:8:q"),
    ("lora:8x2", "form of an adapter", "lora:8"),
    ("pal:64:qv", "form of an adapter", "pal:64"),
    ("bottleneck", "form of an adapter", "bottleneck:64"),
    ("pal:8@4-9", "layers from 1 to 6", "pal:8@4-6"),
    ("pal:8@6-4", "layers from 1 to 6", "pal:8@4-6"),
    ("pal:64, pal:64", "said twice", "pal:64"),
    ("pal:64/sst, pal:64", "'sst' has 'pal:64@1-6' already", "pal:64/sst"),
    ("pal:64/parra", "unknown task 'parra'", "pal:64/para"),
    ("feed:sst", "needs a source and a reader", "full"),
    ("feed:sst>>para", "needs a source and a reader", "feed:sst>para"),
    ("feed:sst>sst", "'sst' would read itself", "full"),
    ("feed:sst>para>sst", "'sst' would read itself", "feed:sst>para"),
    ("feed:sst>para, feed~:para>sst", "in a circle, sst > para > sst", "feed:sst>para"),
    (
        "feed:sst>para, feed:para>sts, feed:sts>sst",
        "in a circle, sst > para > sts > sst",
        "feed:sst>para, feed:para>sts",
    ),
    ("feed:sst>para, feed~:sst>para", "both with feed and with feed~", "feed:sst>para"),
    ("frozen@9", "deeper than the trunk", "frozen@6"),
    ("frozen:3", "neither frozen", "frozen"),
    ("frozen, frozen@3", "second word on what is frozen", "frozen"),
    ("split@9/parra+sts, pal:326, frozen@9", "deeper", "split@6/para+sts, pal:324, frozen@6"),
]


@pytest.mark.parametrize(("text", "reason", "instead"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refused(text: str, reason: str, instead: str | None) -> None:
    with pytest.raises(UserError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith(f"plan {text!r}: ")
    assert reason in message
    if instead is None:
        assert "nearest plan" not in message
    else:
        assert message.endswith(f"; the nearest plan that works is {instead!r}")
        parse(instead)


def test_a_trunk_of_one_layer() -> None:
    assert parse("split@1", layers=1) == parse("full", layers=1)
    assert parse("split@0", layers=1).layer == (TASKS,)
    with pytest.raises(UserError, match=r"whose only layer has no middle to split at.*'split@1'"):
        parse("split@2", layers=1)


@pytest.mark.parametrize(
    ("tasks", "layers", "message"),
    [
        ((), 6, "at least one task"),
        (("sst", "sst"), 6, "'sst' is named twice"),
        (("all",), 6, "task name 'all'"),
        (("a.b",), 6, "task name 'a.b'"),
        (("sst",), 0, "at least one layer"),
    ],
)
def test_tasks_refused(tasks: tuple[str, ...], layers: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse("full", tasks, layers)


PIECES = (
    "split @ : / + > , - ~ x 0 3 6 9 64 full row late IS S pal lora frozen feed sst para all {} #"
)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(PIECES.split())).map("".join) | st.text(max_size=20))
def test_any_text_is_a_plan_or_a_mistake(text: str) -> None:
    try:
        plan = parse(text)
    except UserError as mistake:
        mended = re.search(r"nearest plan that works is '(.*)'$", str(mistake))
        if mended:
            parse(mended[1])
    else:
        assert parse(plan.text) == plan


def test_the_documentation_is_true() -> None:
    page = Path(__file__).parents[2] / "docs" / "plans.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert (failed, tried > 5) == (0, True)
