"""A plan says what the tasks share: a table with a row per place of the network and a column per
task. The same name in a row: those tasks share those weights. The same names from the top down:
they share the activations, too.

A row is a partition of the tasks, so "own layer below, common layer above" can be said. Every
other module asks a plan three questions only: which steps a task walks (`path`), which weights
exist and who uses them (`users`), and in which order the heads are read (`order`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, groupby
from typing import Any

from bough.errors import UserError, nearest
from bough.plan.parser import parse
from bough.plan.types import Adapter, Names, Read, named, pal_heads, span

__all__ = ["Adapter", "Cell", "Names", "Plan", "Read", "Step"]


@dataclass(frozen=True, order=True)
class Cell:
    """Weights that exist exactly once, whoever uses them."""

    place: str
    name: str

    @property
    def key(self) -> str:
        """The cell in weight names and module keys: no dots, no blanks."""
        return f"{self.place.replace(' ', '')}/{self.name}"


@dataclass(frozen=True)
class Step:
    """One cell on a task's path, with the adapters that work beside it (on layers only)."""

    cell: Cell
    adapters: tuple[tuple[Adapter, Cell], ...] = ()


@dataclass(frozen=True)
class Plan:
    """The table. All rows name one group per task, in task order.

    Example:
        >>> plan = bough.Plan.parse("split@1, late:I", ["sst", "sts"], layers=2)
        >>> print(plan)
        split@1, late:I
                         sst  sts
        embeddings       all  all
        layer 1          all  all
        layer 2          sst  sts
        pooler           sst  sts
        late 1           sst  sts
    """

    tasks: tuple[str, ...]
    layers: int
    embeddings: Names
    layer: tuple[Names, ...]
    pooler: Names  # None: this task does not read the pooler
    late: tuple[Names, ...]
    adapters: tuple[Adapter, ...]  # None in their names: no adapter for this task
    reads: tuple[tuple[Read, ...], ...]  # per task, the heads that its own head reads
    frozen: int | None  # None: all learns; k: embeddings and layers 1..k are fixed
    heads: int = field(default=12, compare=False)  # of the trunk: PALs take as many if they can

    @classmethod
    def parse(
        cls,
        text: str | Mapping[str, Any],
        tasks: Sequence[str],
        layers: int,
        *,
        heads: int = 12,
        pooled: Collection[str] | None = None,
    ) -> Plan:
        """The plan that a line or a mapping describes.

        Args:
            text: The plan's one line, such as `split@3, pal:64`, or its table as a mapping.
            tasks: The tasks' names, in the order of the columns.
            layers: Of the trunk.
            heads: Of the trunk's attention.
            pooled: The tasks that read the pooler (default: all).
        """
        return cls(
            tasks=tuple(tasks),
            layers=layers,
            heads=heads,
            **vars(parse(text, tuple(tasks), layers, heads, pooled)),
        )

    @property
    def text(self) -> str:
        """The one line that parses to this plan; `full` is said only when nothing else is."""
        terms = [*_sharing(self), *_late(self)]
        terms += [_adapter(adapter, self) for adapter in self.adapters]
        terms += _feeds(self)
        if self.frozen is not None:
            terms.append("frozen" if self.frozen == self.layers else f"frozen@{self.frozen}")
        return ", ".join(terms) or "full"

    @property
    def pooled(self) -> tuple[str, ...]:
        """The tasks that read the pooler: `Plan.parse(..., pooled=plan.pooled)` goes round."""
        return tuple(t for t, name in zip(self.tasks, self.pooler, strict=True) if name)

    def rows(self) -> list[tuple[str, Names]]:
        """Place and names of every trunk row, from the top down, layers not merged."""
        return [
            ("embeddings", self.embeddings),
            *((f"layer {n}", names) for n, names in enumerate(self.layer, 1)),
            ("pooler", self.pooler),
            *((f"late {n}", names) for n, names in enumerate(self.late, 1)),
        ]

    # The three questions.

    def path(self, task: str) -> tuple[Step, ...]:
        """Embeddings, layers, pooler if the task reads it, late layers. Not the head."""
        i = self._index(task)
        steps = []
        for place, names in self.rows():
            name = names[i]
            if name is None:
                continue
            adapters: list[tuple[Adapter, Cell]] = []
            if place.startswith("layer "):
                n = int(place[6:])
                for adapter in self.adapters:
                    shared_by = adapter.names[i]
                    if shared_by is not None and adapter.first <= n <= adapter.last:
                        adapters.append((adapter, Cell(adapter.place, shared_by)))
            steps.append(Step(Cell(place, name), tuple(adapters)))
        return tuple(steps)

    def users(self) -> dict[Cell, tuple[str, ...]]:
        """Every cell, heads and adapters included, with the tasks that train it, in task order.

        A head belongs to its own task, and to those that read its output and move it (`feed~0.1`).
        """
        users: dict[Cell, list[str]] = {}
        places = [*self.rows(), *((a.place, a.names) for a in self.adapters)]
        for place, names in places:
            for task, name in zip(self.tasks, names, strict=True):
                if name is not None:
                    users.setdefault(Cell(place, name), []).append(task)
        for source in self.tasks:
            movers = [task for task in self.tasks if task == source or self.moves(task, source)]
            users[Cell("head", source)] = movers
        return {cell: tuple(tasks) for cell, tasks in users.items()}

    def order(self) -> tuple[str, ...]:
        """The tasks so that every head comes after those it reads; else in task order."""
        done: list[str] = []
        waiting = list(self.tasks)
        while waiting:
            ready = next(t for t in waiting if {r.source for r in self.reading(t)} <= {*done})
            waiting.remove(ready)
            done.append(ready)
        return tuple(done)

    # What follows from them.

    def reading(self, task: str) -> tuple[Read, ...]:
        """The heads that this task's head reads itself."""
        return self.reads[self._index(task)]

    def sources(self, task: str) -> tuple[str, ...]:
        """The other tasks whose path this task's texts walk, transitively, as in `order`."""
        sources: set[str] = set()
        waiting = [task]
        while waiting:
            new = {r.source for r in self.reading(waiting.pop())} - sources
            sources |= new
            waiting += new
        return tuple(t for t in self.order() if t in sources)

    def moves(self, reader: str, source: str) -> float:
        """The share of a reader's gradient that moves the head of `source`, read by it or by what
        it reads: the least on the way there, of the way where that is most."""
        return max(
            (
                read.share
                if read.source == source
                else min(read.share, self.moves(read.source, source))
                for read in self.reading(reader)
                if read.share
            ),
            default=0.0,
        )

    def learns(self, cell: Cell) -> bool:
        """Whether training moves this cell."""
        if self.frozen is None:
            return True
        if cell.place == "embeddings":
            return False
        if cell.place == "pooler":
            return self.frozen < self.layers
        return not cell.place.startswith("layer ") or int(cell.place[6:]) > self.frozen

    def only(self, task: str) -> Plan:
        """The plan of this task, and of what it reads, alone.

        Step by step `only(t).path(t)` walks the same weights as `path(t)`, under the new names.
        """
        kept = {task, *self.sources(task)}
        index = [i for i, t in enumerate(self.tasks) if t in kept]
        tasks = tuple(self.tasks[i] for i in index)

        def cut(names: Names) -> Names:
            return named(tasks, [names[i] for i in index])

        return replace(
            self,
            tasks=tasks,
            embeddings=cut(self.embeddings),
            layer=tuple(cut(names) for names in self.layer),
            pooler=cut(self.pooler),
            late=tuple(cut(names) for names in self.late),
            adapters=tuple(
                replace(a, names=cut(a.names))
                for a in self.adapters
                if any(a.names[i] is not None for i in index)
            ),
            reads=tuple(self.reads[i] for i in index),
        )

    def walked(self, tasks: Iterable[str]) -> list[tuple[Step, tuple[str, ...]]]:
        """Every step computed when these tasks, and those they read, ask about one text.

        Each comes with the tasks that walk it together: activations they share are there once.
        """
        asked = {s for t in tasks for s in (t, *self.sources(t))}
        steps: dict[tuple[int, Step], tuple[int, list[str]]] = {}  # (step before, step): its number
        for task in (t for t in self.tasks if t in asked):
            before = -1
            for step in self.path(task):
                before, together = steps.setdefault((before, step), (len(steps), []))
                together.append(task)
        return [(step, tuple(together)) for (_, step), (_, together) in steps.items()]

    def distinct_steps(self, tasks: Iterable[str]) -> int:
        """How many steps are `walked` when these tasks ask about one text."""
        return len(self.walked(tasks))

    # For the reader.

    def table(self) -> list[tuple[str, Names]]:
        """Labelled rows; neighbouring layers that are alike in names and learning are one row."""
        table: list[tuple[str, Names]] = [("embeddings", self.embeddings)]
        first = 1
        for n in range(1, self.layers + 1):
            if n < self.layers and self.layer[n] == self.layer[n - 1] and n != self.frozen:
                continue
            table.append((f"layer {span(first, n)}", self.layer[n - 1]))
            first = n + 1
        table += [("pooler", self.pooler)] if self.pooled else []
        table += [(f"late {n}", names) for n, names in enumerate(self.late, 1)]
        table += [(a.label, a.names) for a in self.adapters]
        if any(self.reads):
            read = ("+".join(_read(r) for r in reads) for reads in self.reads)
            table.append(("reads", tuple(names or None for names in read)))
        return table

    def __str__(self) -> str:
        """The line, then the table as aligned text; rows that do not learn say so."""
        lines = [("", *self.tasks, "")]
        for label, names in self.table():
            place = label.split("-")[0]
            fixed = "" if self.learns(Cell(place, "")) else "fixed"
            lines.append((label, *(name or "-" for name in names), fixed))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        widths[0] = max(widths[0], 15)
        text = ["  ".join(f"{c:{w}}" for c, w in zip(line, widths, strict=True)) for line in lines]
        return "\n".join(line.rstrip() for line in [self.text, *text])

    def _index(self, task: str) -> int:
        if task not in self.tasks:
            known = ", ".join(self.tasks)
            raise UserError(f"no task {task!r} in this plan{nearest(task, self.tasks)} ({known})")
        return self.tasks.index(task)


