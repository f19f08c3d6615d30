"""The one forward pass: sequences walk the plan's rows together for as long as they may.

A *walker* is (task, reader): the task whose way is walked, and the task whose loss or answer wants
it (the same, unless the plan feeds one task's output to another). A *stream* is a sequence and the
walkers that still share its activations. At every row of the plan the streams are grouped by the
cell they use, a stream splitting where its walkers' names differ, and each cell runs once on all
rows of its group. Training, evaluation, serving and export all come through here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bough.data.examples import CachedStates
from bough.data.packing import Pack
from bough.model.adapters import AdapterModule, Beside, Segment
from bough.model.attention import Layout, gather_rows
from bough.model.dropout import DropoutGenerator
from bough.model.transformer import Embeddings, Layer, mean_of_texts
from bough.plan.plan import Cell, Plan

Walker = tuple[str, str]  # (task, reader)
READ = "read"  # the row in which a sequence's states become one vector


class Use(NamedTuple):
    """How a walker passes one row: with which cell, whose gradient, which adapters."""

    cell: Cell | None  # None: nothing here for this walker
    lent: str = ""  # "": learns as usual; "stop": no gradient; "through": past fixed weights
    adapters: tuple[tuple[Cell, bool], ...] = ()  # and whether their weights are held fixed


class Stream(NamedTuple):
    sequence: int
    length: int  # rows: one per token, a single one once it is read out
    walkers: tuple[Walker, ...]
    origin: tuple[str, str] = ("", "")  # embeddings that gave it its position bias (MPNet), lent


@dataclass(frozen=True)
class Group:
    """The streams at one cell, and their rows."""

    streams: tuple[Stream, ...]
    rows: Tensor  # each stream's, `length` of them, one stream after another


class Route:
    """The plan's rows as every walker passes them; made once per model."""

    def __init__(self, plan: Plan, poolings: Mapping[str, str], learning: Collection[Cell]):
        self.plan = plan
        self.poolings = poolings
        self.learning = learning
        self.places = [place for place, _ in plan.rows()]
        self.places.insert(1 + plan.layers, READ)
        self.plain: dict[Walker, list[Use]] = {}  # in evaluation
        self.uses: dict[Walker, list[Use]] = {}  # in training
        for reader in plan.tasks:
            for task in (reader, *plan.sources(reader)):
                self.plain[task, reader] = self._uses(task)
                self.uses[task, reader] = self._lent(task, reader)
        fixed = [self._fixed(i) for i in range(len(self.places))]
        self.fixed = fixed.index(False) if False in fixed else len(fixed)
        """How many leading rows never learn: their states can be kept, and take no dropout."""

    def _uses(self, task: str) -> list[Use]:
        steps = {step.cell.place: step for step in self.plan.way(task)}
        pooling = "mean" if self.poolings[task] == "mean" else "cls"
        uses = {
            place: Use(step.cell, "", tuple((cell, False) for _, cell in step.adapters))
            for place, step in steps.items()
        }
        uses[READ] = Use(Cell(READ, pooling))
        return [uses.get(place, Use(None)) for place in self.places]

    def _lent(self, task: str, reader: str) -> list[Use]:
        """How `task`'s way is walked for `reader`'s loss, which moves cells of its own way only."""
        uses, mine = self._uses(task), self._uses(reader)
        if self._through(reader, task):
            own = {cell for use in mine for cell in (use.cell, *(c for c, _ in use.adapters))}
            return [
                Use(
                    use.cell,
                    "" if use.cell in own else "through",
                    tuple((cell, cell not in own) for cell, _ in use.adapters),
                )
                for use in uses
            ]
        # Nothing flows back; while the two walk together there is nothing to be held back either.
        parted = next((i for i, use in enumerate(uses) if use != mine[i]), len(uses))
        return [use._replace(lent="stop" if i >= parted else "") for i, use in enumerate(uses)]

    def _through(self, reader: str, source: str) -> bool:
        """Whether a gradient reaches `source`'s way from `reader`: all readings between let it."""
        return reader == source or any(
            read.through and self._through(read.source, source)
            for read in self.plan.reading(reader)
        )

    def _fixed(self, row: int) -> bool:
        uses = [uses[row] for uses in self.uses.values()]
        return all((u.cell is None or u.cell not in self.learning) and not u.adapters for u in uses)

    def walkers(self, task: str) -> tuple[Walker, ...]:
        """All that must be walked on a sequence for this task's answer."""
        return ((task, task), *((source, task) for source in self.plan.sources(task)))


