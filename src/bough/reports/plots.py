"""Plots as SVG: small, sharp at any size, in the page's own colours by day and by night.

Marks carry what they stand for in `data-tip`; a few lines of script show it. Series are known by
their number (`data-v`), which gives them their colour and lets the legend hide them. The heat of a
map is a picture of a few hundred bytes, opaque where the value is large, so it suits both grounds.
"""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bough.reports.html import Markup, element
from bough.scoring.statistics import Floats

WIDE, HIGH = 400, 270
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 14, 42
LETTER = 6.3  # about as wide as a letter of the plots' type is
HUES = 10
SHAPES = ("circle", "square", "diamond", "triangle")
Format = Callable[[float], str]


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


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between the two."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def span(values: Sequence[float], room: float = 0.06) -> tuple[float, float]:
    """The values' ends with some room around them."""
    low, high = min(values), max(values)
    wide = (high - low) or abs(high) * 0.1 or 1.0
    return low - wide * room, high + wide * room


@dataclass(frozen=True)
class Frame:
    """From values to places on the paper."""

    xs: tuple[float, float]
    ys: tuple[float, float]
    left: float = LEFT

    def x(self, value: float) -> float:
        low, high = self.xs
        return self.left + (value - low) / ((high - low) or 1) * (WIDE - RIGHT - self.left)

    def y(self, value: float) -> float:
        low, high = self.ys
        return HIGH - BOTTOM - (value - low) / ((high - low) or 1) * (HIGH - BOTTOM - TOP)

    def axes(
        self,
        x_name: str,
        y_name: str,
        x_form: Format,
        y_form: Format,
        at: Sequence[float] | None = None,
    ) -> list[Markup]:
        bottom = HIGH - BOTTOM
        parts = []
        for value in ticks(*self.ys):
            y = self.y(value)
            parts.append(element("line", class_="grid", x1=self.left, x2=WIDE - RIGHT, y1=y, y2=y))
            parts.append(_text(self.left - 6, y + 4, y_form(value), "tick", "end"))
        for value in ticks(*self.xs) if at is None else at:
            x = self.x(value)
            parts.append(element("line", class_="grid", x1=x, x2=x, y1=TOP, y2=bottom))
            parts.append(_text(x, bottom + 16, x_form(value), "tick"))
        parts.append(_text((self.left + WIDE - RIGHT) / 2, HIGH - 6, x_name, "axis"))
        if y_name:
            x, y = 12, (TOP + bottom) / 2
            turned = f"rotate(-90 {x} {y:g})"
            parts.append(
                element(
                    "text", y_name, class_="axis", x=x, y=y, text_anchor="middle", transform=turned
                )
            )
        return parts


def scatter(
    series: Sequence[Series],
    front: Sequence[tuple[float, float]],
    x_name: str,
    y_name: str,
    x_form: Format,
    y_form: Format,
    title: str,
) -> Markup:
    """A point per variant with its interval, named where there is room; the front as a stair."""
    points = [p for s in series for p in s.points]
    ends = [v for p in points for v in (p.y, p.low, p.high) if v is not None]
    frame = Frame(span([p.x for p in points], 0.12), span(ends))
    parts = frame.axes(x_name, y_name, x_form, y_form)
    if front:
        way = f"M{frame.x(front[0][0]):.1f} {frame.y(front[0][1]):.1f}"
        for x, y in front[1:]:
            way += f" H{frame.x(x):.1f} V{frame.y(y):.1f}"
        parts.append(element("path", class_="front", d=f"{way} H{WIDE - RIGHT}"))
    taken = [
        (frame.x(p.x) - 7, frame.y(p.y) - 7, frame.x(p.x) + 7, frame.y(p.y) + 7) for p in points
    ]
    for one in series:
        marks: list[Markup] = []
        for p in one.points:
            x, y = frame.x(p.x), frame.y(p.y)
            if p.low is not None and p.high is not None:
                ends_at = {"y1": frame.y(p.low), "y2": frame.y(p.high)}
                marks.append(element("line", class_="bar", x1=x, x2=x, **ends_at))
            marks.append(_mark(one.number, x, y, p.tip))
            if place := _room(x, y, one.name, taken):
                marks.append(_text(*place, one.name, "name", "start"))
        parts.append(_group(one, marks))
    return _svg(parts, title)


