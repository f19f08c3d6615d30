"""A plan as a picture: one SVG without outside resources, light or dark as the reader's screen is.

Tasks are columns, places are rows from the text down to the heads. Who shares weights stands in one
box; a dotted line in a box says that the weights are shared and the activations are not. Here is
where all stands; `templates/diagram.svg` says how it looks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, pairwise, permutations
from typing import Any, NamedTuple

from jinja2 import Template

from bough.plan.plan import Adapter, Cell, Names, Plan
from bough.plan.types import span
from bough.templates import environment

LETTER = 7.2  # about as wide as a letter of the type is
BOX, PILL, GAP, PAD = 28, 19, 10, 16
HUES = 7  # of the template, besides the common one


@dataclass(frozen=True)
class _Row:
    """One row of boxes. Tasks with the same number in `streams` leave it with one activation."""

    label: str
    names: Names
    streams: tuple[int, ...]
    adapters: tuple[Adapter, ...]
    kind: str  # fixed, head, or nothing special

    @property
    def lanes(self) -> list[list[Adapter]]:
        """Adapters that lie side by side, since no task has two of them."""
        lanes: list[list[Adapter]] = []
        for new in self.adapters:
            for lane in lanes:
                if not any(
                    a and b for old in lane for a, b in zip(old.names, new.names, strict=True)
                ):
                    lane.append(new)
                    break
            else:
                lanes.append([new])
        return lanes

    @property
    def height(self) -> int:
        return BOX + PILL * len(self.lanes) + (5 if self.adapters else 0)


class _Box(NamedTuple):
    """A box over neighbouring columns, or a pill in it for an adapter."""

    x: float
    width: float
    hue: int
    title: str
    text: str
    users: str
    tied_to: float | None  # the right end of the same group's part before it


def svg(plan: Plan, title: str | None = None) -> str:
    """The picture of a plan, as an SVG file's text or as a part of an HTML page."""
    alone = tuple(range(len(plan.tasks)))
    rows = [*_rows(plan), _Row("heads", plan.tasks, alone, (), "head")]
    columns = _Columns(plan, rows)
    heading = [(kind, words) for kind, words in (("title", title), ("line", plan.text)) if words]
    top = y = PAD + 22 * len(heading) + 28
    placed = []
    for row in rows:
        placed.append(columns.placed(row, y))
        y += row.height + GAP
    feeds = columns.feeds()
    notes = [*_notes(plan, any(row["apart"] for row in placed))]
    bottom = y - GAP
    below = bottom + max((feed["depth"] for feed in feeds), default=0) * 0.8 + PAD * 0.5
    longest = max(len(plan.text) * 7.3, len(title or "") * 8.3)
    fixed = 40 if plan.frozen is not None else 0
    return _template().render(
        # Made from the plan, for pages with many pictures.
        id=f"bough-{zlib.crc32(f'{title} {plan}'.encode()):08x}",
        plan=plan,
        title=title,
        width=round(max(columns.right + fixed, longest + PAD) + PAD),
        height=round(below + 16 * len(notes) + PAD),
        pad=PAD, left=columns.left, right=columns.right, top=top, bottom=bottom, below=below,
        columns=[(plan.tasks[i], columns.middle(at)) for at, i in enumerate(columns.order)],
        heading=heading, rows=placed, feeds=feeds, notes=notes,
    )  # fmt: skip


@cache
def _template() -> Template:
    templates = environment("bough.plan", html=True)
    templates.filters["g"] = "{:g}".format
    return templates.get_template("diagram.svg")


def _rows(plan: Plan) -> list[_Row]:
    """The trunk's rows; neighbouring layers that are alike in everything are one."""
    streams = [0] * len(plan.tasks)
    rows: list[_Row] = []
    first = 1
    for place, names in plan.rows():
        number = int(place[6:]) if place.startswith("layer ") else 0
        beside = tuple(a for a in plan.adapters if a.first <= number <= a.last)
        ways = [
            (stream, name, tuple(a.names[i] for a in beside))
            for i, (stream, name) in enumerate(zip(streams, names, strict=True))
        ]
        streams = [ways.index(way) for way in ways]
        kind = "" if plan.learns(Cell(place, "")) else "fixed"
        row = _Row(place, names, tuple(streams), beside, kind)
        if number > 1 and replace(rows[-1], label="") == replace(row, label=""):
            rows[-1] = replace(row, label=f"layer {span(first, number)}")
            continue
        first = number
        if any(names):
            rows.append(row)
    return rows


