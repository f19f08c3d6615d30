"""Plots as SVG: small, sharp at any size, in the page's own colours by day and by night.

Marks carry what they stand for in `data-tip`; a few lines of script show it. Series are known by
their number (`data-v`), which gives them their colour and lets the legend hide them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from markupsafe import Markup, escape

from bough.scoring.statistics import Floats

WIDE, HIGH = 400, 270
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 14, 42
LETTER = 6.3  # about as wide as a letter of the plots' type is
HUES = 10
SHADES = 20  # of each colour of a heat map
CORNERS = {
    "square": ((-4.5, -4.5), (4.5, -4.5), (4.5, 4.5), (-4.5, 4.5)),
    "diamond": ((0, -6), (6, 0), (0, 6), (-6, 0)),
    "triangle": ((0, -6), (5.5, 4.5), (-5.5, 4.5)),
}
SHAPES = ("circle", *CORNERS)
Format = Callable[[float], str]


@dataclass(frozen=True)
class Figure:
    """A plot and the words above it."""

    title: str
    note: str
    plot: Markup


@dataclass(frozen=True)
class Axis:
    name: str
    form: Format
    ticks: Sequence[float] | None = None  # round numbers unless given


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    tip: str
    low: float | None = None  # ends of a bar, in y
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """One variant's marks."""

    number: int
    name: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Interval:
    """One variant's row of a forest plot."""

    number: int
    name: str
    value: float
    low: float
    high: float
    strong: bool
    tip: str


@dataclass(frozen=True)
class Piece:
    """A part of a stacked bar."""

    kind: str
    length: float
    tip: str


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between the two."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Frame:
    """From values to places on the paper."""

    xs: tuple[float, float]
    ys: tuple[float, float] = (0, 1)
    left: float = LEFT

    @classmethod
    def around(cls, series: Sequence[Series], margin: float) -> Frame:
        """With all points and their bars inside, and a margin of the width left and right."""
        points = [p for one in series for p in one.points]
        ends = [v for p in points for v in (p.y, p.low, p.high) if v is not None]
        return cls(_widened([p.x for p in points], margin), _widened(ends, 0.06))

    def x(self, value: float) -> float:
        low, high = self.xs
        return self.left + (value - low) / ((high - low) or 1) * (WIDE - RIGHT - self.left)

    def y(self, value: float) -> float:
        low, high = self.ys
        return HIGH - BOTTOM - (value - low) / ((high - low) or 1) * (HIGH - BOTTOM - TOP)

    def ruler(self, form: Format, bottom: float, at: Sequence[float] | None = None) -> list[Markup]:
        """Lines across the paper, with their values below them."""
        parts = []
        for value in ticks(*self.xs) if at is None else at:
            x = self.x(value)
            parts.append(shape("line", class_="grid", x1=x, x2=x, y1=TOP, y2=bottom))
            parts.append(_text(x, bottom + 16, form(value), "tick"))
        return parts

    def axes(self, across: Axis, up: Axis) -> list[Markup]:
        bottom = HIGH - BOTTOM
        parts = []
        for value in ticks(*self.ys):
            y = self.y(value)
            parts.append(shape("line", class_="grid", x1=self.left, x2=WIDE - RIGHT, y1=y, y2=y))
            parts.append(_text(self.left - 6, y + 4, up.form(value), "tick", "end"))
        parts += self.ruler(across.form, bottom, across.ticks)
        parts.append(_text((self.left + WIDE - RIGHT) / 2, HIGH - 6, across.name, "axis"))
        if up.name:
            x, y = 12, (TOP + bottom) / 2
            turned = f"rotate(-90 {x} {y:g})"
            place = {"x": x, "y": y, "text_anchor": "middle", "transform": turned}
            parts.append(shape("text", up.name, class_="axis", **place))
        return parts


