"""Reading a line or a table: any order, any text, and the nearest line that works."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.errors import UserError
from tests.plan.parsed import ALL, PAIRS, TASKS, parse


def test_tasks_may_be_called_like_terms() -> None:
    tasks = ("pal", "feed", "row")
    plan = parse("split@pal:2,feed:4,row:4, pal:8", tasks)
    assert plan.layer[2] == ("pal", "feed+row", "feed+row")
    assert plan.adapters[0].size == 8
    assert parse(plan.text, tasks) == plan


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


@pytest.mark.parametrize(
    "text", ["late:" + "S" * 100_000, "late:" + "S" * 51, "pal:99999", "," * 9999]
)
def test_plans_that_nobody_means(text: str) -> None:
    with pytest.raises(UserError):
        parse(text, ("a", "b"), 6)


def test_a_trunk_that_nobody_has() -> None:
    with pytest.raises(UserError, match="a trunk has at most 200 layers"):
        parse("full", ("a",), 10_000)
