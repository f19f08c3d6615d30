"""The terms of a plan, one by one: what each does to the rows, and what is said instead."""

from __future__ import annotations

import pytest

from bough.errors import UserError
from tests.plan.parsed import ALL, PAIRS, TASKS, parse


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
    ("feed~:sst>para, feed~0.1:sst>para", "both with feed~ and with feed~0.1", "feed~:sst>para"),
    ("feed~2:sst>para", "no number from 0 to 1", "feed~0.1:sst>para"),
    ("feed~x:sst>para", "no number from 0 to 1", "feed~0.1:sst>para"),
    ("feed~0.00001:sst>para", "of at most 4 digits", "feed~0.1:sst>para"),
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
