"""A plan says what the tasks share: a table with a row per place of the network and a column per
task. The same name in a row: those tasks share those weights. The same names from the top down:
they share the activations, too.

A row is a partition of the tasks, so "own layer below, common layer above" can be said. Every
other room asks a plan three questions only: which steps a task walks (`way`), which weights exist
and who uses them (`users`), and in which order the heads are read (`order`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bough.mistakes import Mistake, nearest
from bough.terms import Adapter, Names, Read, Said, named, read, write

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
    """One cell on a task's way, with the adapters that work beside it (on layers only)."""

    cell: Cell
    adapters: tuple[tuple[Adapter, Cell], ...] = ()


@dataclass(frozen=True)
class Plan:
    """The table. All rows name one group per task, in task order."""

    tasks: tuple[str, ...]
    layers: int
    embeddings: Names
    layer: tuple[Names, ...]
    pooler: Names  # None: this task does not read the pooler
    late: tuple[Names, ...] = ()
    adapters: tuple[Adapter, ...] = ()  # None in their names: no adapter for this task
    reads: tuple[tuple[Read, ...], ...] = ()  # per task, the heads that its own head reads
    frozen: int | None = None  # None: all learns; k: embeddings and layers 1..k are fixed
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
        """The plan that a line or a mapping describes, for a trunk of so many layers and heads.

        `pooled` names the tasks that read the pooler (default: all).
        """
        return cls(
            tasks=tuple(tasks),
            layers=layers,
            heads=heads,
            **vars(read(text, tuple(tasks), layers, heads, pooled)),
        )

    @property
    def text(self) -> str:
        """The one line that parses to this plan; equal plans have equal lines."""
        said = Said(**{key: getattr(self, key) for key in Said.__dataclass_fields__})
        return write(said, self.tasks, self.heads)

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

    def way(self, task: str) -> tuple[Step, ...]:
        """Embeddings, layers, pooler if the task reads it, late layers. Not the head."""
        i = self._index(task)
        steps = []
        for place, names in self.rows():
            name = names[i]
            if name is None:
                continue
            beside: list[tuple[Adapter, Cell]] = []
            if place.startswith("layer "):
                n = int(place[6:])
                for adapter in self.adapters:
                    own = adapter.names[i]
                    if own is not None and adapter.first <= n <= adapter.last:
                        beside.append((adapter, Cell(adapter.place, own)))
            steps.append(Step(Cell(place, name), tuple(beside)))
        return tuple(steps)

    def users(self) -> dict[Cell, tuple[str, ...]]:
        """Every cell, heads and adapters included, with the tasks that train it, in task order.

        A head belongs to its own task alone: who reads its output does not move it.
        """
        found: dict[Cell, list[str]] = {}
        places = [*self.rows(), *((a.place, a.names) for a in self.adapters), ("head", self.tasks)]
        for place, names in places:
            for task, name in zip(self.tasks, names, strict=True):
                if name is not None:
                    found.setdefault(Cell(place, name), []).append(task)
        return {cell: tuple(tasks) for cell, tasks in found.items()}

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
        """The other tasks whose way is walked on this task's texts, transitively, as in `order`."""
        found: set[str] = set()
        waiting = [task]
        while waiting:
            new = {r.source for r in self.reading(waiting.pop())} - found
            found |= new
            waiting += new
        return tuple(t for t in self.order() if t in found)

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

        Step by step `only(t).way(t)` walks the same weights as `way(t)`, under the new names.
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

    def distinct_steps(self, tasks: Iterable[str]) -> int:
        """Steps computed when these tasks ask about one text, what they read included.

        Activations that tasks share are counted once.
        """
        walked = set()
        for task in {s for t in tasks for s in (t, *self.sources(t))}:
            way = self.way(task)
            walked |= {way[:n] for n in range(1, len(way) + 1)}
        return len(walked)

    # For the reader.

    def table(self) -> list[tuple[str, Names]]:
        """Labelled rows; neighbouring layers that are alike in names and learning are one row."""
        table: list[tuple[str, Names]] = [("embeddings", self.embeddings)]
        first = 1
        for n in range(1, self.layers + 1):
            if n < self.layers and self.layer[n] == self.layer[n - 1] and n != self.frozen:
                continue
            table.append((f"layer {_span(first, n)}", self.layer[n - 1]))
            first = n + 1
        table += [("pooler", self.pooler)] if self.pooled else []
        table += [(f"late {n}", names) for n, names in enumerate(self.late, 1)]
        table += [(a.label, a.names) for a in self.adapters]
        if any(self.reads):
            read = ("+".join("~" * r.through + r.source for r in reads) for reads in self.reads)
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
            raise Mistake(f"no task {task!r} in this plan{nearest(task, self.tasks)} ({known})")
        return self.tasks.index(task)


def _span(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else f"{first}"
