"""A plan as a picture: one SVG without outside resources, light or dark as the reader's screen is.

Tasks are columns, places are rows from the text down to the heads. Who shares weights stands in one
box; a dotted line in a box says that the weights are shared and the activations are not.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby, permutations

from bough.plan.plan import Adapter, Cell, Names, Plan
from bough.plan.types import span

LETTER = 7.2  # about as wide as a letter of the type is
BOX, PILL, GAP, PAD = 28, 19, 10, 16

# Fill and edge of the names' boxes: the common one first, then as they come. The hues are Okabe
# and Ito's (https://jfly.uni-koeln.de/color), which colour-blind readers can tell apart.
LIGHT = [
    ("#e6eaee", "#6f7c89"),
    ("#d3e9f8", "#0072b2"),
    ("#fbe6c3", "#b97900"),
    ("#cdeee2", "#00845f"),
    ("#f6dbea", "#a8568a"),
    ("#fadccb", "#b84a00"),
    ("#f8f4b8", "#857a00"),
    ("#dde0f7", "#4a55b0"),
]
DARK = [
    ("#39434e", "#8d9aa8"),
    ("#0b3d5c", "#56b4e9"),
    ("#573b07", "#e69f00"),
    ("#07483a", "#2fc79c"),
    ("#552a44", "#dd8fbd"),
    ("#592a0f", "#f08a4b"),
    ("#4a450b", "#e6da3c"),
    ("#2f3570", "#98a2f0"),
]


@dataclass(frozen=True)
class _Row:
    """One row of boxes. Tasks with the same number in `streams` leave it with one activation."""

    label: str
    names: Names
    streams: tuple[int, ...]
    adapters: tuple[Adapter, ...]
    fixed: bool

    @property
    def lanes(self) -> list[list[Adapter]]:
        """Adapters that lie side by side, since no task has two of them."""
        lanes: list[list[Adapter]] = []
        for new in self.adapters:
            for lane in lanes:
                pairs = (zip(old.names, new.names, strict=True) for old in lane)
                if not any(a and b for pair in pairs for a, b in pair):
                    lane.append(new)
                    break
            else:
                lanes.append([new])
        return lanes

    @property
    def height(self) -> int:
        return BOX + PILL * len(self.lanes) + (5 if self.adapters else 0)


def svg(plan: Plan, title: str | None = None) -> str:
    """The picture of a plan, as an SVG file's text or as a part of an HTML page."""
    rows = _rows(plan)
    drawing = _Drawing(plan, rows, title)
    drawing.heading()
    for row in rows:
        drawing.row(row)
    drawing.heads()
    drawing.feeds()
    drawing.notes(rows)
    return drawing.text()


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
        row = _Row(place, names, tuple(streams), beside, not plan.learns(Cell(place, "")))
        if number > 1 and replace(rows[-1], label="") == replace(row, label=""):
            rows[-1] = replace(row, label=f"layer {span(first, number)}")
            continue
        first = number
        if any(names):
            rows.append(row)
    return rows


def _columns(plan: Plan, rows: Sequence[_Row]) -> tuple[int, ...]:
    """The order of tasks that cuts the fewest groups; a long list stays as it is."""
    tasks = range(len(plan.tasks))
    tables = [row.names for row in rows] + [a.names for a in plan.adapters]

    def cuts(order: tuple[int, ...]) -> int:
        return sum(len(list(groupby(names[i] for i in order))) for names in tables)

    return min(permutations(tasks), key=cuts) if len(tasks) <= 6 else tuple(tasks)