def _widened(values: Sequence[float], margin: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    wide = (high - low) or abs(high) * 0.1 or 1.0
    return low - wide * margin, high + wide * margin


# --- kinds of plots ------------------------------------------------------------------------------


def scatter(
    series: Sequence[Series],
    front: Sequence[tuple[float, float]],
    across: Axis,
    up: Axis,
    title: str,
) -> Markup:
    """A point per variant with its interval, named where there is space; the front as a stair."""
    frame = Frame.around(series, 0.12)
    parts = frame.axes(across, up)
    if front:
        path = f"M{frame.x(front[0][0]):.1f} {frame.y(front[0][1]):.1f}"
        for x, y in front[1:]:
            path += f" H{frame.x(x):.1f} V{frame.y(y):.1f}"
        parts.append(shape("path", class_="front", d=f"{path} H{WIDE - RIGHT}"))
    spots = [(frame.x(p.x), frame.y(p.y)) for one in series for p in one.points]
    taken = [(x - 7, y - 7, x + 7, y + 7) for x, y in spots]
    for one in series:
        marks = _bars(frame, one.points)
        for p in one.points:
            x, y = frame.x(p.x), frame.y(p.y)
            marks.append(mark(one.number, x, y, p.tip))
            if place := _free_place(x, y, one.name, taken):
                marks.append(_text(*place, one.name, "name", "start"))
        parts.append(_group(one.number, marks))
    return _svg(parts, title)


def _free_place(
    x: float, y: float, name: str, taken: list[tuple[float, float, float, float]]
) -> tuple[float, float] | None:
    """A free place for a name beside its point, which then is taken."""
    wide = LETTER * len(name)
    for dy, dx in (
        (4, 10),
        (4, -10 - wide),
        (-8, 10),
        (16, 10),
        (-8, -10 - wide),
        (16, -10 - wide),
    ):
        left, base = x + dx, y + dy
        box = (left, base - 10, left + wide, base + 3)
        if box[0] < LEFT or box[2] > WIDE or box[1] < 0 or box[3] > HIGH - BOTTOM:
            continue
        if all(box[0] > t[2] or box[2] < t[0] or box[1] > t[3] or box[3] < t[1] for t in taken):
            taken.append(box)
            return left, base
    return None


def lines(
    series: Sequence[Series], across: Axis, up: Axis, title: str, *, square: bool = False
) -> Markup:
    """A line per series; `square` for shares against shares, with the diagonal drawn."""
    frame = Frame((0, 1)) if square else Frame.around(series, 0.02)
    parts = frame.axes(across, up)
    if square:
        corners = {"x1": frame.x(0), "y1": frame.y(0), "x2": frame.x(1), "y2": frame.y(1)}
        parts.append(shape("line", class_="diagonal", **corners))
    for one in series:
        spots = [(f"{frame.x(p.x):.1f}", f"{frame.y(p.y):.1f}") for p in one.points]
        path = " ".join(f"{x},{y}" for x, y in spots)
        marks = [shape("polyline", class_="line", points=path), *_bars(frame, one.points)]
        marks += [
            shape("circle", class_="dot", cx=x, cy=y, r=3, data_tip=p.tip)
            for (x, y), p in zip(spots, one.points, strict=True)
        ]
        parts.append(_group(one.number, marks))
    return _svg(parts, title)


def forest(rows: Sequence[Interval], form: Format, title: str) -> Markup:
    """Differences one under the other, around zero."""
    left = _label_width([row.name for row in rows])
    bottom = TOP + 24 * len(rows)
    reach = max(abs(end) for row in rows for end in (row.low, row.high)) or 0.01
    frame = Frame((-reach * 1.06, reach * 1.06), left=left)
    zero = {"x1": frame.x(0), "x2": frame.x(0), "y1": TOP - 4, "y2": bottom + 4}
    parts = [*frame.ruler(form, bottom), shape("line", class_="zero", **zero)]
    for n, row in enumerate(rows):
        y = TOP + 24 * n + 12
        bar = {"x1": frame.x(row.low), "x2": frame.x(row.high), "y1": y, "y2": y}
        catch = {"x": left, "y": y - 11, "width": WIDE - left, "height": 22}
        marks = [
            _text(left - 8, y + 4, _fitting(row.name, left), "name", "end"),
            shape("line", class_="bar strong" if row.strong else "bar", **bar),
            mark(row.number, frame.x(row.value), y, row.tip),
            shape("rect", class_="catch", data_tip=row.tip, **catch),
        ]
        parts.append(_group(row.number, marks))
    return _svg(parts, title, bottom + 24)


def bars(rows: Sequence[tuple[str, Sequence[Piece]]], form: Format, title: str) -> Markup:
    """Stacked bars, a named one per row."""
    left = _label_width([name for name, _ in rows])
    bottom = TOP + 26 * len(rows)
    frame = Frame((0, max(sum(p.length for p in pieces) for _, pieces in rows) or 1.0), left=left)
    parts = frame.ruler(form, bottom)
    for n, (name, pieces) in enumerate(rows):
        y = TOP + 26 * n
        parts.append(_text(left - 8, y + 16, _fitting(name, left), "name", "end"))
        start = 0.0
        for piece in pieces:
            x, end = frame.x(start), frame.x(start + piece.length)
            box = {"x": x, "y": y + 3, "width": max(0.0, end - x), "height": 18}
            parts.append(shape("rect", class_=f"piece {piece.kind}", data_tip=piece.tip, **box))
            start += piece.length
    return _svg(parts, title, bottom + 24)


def heat(
    values: Floats,
    columns: Sequence[str],
    rows: Sequence[str],
    x_name: str,
    title: str,
    *,
    reach: float,
    digits: int = 2,
    corner: bool = False,
) -> Markup:
    """A map of values, NaN where there is none; blue above 0, orange below, strong at `reach`.

    `rows` go from the top down; with `corner` the axes are numbers that start at the lower left.
    """
    left = 16 + LETTER * max(map(len, rows))
    top, wide = 8, WIDE - RIGHT - left
    tall = 260 if corner else max(16 * len(rows), 40)
    column, row = wide / len(columns), tall / len(rows)
    # In units of a cell; a stroke runs along the middle of its row.
    units = f"translate({left:g} {top + row / 2:g}) scale({column:g} {row:g})"
    parts = [shape("g", *_strokes(values / reach), class_="heat", transform=units)]
    named = range(0, len(rows), math.ceil(len(rows) / 14))
    parts += [_text(left - 6, top + (n + 0.5) * row + 4, rows[n], "tick", "end") for n in named]
    longest = max(map(len, columns)) * LETTER + 14
    named = range(0, len(columns), math.ceil(longest / column))
    parts += [_text(left + (n + 0.5) * column, top + tall + 15, columns[n], "tick") for n in named]
    parts.append(_text(left + wide / 2, top + tall + 31, x_name, "axis"))
    cells = [[None if math.isnan(v) else round(float(v), digits) for v in line] for line in values]
    tips = json.dumps({"x": list(columns), "y": list(rows), "v": cells}, separators=(",", ":"))
    box = {"x": left, "y": top, "width": wide, "height": tall}
    parts.append(shape("rect", class_="catch", data_heat=tips, **box))
    if corner:
        ends = {"x1": left, "y1": top + tall, "x2": left + wide, "y2": top}
        parts.append(shape("line", class_="diagonal", **ends))
    return _svg(parts, title, top + tall + 36)


def _strokes(values: Floats) -> list[Markup]:
    """A path per shade, whose strokes are runs of cells of that shade; none where there is none."""
    shades = np.nan_to_num(np.clip(values, -1, 1) * SHADES).round().astype(int)
    paths: dict[int, str] = {}
    for y, line in enumerate(shades.tolist()):
        x = 0
        for shade, cells in groupby(line):
            many = len(list(cells))
            paths[shade] = paths.get(shade, "") + f"M{x} {y}h{many}"
            x += many
    paths.pop(0, None)
    return [
        shape("path", class_="above" if n > 0 else "below", opacity=abs(n) / SHADES, d=paths[n])
        for n in sorted(paths)
    ]


# --- marks ---------------------------------------------------------------------------------------


def shape(name: str, /, *parts: str, **attributes: object) -> Markup:
    """`shape("text", "a < b", class_="low")`; a part is text unless it is Markup.

    Underscores in attribute names stand for hyphens, one at the end is dropped; None leaves an
    attribute out.
    """
    start = f"<{name}"
    for key, value in attributes.items():
        if value is not None:
            text = f"{value:.6g}" if isinstance(value, float) else value
            start += f' {key.rstrip("_").replace("_", "-")}="{escape(text)}"'
    return Markup(f"{start}>{Markup('').join(parts)}</{name}>" if parts else f"{start}/>")


def mark(number: int, x: float, y: float, tip: str | None = None) -> Markup:
    """The sign of a variant: colours first, then other shapes."""
    kind = SHAPES[number // HUES % len(SHAPES)]
    if kind == "circle":
        return shape("circle", class_="mark", data_tip=tip, cx=x, cy=y, r=5)
    path = " L".join(f"{x + dx:.1f} {y + dy:.1f}" for dx, dy in CORNERS[kind])
    return shape("path", class_="mark", data_tip=tip, d=f"M{path} Z")


def _bars(frame: Frame, points: Sequence[Point]) -> list[Markup]:
    """The intervals of the points that have one."""
    ends = [(frame.x(p.x), frame.y(p.low), frame.y(p.high))
            for p in points if p.low is not None and p.high is not None]  # fmt: skip
    return [shape("line", class_="bar", x1=x, x2=x, y1=y1, y2=y2) for x, y1, y2 in ends]


def _label_width(names: Sequence[str]) -> float:
    return min(150.0, 16 + LETTER * max(map(len, names)))


def _fitting(name: str, width: float) -> str:
    most = int((width - 10) / LETTER)
    return name if len(name) <= most else name[: most - 1] + "…"


def _group(number: int, parts: Sequence[Markup]) -> Markup:
    return shape("g", *parts, class_=f"hue{number % HUES}", data_v=number)


def _text(x: float, y: float, text: str, kind: str, anchor: str = "middle") -> Markup:
    return shape("text", text, class_=kind, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _svg(parts: Sequence[Markup], title: str, high: float = HIGH) -> Markup:
    view = f"0 0 {WIDE} {high:g}"
    return shape("svg", *parts, class_="plot", viewBox=view, role="img", aria_label=title)