def _room(
    x: float, y: float, name: str, taken: list[tuple[float, float, float, float]]
) -> tuple[float, float] | None:
    """A free place for a name beside its point."""
    wide = LETTER * len(name)
    for dx, dy in (
        (10, 4),
        (-10 - wide, 4),
        (10, -8),
        (10, 16),
        (-10 - wide, -8),
        (-10 - wide, 16),
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
    series: Sequence[Series],
    x_name: str,
    y_name: str,
    x_form: Format,
    y_form: Format,
    title: str,
    *,
    square: bool = False,
    at: Sequence[float] | None = None,
) -> Markup:
    """A line per series; `square` for shares against shares, with the diagonal drawn.

    `at` names the places of the ticks below.
    """
    points = [p for s in series for p in s.points]
    if square:
        frame = Frame((0, 1), (0, 1))
    else:
        ends = [v for p in points for v in (p.y, p.low, p.high) if v is not None]
        frame = Frame(span([p.x for p in points], 0.02), span(ends))
    parts = frame.axes(x_name, y_name, x_form, y_form, at)
    if square:
        corners = {"x1": frame.x(0), "y1": frame.y(0), "x2": frame.x(1), "y2": frame.y(1)}
        parts.append(element("line", class_="diagonal", **corners))
    for one in series:
        spots = [(frame.x(p.x), frame.y(p.y)) for p in one.points]
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        own = [element("polyline", class_="line", points=way)]
        for p in one.points:
            if p.low is not None and p.high is not None:
                bar = {"x1": frame.x(p.x), "y1": frame.y(p.low), "y2": frame.y(p.high)}
                own.append(element("line", class_="bar", x2=bar["x1"], **bar))
        own += [
            element("circle", class_="dot", cx=f"{x:.1f}", cy=f"{y:.1f}", r=3, data_tip=p.tip)
            for (x, y), p in zip(spots, one.points, strict=True)
        ]
        parts.append(_group(one, own))
    return _svg(parts, title)


def forest(
    rows: Sequence[tuple[int, str, float, float, float, bool, str]], form: Format, title: str
) -> Markup:
    """Differences one under the other: number, name, value, both ends, whether it shows, tip."""
    left = min(150.0, 16 + LETTER * max(len(name) for _, name, *_ in rows))
    foot = TOP + 24 * len(rows)
    reach = max(abs(end) for _, _, _, *ends, _, _ in rows for end in ends) or 0.01
    frame = Frame((-reach * 1.06, reach * 1.06), (0, 1), left)
    parts = []
    for value in ticks(*frame.xs):
        x = frame.x(value)
        parts.append(element("line", class_="grid", x1=x, x2=x, y1=TOP, y2=foot))
        parts.append(_text(x, foot + 16, form(value), "tick"))
    zero = frame.x(0)
    parts.append(element("line", class_="zero", x1=zero, x2=zero, y1=TOP - 4, y2=foot + 4))
    most = int((left - 10) / LETTER)
    for n, (number, name, value, low, top, real, tip) in enumerate(rows):
        y = TOP + 24 * n + 12
        shown = name if len(name) <= most else name[: most - 1] + "…"
        bar = {"x1": frame.x(low), "x2": frame.x(top), "y1": y, "y2": y}
        marks = [
            _text(left - 8, y + 4, shown, "name", "end"),
            element("line", class_="bar strong" if real else "bar", **bar),
            _mark(number, frame.x(value), y, tip),
            element(
                "rect", class_="catch", x=left, y=y - 11, width=WIDE - left, height=22, data_tip=tip
            ),
        ]
        parts.append(_group(Series(number, name, ()), marks))
    return _svg(parts, title, foot + 24)