class _Drawing:
    """Shapes so far, from the top down; `y` is where the next one goes."""

    def __init__(self, plan: Plan, rows: Sequence[_Row], title: str | None) -> None:
        self.plan = plan
        self.title = title
        # Ids are made from the plan, for pages with many pictures.
        self.id = f"bough-{zlib.crc32(f'{title} {plan}'.encode()):08x}"
        self.columns = _columns(plan, rows)
        names = dict.fromkeys(n for row in rows for n in row.names if n and n != "all")
        names |= dict.fromkeys(plan.tasks)
        hues = len(LIGHT) - 1
        self.hue = {"all": 0} | {name: 1 + i % hues for i, name in enumerate(names)}
        labels = [len(row.label) for row in rows]
        pills = [len(_pill(a)) + 2 for a in plan.adapters]
        self.left = PAD + LETTER * max([*labels, len("heads")]) + 14
        self.wide = max(84, LETTER * max([*map(len, plan.tasks), *pills]) + 26)
        self.right = self.left + self.wide * len(self.columns)
        self.y: float = PAD
        self.back: list[str] = []  # lines that run behind the boxes
        self.front: list[str] = []

    # Parts of the picture.

    def heading(self) -> None:
        for text, kind in ((self.title, "title"), (self.plan.text, "line")):
            if text:
                self.y += 14
                self.write(PAD, self.y, text, kind, "start")
                self.y += 8
        self.y += 18
        for at, i in enumerate(self.columns):
            self.write(self.middle(at), self.y, self.plan.tasks[i], "task")
        self.y += 10
        self.top = self.y

    def row(self, row: _Row) -> None:
        self.write(self.left - 14, self.y + BOX / 2 + 4, row.label, "label", "end")
        kind = "fixed" if row.fixed else ""
        self.boxes(row.names, row.streams, self.y, row.height, BOX, kind)
        for at in range(1, len(self.columns)):
            i, j = self.columns[at - 1], self.columns[at]
            if row.names[i] and row.names[i] == row.names[j] and row.streams[i] != row.streams[j]:
                x = self.left + at * self.wide
                # Above and below the name, which may stand in the middle.
                self.line(self.front, x, self.y + 2, x, self.y + 8, "apart")
                self.line(self.front, x, self.y + BOX - 8, x, self.y + row.height - 2, "apart")
        for n, lane in enumerate(row.lanes):
            top = self.y + BOX - 2 + n * PILL
            for adapter in lane:
                size = PILL - 3
                self.boxes(adapter.names, row.streams, top, size, size, "pill", _pill(adapter))
        if row.fixed:
            self.write(self.right + 8, self.y + BOX / 2 + 4, "fixed", "note", "start")
        self.y += row.height + GAP

    def heads(self) -> None:
        for at in range(len(self.columns)):
            self.line(self.back, self.middle(at), self.top, self.middle(at), self.y, "flow")
        self.write(self.left - 14, self.y + BOX / 2 + 4, "heads", "label", "end")
        alone = range(len(self.plan.tasks))
        self.boxes(self.plan.tasks, alone, self.y, BOX, BOX, "head")
        self.y += BOX

    def feeds(self) -> None:
        """Arcs below the heads; each end has a place of its own, ordered by its other end."""
        place = {self.plan.tasks[i]: at for at, i in enumerate(self.columns)}
        links = [(r.source, t, r.through) for t in self.plan.tasks for r in self.plan.reading(t)]
        ends: dict[str, list[tuple[bool, int, str]]] = {task: [] for task in self.plan.tasks}
        for source, reader, _ in links:
            # Arcs to the left start left of those to the right, short ones outside: no crossings.
            for one, other in ((source, reader), (reader, source)):
                ends[one].append((place[other] > place[one], -place[other], other))

        def x(task: str, other: str) -> float:
            at = sorted(ends[task])
            n = next(n for n, end in enumerate(at) if end[2] == other)
            apart = min(16.0, (self.wide - 30) / max(1, len(at)))
            return self.middle(place[task]) + (n - (len(at) - 1) / 2) * apart

        deepest = 0.0
        for source, reader, through in links:
            a, b = x(source, reader), x(reader, source)
            far = abs(place[source] - place[reader])
            depth = 16 + 15 * far
            deepest = max(deepest, depth)
            kind = "through" if through else "stop"
            curve = f"M{a:g} {self.y} C{a:g} {self.y + depth:g} {b:g} {self.y + depth:g} "
            curve += f"{b:g} {self.y + 6}"
            words = f"{reader} reads {source}"
            self.front.append(
                f'<path class="feed {kind}" d="{curve}" marker-end="url(#{self.id}-arrow)">'
                f"<title>{escape(words)}</title></path>"
            )
        self.y += deepest * 0.8 + PAD * 0.5

    def notes(self, rows: Sequence[_Row]) -> None:
        """A line for each sign that this picture uses."""
        ways = {r.through for t in self.plan.tasks for r in self.plan.reading(t)}
        notes = []
        if any("apart" in shape for shape in self.front):
            notes.append("dotted line: the same weights, computed for each side by itself")
        if False in ways:
            notes.append("arrow: reads the other head's output")
        if True in ways:
            notes.append("dashed arrow: reads it, and its gradient goes through to the trunk")
        for note in notes:
            self.y += 16
            self.write(PAD, self.y, note, "note", "start")
        self.y += PAD

    def text(self) -> str:
        """The whole file."""
        longest = max(len(self.plan.text) * 7.3, len(self.title or "") * 8.3)
        fixed = 40 if self.plan.frozen is not None else 0
        width = round(max(self.right + fixed, longest + PAD) + PAD)
        height = round(self.y)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="bough-plan" role="img" '
                f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
                f'aria-labelledby="{self.id}-title {self.id}-desc">',
                f'<title id="{self.id}-title">{escape(self.title or self.plan.text)}</title>',
                f'<desc id="{self.id}-desc">{escape(str(self.plan))}</desc>',
                f"<style>{_style()}</style>",
                f'<defs><marker id="{self.id}-arrow" viewBox="0 0 8 8" refX="6" refY="4" '
                'markerWidth="7" markerHeight="7" orient="auto">'
                '<path class="arrow" d="M0 0.5 L8 4 L0 7.5 Z"/></marker></defs>',
                *self.back,
                *self.front,
                "</svg>",
                "",
            ]
        )

    # Shapes.

    def middle(self, column: int) -> float:
        return self.left + (column + 0.5) * self.wide

    def boxes(
        self,
        names: Names,
        streams: Sequence[int],
        y: float,
        height: float,
        line: float,
        kind: str,
        words: str = "",
    ) -> None:
        """A box for every run of columns with one name; parts of a cut group are tied together."""
        ends: dict[str, float] = {}
        inset = 12 if kind == "pill" else 5
        columns = groupby(range(len(self.columns)), key=lambda at: names[self.columns[at]])
        for name, run in columns:
            if name is None:
                continue
            run_of = list(run)
            x = self.left + run_of[0] * self.wide + inset
            width = len(run_of) * self.wide - 2 * inset
            hue = f"hue{self.hue.get(name, 0)}"
            if name in ends:
                middle = y + height - 4
                self.line(self.back, ends[name], middle, x, middle, f"tie {hue}")
            ends[name] = x + width
            users = _users(self.plan.tasks, names, name, streams)
            self.front.append(
                f'<rect class="box {hue} {kind}" data-tasks="{escape(users)}" '
                f'x="{x:g}" y="{y:g}" width="{width:g}" '
                f'height="{height:g}" rx="{7 if kind == "pill" else 5}">'
                f"<title>{escape(f'{words} {name}'.strip())}</title></rect>"
            )
            text = words or name
            if len(text) * LETTER > width - 6:
                text = f"{name.count('+') + 1} tasks"
            self.write(x + width / 2, y + line / 2 + 4, text, "small" if words else "name")

    def line(self, where: list[str], x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        where.append(f'<path class="{kind}" d="M{x1:g} {y1:g} L{x2:g} {y2:g}"/>')

    def write(self, x: float, y: float, text: str, kind: str, anchor: str = "middle") -> None:
        self.front.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
        )


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