class _Columns:
    """The tasks from left to right, and what stands in their columns."""

    def __init__(self, plan: Plan, rows: Sequence[_Row]) -> None:
        self.plan = plan
        self.order = _order([row.names for row in rows] + [a.names for a in plan.adapters])
        names = dict.fromkeys(n for row in rows for n in row.names if n and n != "all")
        self.hues = {name: 1 + i % HUES for i, name in enumerate(names)}
        self.left = PAD + LETTER * max(len(row.label) for row in rows) + 14
        pills = [len(_pill(a)) + 2 for a in plan.adapters]
        self.wide = max(84, LETTER * max([*map(len, plan.tasks), *pills]) + 26)
        self.right = self.left + self.wide * len(self.order)

    def middle(self, at: int) -> float:
        return self.left + (at + 0.5) * self.wide

    def placed(self, row: _Row, y: float) -> dict[str, Any]:
        """A row's place and its shapes."""
        apart = [
            self.left + at * self.wide
            for at, (i, j) in enumerate(pairwise(self.order), 1)
            if row.names[i] and row.names[i] == row.names[j] and row.streams[i] != row.streams[j]
        ]
        lanes = [
            [pill for a in lane for pill in self.boxes(a.names, row.streams, 12, _pill(a))]
            for lane in row.lanes
        ]
        return {
            "label": row.label,
            "kind": row.kind,
            "y": y,
            "height": row.height,
            "boxes": [*self.boxes(row.names, row.streams, 5)],
            "lanes": [(y + BOX - 2 + n * PILL, pills) for n, pills in enumerate(lanes)],
            "apart": apart,  # where a box has a dotted line
        }

    def boxes(
        self, names: Names, streams: Sequence[int], inset: int, words: str = ""
    ) -> Iterator[_Box]:
        """A box for every run of columns with one name; parts of a cut group are tied together."""
        ends: dict[str, float] = {}
        at = 0
        for name, run in groupby(names[i] for i in self.order):
            many = len(list(run))
            x, width = self.left + at * self.wide + inset, many * self.wide - 2 * inset
            at += many
            if name is None:
                continue
            text = words or name
            if len(text) * LETTER > width - 6:
                text = f"{name.count('+') + 1} tasks"
            users = _users(self.plan.tasks, names, name, streams)
            hue, title = self.hues.get(name, 0), f"{words} {name}".strip()
            yield _Box(x, width, hue, title, text, users, ends.get(name))
            ends[name] = x + width

    def feeds(self) -> list[dict[str, Any]]:
        """Arcs below the heads; each end has a place of its own, ordered by its other end."""
        tasks = self.plan.tasks
        place = {tasks[i]: at for at, i in enumerate(self.order)}
        links = [(r.source, t, r) for t in tasks for r in self.plan.reading(t)]

        def x(task: str, other: str) -> float:
            ends = [b if a == task else a for a, b, _ in links if task in (a, b)]
            # Arcs to the left start left of those to the right, short ones outside: no crossings.
            ends.sort(key=lambda end: (place[end] > place[task], -place[end]))
            apart = min(16.0, (self.wide - 30) / len(ends))
            return self.middle(place[task]) + (ends.index(other) - (len(ends) - 1) / 2) * apart

        return [
            {
                "title": f"{reader} reads {source}"
                + (f", and moves it by {read.share:g} of its gradient" if read.share else ""),
                "kind": "through" if read.through else "stop",
                "start": x(source, reader),
                "end": x(reader, source),
                "depth": 16 + 15 * abs(place[source] - place[reader]),
            }
            for source, reader, read in links
        ]


def _order(tables: Sequence[Names]) -> tuple[int, ...]:
    """The order of tasks that cuts the fewest groups; a long list stays as it is."""
    tasks = range(len(tables[0]))

    def cuts(order: tuple[int, ...]) -> int:
        return sum(len(list(groupby(names[i] for i in order))) for names in tables)

    return min(permutations(tasks), key=cuts) if len(tasks) <= 6 else tuple(tasks)


def _notes(plan: Plan, dotted: bool) -> Iterator[str]:
    """A line for each sign that this picture uses."""
    through = {read.through for task in plan.tasks for read in plan.reading(task)}
    if dotted:
        yield "dotted line: the same weights, computed for each side by itself"
    if False in through:
        yield "arrow: reads the other head's output"
    if True in through:
        yield "dashed arrow: reads it, and its gradient goes through to the trunk"


def _users(tasks: Sequence[str], names: Names, name: str, streams: Sequence[int]) -> str:
    """The box's tasks for a page's script: `a b|c`, where `a` and `b` share activations, too."""
    groups: dict[int, list[str]] = {}
    for task, own, stream in zip(tasks, names, streams, strict=True):
        if own == name:
            groups.setdefault(stream, []).append(task)
    return "|".join(" ".join(group) for group in groups.values())


def _pill(adapter: Adapter) -> str:
    matrices = f" {adapter.matrices}" if adapter.matrices not in ("", "qv") else ""
    return f"{adapter.kind} {adapter.size}{matrices}"
