"""The one forward pass: sequences go through the plan's rows together for as long as they may.

A *stream* is a sequence and the task uses (see `routing`) that still share its activations. At
every row of the plan the streams are grouped by the cell they use, a stream splitting where its
task uses differ, and each cell runs once on all rows of its group. Training, evaluation and
answering with torch come through here. The ONNX export calls the same cells on texts of one length;
that for transformers has code of its own, which cannot know bough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bough.data.examples import CachedStates
from bough.data.packing import Pack
from bough.model.adapters import AdapterModule, Segment, SegmentAdapters
from bough.model.attention import Layout, gather_rows
from bough.model.copied_rows import copied
from bough.model.dropout import DropoutGenerator
from bough.model.families.parts import EmbeddingsModule, LayerModule
from bough.model.frozen_call import FrozenAdapter, call_frozen
from bough.model.routing import READ, WORDS, Routing, RowUse, TaskUse
from bough.model.transformer import mean_of_texts
from bough.native import row_kernels
from bough.native.norm import wide
from bough.plan.plan import Cell

Origin = tuple[str, str]  # key of the embeddings that gave the position bias (MPNet), and its grad


class Stream(NamedTuple):
    sequence: int
    length: int  # rows: one per token; once it is read out a single one, or one per word
    task_uses: tuple[TaskUse, ...]  # none: rows that fill a group up, which nobody reads
    origin: Origin = ("", "")


@dataclass(frozen=True)
class Group:
    """The streams at one cell, and their rows."""

    streams: tuple[Stream, ...]
    rows: Tensor  # each stream's, `length` of them, one stream after another


class PackedForward:
    """One batch on its way through the plan's rows."""

    def __init__(
        self,
        routing: Routing,
        cells: nn.ModuleDict,
        pack: Pack,
        asked: Sequence[tuple[str, ...]],
        dropout: DropoutGenerator | None,
        narrow: torch.dtype | None = None,
    ):
        self.routing = routing
        self.cells = cells
        self.dropout = dropout
        self.narrow = narrow  # rows, and so products, below the read-out, if not as the weights
        # A pass that is done again without gradients, to see what a step changed, goes as before.
        learning = torch.is_grad_enabled() or dropout is not None
        self.paths = routing.in_training if learning else routing.in_evaluation
        self.first = pack.first
        self.words = pack.words
        self.filled = learning and narrow == torch.bfloat16 and pack.tokens.device.type == "cpu"
        if pack.first:
            self.groups = [
                self._narrowed(pack.first, _group(start, states)) for start, states in pack.cached
            ]
        else:
            task_uses = {tasks: routing.task_uses(*tasks) for tasks in set(asked)}
            streams = (
                Stream(i, length, task_uses[tasks])
                for i, (length, tasks) in enumerate(zip(pack.lengths, asked, strict=True))
            )
            self.groups = [Group(tuple(streams), pack.tokens)]
        self._layouts: dict[tuple[tuple[int, ...], tuple[Origin, ...]], Layout] = {}
        if self.filled:
            self._make_kernels()

    def run(self, last: int | None = None) -> list[Group]:
        """Pass the rows up to `last`, by default all; the groups as they stand then."""
        end = len(self.routing.rows) if last is None else last
        row = self.first
        while row < end:
            if joined := self._joined(row, end):
                row += joined
                continue
            regrouped = self._regroup(row)
            self.groups = [self._pass(row, use, group) for use, group in regrouped.items()]
            row += 1
        return self.groups

    def vectors(self) -> dict[TaskUse, tuple[Tensor, Tensor]]:
        """For each task use the vectors of its group, and sequence number -> first row there."""
        out: dict[TaskUse, tuple[Tensor, Tensor]] = {}
        for group in self.groups:
            rows_of: dict[TaskUse, list[tuple[int, int]]] = {}
            row = 0
            for stream in group.streams:
                for task_use in stream.task_uses:
                    rows_of.setdefault(task_use, []).append((stream.sequence, row))
                row += stream.length
            for task_use, pairs in rows_of.items():
                index = [-1] * (1 + max(sequence for sequence, _ in pairs))
                for sequence, first in pairs:
                    index[sequence] = first
                out[task_use] = (group.rows, torch.tensor(index))
        return out

    # Grouping.

    def _regroup(self, row: int) -> dict[RowUse, Group]:
        """The streams by the cell they use in this row, ordered by adapters and length."""
        if (together := self._together(row)) is not None:
            return together

        @cache
        def split(task_uses: tuple[TaskUse, ...]) -> list[tuple[RowUse, tuple[TaskUse, ...]]]:
            parts: dict[RowUse, list[TaskUse]] = {}
            for task_use in task_uses:
                parts.setdefault(self.paths[task_use][row], []).append(task_use)
            return [(use, tuple(part)) for use, part in parts.items()]

        members: dict[RowUse, list[tuple[RowUse, int, Stream]]] = {}  # use, old row, stream
        first = 0
        for group in self.groups:
            start = first
            for stream in group.streams:
                for use, task_uses in split(stream.task_uses):
                    member = use, start, stream._replace(task_uses=task_uses)
                    members.setdefault(RowUse(use.cell, use.grad), []).append(member)
                start += stream.length
            first += len(group.rows)
        groups = self.groups
        rows = groups[0].rows if len(groups) == 1 else torch.cat([g.rows for g in groups])
        fill = self.filled and row <= self.routing.plan.layers
        return dict(zip(members, _ordered(rows, [*members.values()], fill), strict=True))

    def _together(self, row: int) -> dict[RowUse, Group] | None:
        """All streams as they lie, where each group goes to a cell of its own whole, in an order
        that it has."""
        if row == self.first and (len(self.groups) > 1 or len(self.groups[0].streams) > 1):
            return None
        whole: dict[RowUse, Group] = {}
        for group in self.groups:
            different = {stream.task_uses for stream in group.streams}
            uses = {self.paths[task_use][row] for uses in different for task_use in uses}
            if len(uses) > 1:
                return None
            (use,) = uses
            whole[RowUse(use.cell, use.grad)] = group
        return whole if len(whole) == len(self.groups) else None

    def _make_kernels(self) -> None:
        """Those of the numbers of rows that the layers are going to have, in all groups."""
        sizes: Counter[tuple[TaskUse, ...]] = Counter()
        for group in self.groups:
            for stream in group.streams:
                sizes[stream.task_uses] += stream.length
        for row in range(max(self.first, 1), self.routing.plan.layers + 1):
            groups: Counter[tuple[Cell | None, str]] = Counter()
            for task_uses, length in sizes.items():
                uses = (self.paths[task_use][row] for task_use in task_uses)
                for one in {(use.cell, use.grad) for use in uses}:
                    groups[one] += length
            for (cell, _), rows in groups.items():
                if cell is not None:
                    row_kernels.make(self.cells[cell.key], [row_kernels.filled(rows)])

    # Passing.

    def _pass(self, row: int, use: RowUse, group: Group) -> Group:
        if use.cell is None:
            return group
        if use.cell.place == READ:
            return self._read(use.cell.name, group)
        dropout = None if row < self.routing.frozen_rows else self.dropout
        module = self.cells[use.cell.key]
        call = partial(call_frozen, module) if use.grad == "through" else module
        with torch.no_grad() if use.grad == "stop" else nullcontext():
            if isinstance(module, EmbeddingsModule):
                ids, types, positions, *tags = group.rows.unbind(1)
                rows = call(ids, types, positions, dropout)
                if module.tags is not None:
                    table = module.tags.weight
                    table = table.detach() if use.grad == "through" else table
                    rows = rows + F.embedding(tags[0], table)
                streams = group.streams
                if module.relative is not None:
                    origin = (use.cell.key, use.grad)
                    streams = tuple(s._replace(origin=origin) for s in streams)
                return self._narrowed(row, Group(streams, rows))
            if isinstance(module, LayerModule):
                return self._layer(row, call, group, dropout)
            return replace(group, rows=call(group.rows))

    def _narrowed(self, row: int, group: Group) -> Group:
        """What goes on from this row, as narrow as the layers want it."""
        if self.narrow is None or row > self.routing.plan.layers:
            return group
        return replace(group, rows=group.rows.to(self.narrow))

    def _layer(
        self, row: int, call: Callable[..., Any], group: Group, dropout: DropoutGenerator | None
    ) -> Group:
        streams = group.streams
        layout, cls_only = self._layer_layout(row, group)
        rows = call(group.rows, layout, dropout, cls_only, self._adapters(row, streams))
        return Group(_read_out(streams) if cls_only else streams, rows)

    def _layer_layout(self, row: int, group: Group) -> tuple[Layout, bool]:
        """How the rows lie, and whether of the texts' rows only the first are wanted."""
        streams, poolings = group.streams, self.routing.poolings
        cls_only = row == self.routing.plan.layers and all(
            poolings[task] not in ("mean", WORDS)
            for stream in streams
            for task, _ in stream.task_uses
        )
        origins = tuple(s.origin for s in streams if s.origin[0])
        return self._layout(streams, origins), cls_only

    def _layout(self, streams: Sequence[Stream], origins: tuple[Origin, ...] = ()) -> Layout:
        """Made once for all the rows in which the streams lie so."""
        lengths = tuple(stream.length for stream in streams)
        key = lengths, origins
        if key not in self._layouts:
            number = {origin: i for i, origin in enumerate(dict.fromkeys(origins))}
            tables = tuple(self._position_bias(*origin) for origin in number)
            which = tuple(number[origin] for origin in origins)
            self._layouts[key] = Layout(lengths, tables, which)
        return self._layouts[key]

    def _position_bias(self, key: str, grad: str) -> Tensor:
        embeddings = self.cells[key]
        assert isinstance(embeddings, EmbeddingsModule)
        table = embeddings.position_table()
        return table.detach() if grad else table

    def _joined(self, row: int, end: int) -> int:
        """Pass the rows that all streams go through together, layer after layer, in one call, if
        the layers can do that; how many."""
        if torch.is_grad_enabled() or self.groups[0].rows.device.type != "cpu":
            return 0
        if len(self.groups) > 1:
            return 0
        layers: list[LayerModule] = []
        for above in range(row, min(end, self.routing.plan.layers + 1)):
            uses = self._together(above)
            cell = next(iter(uses)).cell if uses else None
            module = None if cell is None else self.cells[cell.key]
            if not isinstance(module, LayerModule) or not module.joins:
                break
            layers.append(module)
        if not layers:
            return 0
        (group,) = self.groups
        layout, cls_only = self._layer_layout(row + len(layers) - 1, group)
        rows = layers[0].joined(layers[1:], group.rows, layout, cls_only)
        self.groups = [Group(_read_out(group.streams) if cls_only else group.streams, rows)]
        return len(layers)

    def _adapters(self, row: int, streams: Sequence[Stream]) -> SegmentAdapters | None:
        def adapters_of(stream: Stream) -> tuple[tuple[Cell, bool], ...]:
            task_uses = stream.task_uses or streams[-2].task_uses  # what fills up goes along
            return self.paths[task_uses[0]][row].adapters

        segments = []
        for adapters, part in groupby(streams, adapters_of):
            modules = tuple(self._adapter(cell, frozen) for cell, frozen in adapters)
            segments.append(Segment(modules, self._layout(tuple(part))))
        return SegmentAdapters(row, segments) if any(s.adapters for s in segments) else None

    def _adapter(self, cell: Cell, frozen: bool) -> AdapterModule:
        module = self.cells[cell.key]
        assert isinstance(module, AdapterModule)
        return FrozenAdapter(module) if frozen else module

    def _read(self, pooling: str, group: Group) -> Group:
        if pooling == WORDS:
            return self._read_words(group)
        layout = self._layout(group.streams)
        if pooling == "mean":
            rows = mean_of_texts(group.rows, layout)
        elif layout.tokens == len(group.streams):  # read out already
            rows = group.rows
        else:
            rows = group.rows[layout.on(group.rows.device).starts]
        return Group(_read_out(group.streams), wide(rows))

    def _read_words(self, group: Group) -> Group:
        """The first token of each word, of sequences that may have none."""
        places, streams, start = [], [], 0
        for stream in group.streams:
            words = self.words[stream.sequence] if self.words and stream.task_uses else ()
            places += [start + token for token in words]
            streams.append(stream._replace(length=len(words)))
            start += stream.length
        index = torch.tensor(places, dtype=torch.long, device=group.rows.device)
        return Group(tuple(streams), wide(group.rows[index]))