# The terms of the line.


def _sharing(plan: Plan) -> list[str]:
    """The sharing term that needs the fewest row terms after it, and those row terms."""
    leaves = [
        next((n for n, names in enumerate(plan.layer) if names[i] == task), plan.layers)
        for i, task in enumerate(plan.tasks)
    ]
    bases = ["full", "separate"]
    bases += [f"split@{n}{_groups(names, plan)}" for n, names in enumerate(plan.layer)]
    bases.append("split@" + ",".join(f"{t}:{n}" for t, n in zip(plan.tasks, leaves, strict=True)))
    lines = []
    for base in bases:
        parsed = parse(base, plan.tasks, plan.layers, pooled=plan.pooled)
        rows = []
        if plan.embeddings != parsed.embeddings:
            rows.append(f"row@embeddings{_groups(plan.embeddings, plan)}")
        wrong = [ours != theirs for ours, theirs in zip(plan.layer, parsed.layer, strict=True)]
        rows += [f"row@{at}{_groups(names, plan)}" for at, names in _runs(plan.layer, wrong)]
        lines.append((len(rows), [base] * (base != "full") + rows))
    _, best = min(lines, key=lambda line: (line[0], len(", ".join(line[1]))))
    last = (n if p else None for n, p in zip(plan.layer[-1], plan.pooler, strict=True))
    if plan.pooler != named(plan.tasks, last):
        best.append(f"row@pooler{_groups(plan.pooler, plan)}")
    return best


