"""Plots as SVG: small, sharp at any size, in the page's own colours by day and by night.

Marks carry what they stand for in `data-tip`; a few lines of script show it. Series are known by
their number (`data-v`), which gives them their colour and lets the legend hide them. Here is what
stands where; `templates/plots.svg` says how it looks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, groupby, pairwise
from typing import Any

import numpy as np
from markupsafe import Markup

from bough.scoring.statistics import Floats
from bough.templates import environment

WIDE, HIGH = 400, 270
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 14, 42
LETTER = 6.3  # about as wide as a letter of the plots' type is
MOST_DIGITS = 9  # of a tick
HUES = 10
SHADES = 20  # of each colour of a heat map
SHAPES = (  # of marks, by their corners
    (),  # a circle
    ((-4.5, -4.5), (4.5, -4.5), (4.5, 4.5), (-4.5, 4.5)),
    ((0, -6), (6, 0), (0, 6), (-6, 0)),
    ((0, -6), (5.5, 4.5), (-5.5, 4.5)),
)
Format = Callable[[float, int], str]  # a tick's words; the number is the digits that ticks need


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
    whole: bool = False  # whose values are whole numbers

    def marks(self, low: float, high: float) -> list[tuple[float, str]]:
        """Its ticks, and what is written at them."""
        values = ticks(low, high, whole=self.whole) if self.ticks is None else self.ticks
        return [
            (v, "0" if round(v, MOST_DIGITS) == 0 else self.form(v, digits(values))) for v in values
        ]


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


def ticks(low: float, high: float, about: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers between the two, or only whole ones."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    if whole:
        rough = max(rough, 1.0)
    power = 10.0 ** math.floor(math.log10(rough))
    steps = [s * power for s in (1, 2, 2.5, 5, 10) if not whole or (s * power).is_integer()]
    step = next(step for step in steps if step >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def digits(values: Sequence[float]) -> int:
    """How many behind the point tell ticks as what they are, and so apart."""
    near = min((b - a for a, b in pairwise(values)), default=1.0) / 100
    exact = (n for n in range(MOST_DIGITS) if all(abs(round(v, n) - v) <= near for v in values))
    return next(exact, MOST_DIGITS)


@dataclass(frozen=True)
class Frame:
    """From values to places on the paper."""

    xs: tuple[float, float]
    ys: tuple[float, float] = (0, 1)
    left: float = LEFT
    right: float = WIDE - RIGHT
    top: float = TOP
    bottom: float = HIGH - BOTTOM

    @classmethod
    def around(cls, series: Sequence[Series], margin: float) -> Frame:
        """With all points and their bars inside, and a margin of the width left and right."""
        points = [p for one in series for p in one.points]
        ends = [v for p in points for v in (p.y, p.low, p.high) if v is not None]
        return cls(_widened([p.x for p in points], margin), _widened(ends, 0.06))

    def x(self, value: float) -> float:
        low, high = self.xs
        return self.left + (value - low) / ((high - low) or 1) * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = self.ys
        return self.bottom - (value - low) / ((high - low) or 1) * (self.bottom - self.top)


def _widened(values: Sequence[float], margin: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    wide = (high - low) or abs(high) * 0.1 or 1.0
    return low - wide * margin, high + wide * margin


@cache
def _macros() -> Any:
    templates = environment("bough.reports", html=True)
    templates.filters |= {"g": "{:g}".format, "tenth": "{:.1f}".format, "fitting": _fitting}
    templates.globals |= {"hues": HUES, "shapes": SHAPES}
    return templates.get_template("plots.svg").module


def _fitting(name: str, width: float) -> str:
    most = int((width - 10) / LETTER)
    return name if len(name) <= most else name[: most - 1] + "…"


def mark(number: int, x: float, y: float) -> Markup:
    """The sign of a variant."""
    return Markup(_macros().mark(number, x, y))


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
    spots = [[(frame.x(p.x), frame.y(p.y)) for p in one.points] for one in series]
    taken = [(x - 7, y - 7, x + 7, y + 7) for each in spots for x, y in each]
    named = [
        (one, [_free_place(x, y, one.name, taken) for x, y in each])
        for one, each in zip(series, spots, strict=True)
    ]
    return Markup(_macros().scatter(title, HIGH, frame, across, up, named, front))


def _free_place(
    x: float, y: float, name: str, taken: list[tuple[float, float, float, float]]
) -> tuple[float, float] | None:
    """A free place for a name beside its point, which then is taken."""
    wide = LETTER * len(name)
    right, left = x + 10, x - 10 - wide
    for dy, start in ((4, right), (4, left), (-8, right), (16, right), (-8, left), (16, left)):
        base = y + dy
        box = (start, base - 10, start + wide, base + 3)
        if box[0] < LEFT or box[2] > WIDE or box[1] < 0 or box[3] > HIGH - BOTTOM:
            continue
        if all(box[0] > t[2] or box[2] < t[0] or box[1] > t[3] or box[3] < t[1] for t in taken):
            taken.append(box)
            return start, base
    return None


def lines(
    series: Sequence[Series], across: Axis, up: Axis, title: str, *, square: bool = False
) -> Markup:
    """A line per series; `square` for shares against shares, with the diagonal drawn."""
    frame = Frame((0, 1)) if square else Frame.around(series, 0.02)
    return Markup(_macros().lines(title, HIGH, frame, across, up, series, square))


def forest(rows: Sequence[Interval], form: Format, title: str) -> Markup:
    """Differences one under the other, around zero."""
    reach = 1.06 * (max(abs(end) for row in rows for end in (row.low, row.high)) or 0.01)
    bottom = TOP + 24 * len(rows)
    frame = Frame((-reach, reach), left=_label_width([row.name for row in rows]), bottom=bottom)
    return Markup(_macros().forest(title, bottom + 24, frame, Axis("", form), rows))


def bars(rows: Sequence[tuple[str, Sequence[Piece]]], form: Format, title: str) -> Markup:
    """Stacked bars, a named one per row."""
    longest = max(sum(p.length for p in pieces) for _, pieces in rows) or 1.0
    bottom = TOP + 26 * len(rows)
    frame = Frame((0, longest), left=_label_width([name for name, _ in rows]), bottom=bottom)
    placed = []
    for name, pieces in rows:
        ends = [frame.x(end) for end in accumulate((p.length for p in pieces), initial=0.0)]
        placed.append((name, list(zip(pieces, ends, ends[1:], strict=False))))
    return Markup(_macros().bars(title, bottom + 24, frame, Axis("", form), placed))


def _label_width(names: Sequence[str]) -> float:
    return min(150.0, 16 + LETTER * max(map(len, names)))


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
    longest = max(map(len, columns)) * LETTER + 14
    cells = [[None if math.isnan(v) else round(float(v), digits) for v in line] for line in values]
    drawing = _macros().heat(
        title,
        top + tall + 36,
        left, top, wide, tall,
        units=(column, row),
        strokes=_strokes(values / reach),
        rows=[(top + (n + 0.5) * row, rows[n])
              for n in range(0, len(rows), math.ceil(len(rows) / 14))],
        columns=[(left + (n + 0.5) * column, columns[n])
                 for n in range(0, len(columns), math.ceil(longest / column))],
        x_name=x_name,
        tips=json.dumps({"x": list(columns), "y": list(rows), "v": cells}, separators=(",", ":")),
        corner=corner,
    )  # fmt: skip
    return Markup(drawing)


def _strokes(values: Floats) -> list[tuple[float, str]]:
    """A path per shade, whose strokes are runs of cells of that shade; none where there is none."""
    shades = np.nan_to_num(np.clip(values, -1, 1) * SHADES).round().astype(int)
    paths: dict[int, str] = {}
    for y, line in enumerate(shades.tolist()):
        x = 0
        for shade, cells in groupby(line):
            many = len(list(cells))
            paths[shade] = paths.get(shade, "") + f"M{x} {y}h{many}"
            x += many
    return [(shade / SHADES, paths[shade]) for shade in sorted(paths) if shade]