def _group(start: int, states: CachedStates) -> Group:
    """Sequences, numbered from `start` on, whose states are known."""
    lengths = np.diff(states.bounds).tolist()
    streams = tuple(
        Stream(start + i, n, states.task_uses, states.origin) for i, n in enumerate(lengths)
    )
    return Group(streams, states.rows)


def _ordered(
    rows: Tensor, parts: Sequence[list[tuple[RowUse, int, Stream]]], fill: bool
) -> list[Group]:
    """The parts' rows of all, equal adapters and equal lengths side by side; to `fill` a part up, a
    row again and again, for nobody."""
    streams_of, indices = [], []
    for members in parts:
        members = sorted(members, key=lambda m: (m[0].adapters, m[2].origin, m[2].length))
        starts = [start for _, start, _ in members]
        streams = tuple(stream for _, _, stream in members)
        lengths = [stream.length for stream in streams]
        index = gather_rows(starts, lengths)
        if more := row_kernels.filled(len(index)) - len(index) if fill else 0:
            streams += (Stream(-1, more, (), streams[-1].origin),)
            index = F.pad(index, (0, more))
        streams_of.append(streams)
        indices.append(index)
    whole = torch.cat(indices)
    if not torch.equal(whole, torch.arange(len(rows))):  # else they lie so already
        rows = copied(rows, whole.to(rows.device))  # once for all parts: so is what comes back
    cut = rows.split([len(index) for index in indices])
    return [Group(streams, part) for streams, part in zip(streams_of, cut, strict=True)]


def _read_out(streams: Sequence[Stream]) -> tuple[Stream, ...]:
    return tuple(stream._replace(length=1) for stream in streams)
