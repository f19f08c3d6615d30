"""Plots are SVG that takes no text for markup; axes have round numbers, maps few strokes."""

from __future__ import annotations

import json
from functools import partial
from xml.etree import ElementTree

import numpy as np
import pytest
from markupsafe import Markup

from bough.formatting import number
from bough.reports import plots
from bough.reports.plots import Axis, Interval, Piece, Point, Series


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0.71, 0.79, [0.72, 0.74, 0.76, 0.78]), (3, 3, [3])],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert plots.ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(20, 30, [20, 22, 24, 26, 28, 30]), (1, 3, [1, 2, 3]), (0, 125, [0, 25, 50, 75, 100, 125])],
)
def test_ticks_of_whole_numbers_are_whole(low: int, high: int, expected: list[int]) -> None:
    assert plots.ticks(low, high, whole=True) == expected


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0.8201, 0.8249), (0.82, 0.820001), (-0.001, 0.0007), (1, 1e6)]
)
def test_ticks_are_written_as_what_they_are(low: float, high: float) -> None:
    marks = Axis("", lambda value, digits: f"{value:.{digits}f}").marks(low, high)
    assert [float(words) for _, words in marks] == pytest.approx([value for value, _ in marks])
    assert len({words for _, words in marks}) == len(marks) >= 4


def drawn(name: str) -> Markup:
    evil = '<b>"&'
    point = Point(1, 0.5, evil, 0.4, 0.6)
    series = [Series(n, evil, [point, Point(n + 2, 0.7, evil)]) for n in range(45)]
    axis = Axis(evil, "{:g}".format)
    match name:
        case "scatter":
            return plots.scatter(series, [(1, 0.5), (2, 0.7)], axis, axis, evil)
        case "lines":
            return plots.lines(series, axis, axis, evil)
        case "forest":
            return plots.forest(
                [Interval(0, evil, 0.1, -0.2, 0.3, True, evil)], "{:g}".format, evil
            )
        case "bars":
            return plots.bars([(evil, [Piece("own", 3, evil)]), ("b", [])], "{:g}".format, evil)
    return plots.heat(np.eye(3), ["a", evil, "c"], [evil, "y", "z"], evil, evil, reach=1)


@pytest.mark.parametrize("name", ["scatter", "lines", "forest", "bars", "heat"])
def test_every_plot_is_svg_and_takes_no_text_for_markup(name: str) -> None:
    root = ElementTree.fromstring(drawn(name))
    assert root.attrib["aria-label"] == '<b>"&'
    assert {element.tag for element in root.iter()} <= {
        "svg", "g", "text", "line", "path", "polyline", "circle", "rect"
    }  # fmt: skip


def test_one_value_alone_can_be_drawn() -> None:
    axis = Axis("", "{:g}".format)
    for value in (0.0, 0.5):
        picture = plots.lines([Series(0, "a", [Point(value, value, "tip")])], axis, axis, "t")
        assert "nan" not in picture
        assert "inf" not in picture


def test_a_heat_map_tells_its_values_and_merges_like_cells() -> None:
    values = np.array([[1.0, 1.0, np.nan], [-0.5, 0, 2.0]])
    root = ElementTree.fromstring(plots.heat(values, list("abc"), list("xy"), "t", "m", reach=1))
    (tips,) = (e.attrib["data-heat"] for e in root.iter("rect"))
    assert json.loads(tips)["v"] == [[1, 1, None], [-0.5, 0, 2]]
    paths = {(e.attrib["class"], e.attrib["opacity"]): e.attrib["d"] for e in root.iter("path")}
    # No stroke where there is no value or none to see; more than `reach` is full colour.
    assert paths == {("below", "0.5"): "M0 1h1", ("above", "1"): "M0 0h2M2 1h1"}


def test_a_large_heat_map_is_small() -> None:
    values = np.random.default_rng(0).normal(size=(40, 40))
    names = [str(n) for n in range(40)]
    picture = plots.heat(values, names, names, "t", "m", reach=2)
    strokes = sum(len(e.attrib["d"]) for e in ElementTree.fromstring(picture).iter("path"))
    assert strokes < 9 * values.size  # bytes a cell


def test_nothing_is_written_as_0() -> None:
    marks = Axis("", partial(number, signed=True)).marks(-0.2, 0.2)
    assert [text for _, text in marks] == [
        "\N{MINUS SIGN}.2",
        "\N{MINUS SIGN}.1",
        "0",
        "+.1",
        "+.2",
    ]