def _late(plan: Plan) -> list[str]:
    if not plan.late:
        return []
    separate, everyone = named(plan.tasks, plan.tasks), named(plan.tasks, [0] * len(plan.tasks))
    shared = [names for names in plan.late if names != separate or separate == everyone]
    usual = Counter(shared).most_common(1)[0][0] if shared else everyone
    letters = "".join("I" if names == separate != everyone else "S" for names in plan.late)
    wrong = [s == "S" and names != usual for s, names in zip(letters, plan.late, strict=True)]
    rows = [f"row@late{at}{_groups(names, plan)}" for at, names in _runs(plan.late, wrong)]
    return [f"late:{letters}{_groups(usual, plan) if usual != everyone else ''}", *rows]


def _adapter(adapter: Adapter, plan: Plan) -> str:
    text = f"{adapter.kind}:{adapter.size}"
    if adapter.kind == "pal":
        # Heads are left out only when they go without saying, on this trunk and on the usual one.
        silent = {pal_heads(adapter.size, plan.heads), pal_heads(adapter.size, 12)}
        text += f"x{adapter.heads}" if silent != {adapter.heads} else ""
    if adapter.kind == "lora" and adapter.matrices != "qv":
        text += f":{adapter.matrices}"
    if (adapter.first, adapter.last) != (1, plan.layers):
        text += f"@{span(adapter.first, adapter.last)}"
    if adapter.names != named(plan.tasks, plan.tasks):
        text += "".join(f"/{name}" for name in dict.fromkeys(adapter.names) if name)
    return text


def _feeds(plan: Plan) -> Iterator[str]:
    """Chains in which every task reads all before it alike, until every reading is said."""
    order = plan.order()
    alike: dict[str, set[tuple[str, str]]] = {}
    for task in plan.tasks:
        for read in plan.reading(task):
            alike.setdefault(read.sign, set()).add((read.source, task))
    for sign, links in sorted(alike.items()):
        unsaid = set(links)
        for pair in combinations(order, 2):
            if pair not in unsaid:
                continue
            chain = list(pair)
            for task in order[order.index(pair[1]) + 1 :]:
                if all((source, task) in links for source in chain):
                    chain.append(task)
            unsaid -= set(combinations(chain, 2))
            yield f"feed{sign}:{'>'.join(chain)}"


def _read(read: Read) -> str:
    """A reading in the table: `sst`, `~sst`, `~0.1:sst`."""
    return read.sign + ":" * bool(read.share) + read.source


def _groups(names: Names, plan: Plan) -> str:
    """The groups of a row as text; nothing when everyone stands alone."""
    if all(name in (None, task) for name, task in zip(names, plan.tasks, strict=True)):
        return ""
    return "".join(f"/{n}" for n in dict.fromkeys(names) if n and n not in plan.tasks)


def _runs(rows: Sequence[Names], wrong: Sequence[bool]) -> list[tuple[str, Names]]:
    """Neighbouring wrong rows with the same names, counted from 1."""
    runs = []
    counted = enumerate(zip(rows, wrong, strict=True), 1)
    for (names, bad), run in groupby(counted, key=lambda item: item[1]):
        numbers = [n for n, _ in run]
        runs += [(span(numbers[0], numbers[-1]), names)] * bad
    return runs
