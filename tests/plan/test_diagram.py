"""The picture of a plan: a file that any browser shows, with nothing on top of anything else."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree

from hypothesis import given, settings

from bough.plan.diagram import svg
from bough.plan.plan import Plan
from tests.strategies import plans

SVG = "{http://www.w3.org/2000/svg}"
TASKS = ("sst", "para", "sts")


def boxes(picture: str, kind: str = "box") -> list[tuple[float, float, float, float]]:
    """Left, top, right, bottom of the boxes; small ones lie inside others and are left out."""
    found = []
    for rect in ElementTree.fromstring(picture).iter(f"{SVG}rect"):
        kinds = rect.attrib["class"].split()
        if kind in kinds and (kind == "pill" or "pill" not in kinds):
            x, y, w, h = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
            found.append((x, y, x + w, y + h))
    return found


def test_shared_cells_are_one_box() -> None:
    full, separate = (svg(Plan.parse(text, TASKS, 6)) for text in ("full", "separate"))
    assert len(boxes(full)) == 3 + 3  # embeddings, layers, pooler, three heads
    assert len(boxes(separate)) == 9 + 3
    assert len(boxes(svg(Plan.parse("split@4/para+sts", TASKS, 6)))) == 2 + 2 + 2 + 3


def test_columns_move_so_that_groups_stand_together() -> None:
    picture = svg(Plan.parse("split@4/sst+sts", TASKS, 6))
    assert len(boxes(picture)) == 2 + 2 + 2 + 3
    assert 'class="tie' not in picture
    tasks = tuple(f"t{n}" for n in range(9))
    assert 'class="tie' in svg(Plan.parse("split@4/t0+t8", tasks, 6))


def test_signs_are_explained() -> None:
    assert "dotted line" not in svg(Plan.parse("full", TASKS, 6))
    assert "dotted line" in svg(Plan.parse("row@1", TASKS, 6))
    picture = svg(Plan.parse("feed:sst>para, feed~:para>sts", TASKS, 6))
    assert "arrow: reads the other head" in picture
    assert "dashed arrow" in picture
    assert picture.count('class="feed stop"') == picture.count('class="feed through"') == 1
    assert svg(Plan.parse("frozen@2", TASKS, 6)).count(">fixed<") == 2


def test_two_pictures_in_one_page_have_no_id_in_common() -> None:
    pictures = [svg(Plan.parse(text, TASKS, 6)) for text in ("feed:sst>para", "feed:sst>sts")]
    ids = [set(re.findall(r' id="([^"]*)"', picture)) for picture in pictures]
    assert not ids[0] & ids[1]
    for own, picture in zip(ids, pictures, strict=True):
        assert set(re.findall(r"url\(#([^)]*)\)", picture)) <= own


def test_title_and_words_for_those_who_do_not_see_it() -> None:
    plan = Plan.parse("split@4", TASKS, 6)
    root = ElementTree.fromstring(svg(plan, title="Mine & <yours>"))
    title, desc = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert title.text == "Mine & <yours>"
    assert desc is not None
    assert desc.text == str(plan)
    assert root.attrib["aria-labelledby"].split() == [title.attrib["id"], desc.attrib["id"]]
    assert "split@4" in "".join(root.itertext())


@settings(max_examples=60, deadline=None)
@given(plans(max_tasks=8))
def test_any_plan_can_be_drawn(plan: Plan) -> None:
    picture = svg(plan)
    assert set(re.findall(r"https?://[^\"]*", picture)) == {"http://www.w3.org/2000/svg"}
    _, _, width, height = map(float, ElementTree.fromstring(picture).attrib["viewBox"].split())
    for kind in ("box", "pill"):
        drawn = boxes(picture, kind)
        assert all(0 <= x < r <= width and 0 <= y < b <= height for x, y, r, b in drawn)
        for (x, y, r, b), (x2, y2, r2, b2) in combinations(drawn, 2):
            assert r <= x2 or r2 <= x or b <= y2 or b2 <= y
    assert len(boxes(picture, "head")) == len(plan.tasks)