class PackedForward:
    """One batch on its way through the rows."""

    def __init__(
        self,
        route: Route,
        cells: nn.ModuleDict,
        pack: Pack,
        asked: Sequence[tuple[str, ...]],
        dice: DropoutGenerator | None,
    ):
        self.route = route
        self.cells = cells
        self.dice = dice
        # A pass that is done again without gradients, to see what a step changed, goes as before.
        learning = torch.is_grad_enabled() or dice is not None
        self.uses = route.uses if learning else route.plain
        walkers: Callable[[tuple[str, ...]], tuple[Walker, ...]] = cache(
            lambda tasks: tuple(dict.fromkeys(w for t in tasks for w in route.walkers(t)))
        )
        streams = [
            Stream(i, n, walkers(tasks))
            for i, (n, tasks) in enumerate(zip(pack.lengths, asked, strict=True))
        ]
        self.row = pack.first
        self.groups = [Group(tuple(streams), pack.tokens)]
        if pack.first:
            self.groups = [_group(start, cached) for start, cached in pack.cached]

    def run(self, last: int | None = None) -> list[Group]:
        """Pass the rows up to `last`, by default all; the groups as they stand then."""
        for row in range(self.row, len(self.route.places) if last is None else last):
            regrouped = self._regroup(row)
            self.groups = [self._pass(row, use, group) for use, group in regrouped.items()]
        return self.groups

    def vectors(self) -> dict[Walker, tuple[Tensor, Tensor]]:
        """For each walker the vectors of its group, and sequence number -> row there."""
        out: dict[Walker, tuple[Tensor, Tensor]] = {}
        for group in self.groups:
            places: dict[Walker, list[tuple[int, int]]] = {}
            for row, stream in enumerate(group.streams):
                for walker in stream.walkers:
                    places.setdefault(walker, []).append((stream.sequence, row))
            for walker, pairs in places.items():
                sequences, rows = zip(*pairs, strict=True)
                index = torch.full((max(sequences) + 1,), -1)
                index[torch.tensor(sequences)] = torch.tensor(rows)
                out[walker] = (group.rows, index)
        return out

    # Grouping.

    def _regroup(self, row: int) -> dict[Use, Group]:
        """The streams by the cell they use in this row, ordered by adapters and length."""

        @cache
        def split(walkers: tuple[Walker, ...]) -> list[tuple[Use, tuple[Walker, ...]]]:
            parts: dict[Use, list[Walker]] = {}
            for walker in walkers:
                parts.setdefault(self.uses[walker][row], []).append(walker)
            return [(use, tuple(part)) for use, part in parts.items()]

        bound: dict[Use, list[tuple[Use, int, Stream]]] = {}  # group key -> (use, old row, stream)
        start = 0
        for group in self.groups:
            for stream in group.streams:
                for use, walkers in split(stream.walkers):
                    key = Use(use.cell, use.lent)
                    bound.setdefault(key, []).append((use, start, stream._replace(walkers=walkers)))
                start += stream.length
        every = self.groups
        rows = every[0].rows if len(every) == 1 else torch.cat([g.rows for g in every])
        return {key: self._ordered(rows, found) for key, found in bound.items()}

    @staticmethod
    def _ordered(rows: Tensor, found: list[tuple[Use, int, Stream]]) -> Group:
        found = sorted(found, key=lambda f: (f[0].adapters, f[2].origin, f[2].length))
        streams = tuple(stream for _, _, stream in found)
        starts = [start for _, start, _ in found]
        lengths = [stream.length for stream in streams]
        ends = [start + length for start, length in zip(starts, lengths, strict=True)]
        if starts == [0, *ends[:-1]] and ends[-1] == rows.shape[0]:
            return Group(streams, rows)
        return Group(streams, rows[gather_rows(starts, lengths).to(rows.device)])

    # Passing.

    def _pass(self, row: int, use: Use, group: Group) -> Group:
        if use.cell is None:
            return group
        place = use.cell.place
        if place == READ:
            return self._read(use.cell.name, group)
        dice = None if row < self.route.fixed else self.dice
        module = self.cells[use.cell.key]
        with torch.no_grad() if use.lent == "stop" else nullcontext():
            if isinstance(module, Embeddings):
                ids, types, positions = group.rows.unbind(1)
                rows = call(module, use.lent, ids, types, positions, dice)
                streams = group.streams
                if module.relative is not None:
                    origin = (use.cell.key, use.lent)
                    streams = tuple(s._replace(origin=origin) for s in streams)
                return Group(streams, rows)
            if isinstance(module, Layer):
                return self._layer(row, use, module, group, dice)
            return replace(group, rows=call(module, use.lent, group.rows))

    def _layer(
        self, row: int, use: Use, module: Layer, group: Group, dice: DropoutGenerator | None
    ) -> Group:
        last = row == self.route.plan.layers
        firsts = last and all(
            self.route.poolings[task] != "mean" for s in group.streams for task, _ in s.walkers
        )
        layout = self._layout(group.streams)
        tweaks = self._tweaks(row, group.streams)
        rows = call(module, use.lent, group.rows, layout, dice, firsts, tweaks)
        return Group(_single(group.streams) if firsts else group.streams, rows)

    def _layout(self, streams: Sequence[Stream]) -> Layout:
        lengths = tuple(stream.length for stream in streams)
        origins = list(dict.fromkeys(stream.origin for stream in streams))
        if origins == [("", "")]:
            return Layout(lengths)
        tables = []
        for key, lent in origins:
            relative = self.cells[key].relative
            assert isinstance(relative, nn.Embedding)
            tables.append(relative.weight.detach() if lent else relative.weight)
        number = {origin: i for i, origin in enumerate(origins)}
        return Layout(lengths, tuple(tables), tuple(number[s.origin] for s in streams))

    def _tweaks(self, row: int, streams: Sequence[Stream]) -> Beside | None:
        segments = []
        for adapters, part in groupby(streams, lambda s: self.uses[s.walkers[0]][row].adapters):
            modules = tuple(self._adapter(cell, lent) for cell, lent in adapters)
            segments.append(Segment(modules, Layout(tuple(stream.length for stream in part))))
        return Beside(row, segments) if any(s.adapters for s in segments) else None

    def _adapter(self, cell: Cell, lent: bool) -> AdapterModule:
        module = self.cells[cell.key]
        assert isinstance(module, AdapterModule)
        return Lent(module) if lent else module

    def _read(self, pooling: str, group: Group) -> Group:
        layout = Layout(tuple(stream.length for stream in group.streams))
        if pooling == "mean":
            rows = mean_of_texts(group.rows, layout)
        elif layout.tokens == len(group.streams):  # read out already
            rows = group.rows
        else:
            rows = group.rows[layout.starts.to(group.rows.device)]
        return Group(_single(group.streams), rows)