def bars(
    rows: Sequence[tuple[str, Sequence[tuple[str, float, str]]]], form: Format, title: str
) -> Markup:
    """Stacked bars: name, then the class, length and tip of each piece."""
    left = min(150.0, 16 + LETTER * max(len(name) for name, _ in rows))
    foot = TOP + 26 * len(rows)
    longest = max(sum(v for _, v, _ in pieces) for _, pieces in rows) or 1.0
    frame = Frame((0, longest), (0, 1), left)
    most = int((left - 10) / LETTER)
    parts = []
    for value in ticks(0, longest):
        x = frame.x(value)
        parts.append(element("line", class_="grid", x1=x, x2=x, y1=TOP, y2=foot))
        parts.append(_text(x, foot + 16, form(value), "tick"))
    for n, (name, pieces) in enumerate(rows):
        y = TOP + 26 * n
        shown = name if len(name) <= most else name[: most - 1] + "…"
        parts.append(_text(left - 8, y + 16, shown, "name", "end"))
        at = 0.0
        for kind, value, tip in pieces:
            x, end = frame.x(at), frame.x(at + value)
            box = {"x": x, "y": y + 3, "width": max(0.0, end - x), "height": 18}
            parts.append(element("rect", class_=f"piece {kind}", data_tip=tip, **box))
            at += value
    return _svg(parts, title, foot + 24)


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
    top, wide = 8, WIDE - RIGHT
    tall = 260 if corner else max(16 * len(rows), 40)
    high = top + tall + 36
    parts = [
        element(
            "image", href=_png(values, reach), x=left, y=top, width=wide - left, height=tall,
            preserveAspectRatio="none", class_="heat",
        )
    ]  # fmt: skip
    every = max(1, math.ceil(len(rows) / 14))
    for n, name in enumerate(rows):
        if n % every == 0:
            y = top + (n + 0.5) * tall / len(rows)
            parts.append(_text(left - 6, y + 4, name, "tick", "end"))
    longest = max(map(len, columns)) * LETTER + 14
    every = max(1, math.ceil(len(columns) * longest / (wide - left)))
    for n in range(0, len(columns), every):
        x = left + (n + 0.5) * (wide - left) / len(columns)
        parts.append(_text(x, top + tall + 15, columns[n], "tick"))
    parts.append(_text((left + wide) / 2, high - 5, x_name, "axis"))
    told = [[None if math.isnan(v) else round(float(v), digits) for v in row] for row in values]
    parts.append(
        element(
            "rect", class_="catch", x=left, y=top, width=wide - left, height=tall,
            data_heat=json.dumps({"x": list(columns), "y": list(rows), "v": told},
                                 separators=(",", ":")),
        )
    )  # fmt: skip
    if corner:
        ends = {"x1": left, "y1": top + tall, "x2": wide, "y2": top}
        parts.append(element("line", class_="diagonal", **ends))
    return _svg(parts, title, high)


def _png(values: Floats, reach: float) -> str:
    """The values as a picture, a dot each: the sign is the colour, the size its opacity."""
    colour = np.where(values[..., None] >= 0, (0, 114, 178), (213, 94, 0))
    strength = np.nan_to_num(np.clip(np.abs(values) / reach, 0, 1)) * 255
    dots = np.dstack([colour, strength[..., None]]).astype(np.uint8)
    high, wide = values.shape
    lines = b"".join(b"\0" + row.tobytes() for row in dots)

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", wide, high, 8, 6, 0, 0, 0)
    packed = zlib.compress(lines, 9)
    data = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(data).decode()


# --- marks ---------------------------------------------------------------------------------------


def legend(names: Sequence[str]) -> Markup:
    """A button per variant that hides and shows it in every plot."""
    return element(
        "div",
        [
            element(
                "button",
                element("svg", _mark(n, 8, 8, ""), viewBox="0 0 16 16", width=14, height=14),
                name,
                class_=f"chip hue{n % HUES}",
                type="button",
                data_toggle=n,
                aria_pressed="true",
            )
            for n, name in enumerate(names)
        ],
        class_="legend",
    )


def _mark(number: int, x: float, y: float, tip: str) -> Markup:
    shape = SHAPES[number // HUES % len(SHAPES)]
    told = {"class_": "mark", "data_tip": tip or None}
    if shape == "circle":
        return element("circle", cx=x, cy=y, r=5, **told)
    corners = {
        "square": ((-4.5, -4.5), (4.5, -4.5), (4.5, 4.5), (-4.5, 4.5)),
        "diamond": ((0, -6), (6, 0), (0, 6), (-6, 0)),
        "triangle": ((0, -6), (5.5, 4.5), (-5.5, 4.5)),
    }[shape]
    way = " L".join(f"{x + dx:.1f} {y + dy:.1f}" for dx, dy in corners)
    return element("path", d=f"M{way} Z", **told)


def _group(series: Series, parts: Sequence[Markup]) -> Markup:
    return element("g", parts, class_=f"hue{series.number % HUES}", data_v=series.number)


def _text(x: float, y: float, text: str, kind: str, anchor: str = "middle") -> Markup:
    return element("text", text, class_=kind, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _svg(parts: Sequence[Markup], title: str, high: float = HIGH) -> Markup:
    return element(
        "svg", parts, class_="plot", viewBox=f"0 0 {WIDE} {high:g}", role="img", aria_label=title,
    )  # fmt: skip