def _style() -> str:
    """The same shapes in two sets of colours."""

    def colours(hues: Sequence[tuple[str, str]], ink: str, pale: str, line: str, paper: str) -> str:
        rules = [
            f"text{{fill:{ink}}}.label,.note{{fill:{pale}}}",
            f".flow{{stroke:{line}}}.apart{{stroke:{pale}}}.feed{{stroke:{ink}}}.arrow{{fill:{ink}}}",
        ]
        for n, (fill, edge) in enumerate(hues):
            rules.append(f".hue{n}{{fill:{fill};stroke:{edge}}}")
        rules.append(f".pill{{fill:{paper}}}")
        return _scoped("".join(rules))

    shapes = (
        "text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif}"
        ".title{font-size:15px;font-weight:600}.task{font-weight:600}.small,.note{font-size:11px}"
        ".line{font-family:ui-monospace,Menlo,Consolas,monospace}"
        ".box{stroke-width:1.2}.fixed{stroke-dasharray:5 3}"
        ".flow{stroke-width:1.5}.tie{stroke-width:2;fill:none}.feed{fill:none;stroke-width:1.4}"
        ".apart{stroke-width:1.4;stroke-dasharray:1.5 3.5}.through{stroke-dasharray:5 3}"
    )
    light = colours(LIGHT, "#1d2530", "#5b6773", "#b4bdc6", "#ffffff")
    dark = colours(DARK, "#e9edf2", "#a3afbb", "#5a6673", "#1b222a")
    return f"{_scoped(shapes)}{light}@media(prefers-color-scheme:dark){{{dark}}}"


def _scoped(rules: str) -> str:
    """Rules that stay inside the picture when it stands in a page."""
    scoped = []
    for rule in rules.split("}"):
        if rule:
            chosen, body = rule.split("{")
            inside = ",".join(f".bough-plan {one}" for one in chosen.split(","))
            scoped.append(f"{inside}{{{body}}}")
    return "".join(scoped)