def _group(start: int, cached: CachedStates) -> Group:
    """Sequences, numbered from `start` on, that have come this far already."""
    lengths = np.diff(cached.bounds).tolist()
    streams = tuple(
        Stream(start + i, n, cached.walkers, cached.origin) for i, n in enumerate(lengths)
    )
    return Group(streams, cached.rows)


def _single(streams: Sequence[Stream]) -> tuple[Stream, ...]:
    return tuple(stream._replace(length=1) for stream in streams)


def call(module: nn.Module, lent: str, *inputs: Any) -> Any:
    """The module's answer; lent ones are passed with their weights held fixed."""
    if lent != "through":
        return module(*inputs)
    fixed = {name: p.detach() for name, p in module.named_parameters()}
    return torch.func.functional_call(module, fixed, inputs)


class Lent(AdapterModule):
    """An adapter of another task: the gradient passes it and leaves its weights alone."""

    def __init__(self, module: AdapterModule):
        super().__init__()
        self.module = module

    def _call(self, method: str, *inputs: Any) -> Tensor | None:
        out: Tensor | None = call(Method(self.module, method), "through", *inputs)
        return out

    def matrix(self, n: int, letter: str, x: Tensor) -> Tensor | None:
        return self._call("matrix", n, letter, x)

    def beside(
        self, n: int, h: Tensor, layout: Layout, dice: DropoutGenerator | None, firsts: bool
    ) -> Tensor | None:
        return self._call("beside", n, h, layout, dice, firsts)

    def after(self, n: int, y: Tensor) -> Tensor | None:
        return self._call("after", n, y)


class Method(nn.Module):
    """One method of a module as a module, for functional_call."""

    def __init__(self, module: nn.Module, method: str):
        super().__init__()
        self.module = module
        self.method = method

    def forward(self, *inputs: Any) -> Any:
        return getattr(self.module, self.method)(*inputs)
