"""Frozen parts are computed once: what a fixed trunk makes of each text, kept and used again.

Where a plan's first rows never learn (`frozen`, `frozen@k`, a frozen phase) the states of a text at
the first row that does learn are always the same. They are computed in one pass over a split and
kept on disk under the digest of the weights and the texts, so that later epochs, plans and runs on
the same trunk find them. How much they take is known before: large ones are written to the disk as
they are computed and mapped into memory, and those for which there is no room are not kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bough.data.examples import CachedStates, Examples
from bough.data.packing import packs
from bough.data.tokens import Ints
from bough.disk_cache import DiskCache, cache_folder, disk_limit
from bough.distributed import Processes
from bough.model.network import Network
from bough.model.routing import READ
from bough.native.norm import wide

IN_MEMORY = 2**30  # bytes; more is left on disk and mapped
VERSION = 2  # of what the states are: part of every key


class States:
    """The states of one network's fixed rows."""

    def __init__(self, network: Network, folder: Path | None = None):
        self.network = network
        self.first = network.routing.frozen_rows
        self.cache = DiskCache(cache_folder() if folder is None else folder)
        self._digests: dict[str, str] = {}

    @property
    def worth(self) -> bool:
        """Whether at least one layer is saved by keeping states."""
        return self.first > 1

    def fit(self, examples: Mapping[str, Examples]) -> bool:
        """Whether all these examples' states have room in memory or on disk."""
        sizes = [self.size(task, source) for task, source in examples.items()]
        return sum(sizes) <= max(disk_limit(), IN_MEMORY)

    def size(self, task: str, examples: Examples) -> int:
        """What these examples' states take, in bytes."""
        routing = self.network.routing
        paths = {tuple(routing.in_evaluation[use][: self.first]) for use in routing.task_uses(task)}
        rows, width = self._shape(examples)
        return len(paths) * rows * width * 4

    def of_all(self, examples: Mapping[str, Examples]) -> dict[str, Examples]:
        """All with their states, or all without: the tasks of a batch go on from one row."""
        kept: dict[str, Examples] = {}
        for task, source in examples.items() if self.fit(examples) else ():
            kept[task] = self.of(task, source)
            if kept[task] is source:
                return dict(examples)
        return kept or dict(examples)

    def of(self, task: str, examples: Examples) -> Examples:
        """The same examples with their states at the first row that learns, if there is room."""
        key = self._key(task, examples)
        cached = self._read(key, task, examples)
        if cached is None:
            cached = self._make(key, task, examples)
        return examples if cached is None else replace(examples, first=self.first, cached=cached)

    def _bounds(self, examples: Examples) -> Ints:
        """Where each sequence's rows begin and end: one per token, a single one once read out, or
        one per word."""
        read = self.first > self.network.routing.rows.index(READ)
        sequences = examples.sequences
        if not read:
            return sequences.bounds
        if examples.words is None or sequences.words is None:
            return np.arange(len(sequences) + 1)
        return sequences.words.bounds

    def _shape(self, examples: Examples) -> tuple[int, int]:
        return int(self._bounds(examples)[-1]), self.network.shape.width

    def _key(self, task: str, examples: Examples) -> str:
        """What the states depend on: the fixed weights on the task's paths, and the texts."""
        digest = hashlib.sha256()
        routing = self.network.routing
        for task_use in routing.task_uses(task):
            path = routing.in_training[task_use][: self.first]
            cells = [use.cell.key for use in path if use.cell is not None]
            weights = [self._weights(key) for key in cells]
            facts = [VERSION, task_use, weights, cells, vars(self.network.shape)]
            if self.network.narrow is not None:
                facts.append(str(self.network.narrow))
            digest.update(json.dumps(facts).encode())
        sequences = examples.sequences
        words = () if sequences.words is None else (sequences.words.tokens, sequences.words.bounds)
        tags = () if sequences.tags is None else (sequences.tags,)
        for array in (sequences.ids, sequences.types, sequences.bounds, *words, *tags):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:32]

    def _weights(self, key: str) -> str:
        if key not in self.network.cells:  # the row in which a sequence is read out
            return ""
        if key not in self._digests:
            digest = hashlib.sha256()
            for name, tensor in self.network.cells[key].state_dict().items():
                digest.update(name.encode())
                digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
            self._digests[key] = digest.hexdigest()
        return self._digests[key]

    def _read(self, key: str, task: str, examples: Examples) -> tuple[CachedStates, ...] | None:
        mapped = self.size(task, examples) > IN_MEMORY
        entry = self.cache.read(key, mapped)
        if entry is None or any(rows.shape != self._shape(examples) for _, rows in entry):
            return None
        bounds = self._bounds(examples)
        return tuple(
            CachedStates(
                tuple(map(_pair, what["task_uses"])),
                _pair(what["origin"]),
                torch.from_numpy(rows),
                bounds,
            )
            for what, rows in entry
        )

    def _make(self, key: str, task: str, examples: Examples) -> tuple[CachedStates, ...] | None:
        """Compute them, and keep them on disk if there is room; None if they fit nowhere."""
        size = self.size(task, examples)
        large = size > IN_MEMORY
        states = None
        if not large:
            states = self._compute(task, examples, lambda number, shape: torch.empty(shape))
        if size > disk_limit():
            return states
        try:
            self.cache.make_room(size)
            if states is None:
                states = self._compute(task, examples, partial(self._mapped, key))
            entry = [
                ({"task_uses": s.task_uses, "origin": s.origin}, s.rows.numpy()) for s in states
            ]
            self.cache.save(key, entry, filled=large)
        except OSError:  # a full or read-only cache is no reason to stop a run
            return states
        finally:
            self.cache.clear_unfinished(key)
        return (self._read(key, task, examples) or states) if large else states

    def _mapped(self, key: str, number: int, shape: tuple[int, int]) -> Tensor:
        return torch.from_numpy(self.cache.new_array(key, number, shape))

    @torch.no_grad()
    def _compute(
        self, task: str, examples: Examples, new: Callable[[int, tuple[int, int]], Tensor]
    ) -> tuple[CachedStates, ...]:
        """The states, put where they stay: into what `new` makes for a number and a shape."""
        device = next(self.network.parameters()).device
        bounds, shape = self._bounds(examples), self._shape(examples)
        states: dict[tuple[object, object], CachedStates] = {}
        for numbers, pack in packs(examples.sequences):
            tasks = [(task,)] * len(numbers)
            walk = self.network.trunk(pack.to(device), tasks, None)
            for group in walk.run(self.first):
                rows, at = wide(group.rows).cpu(), 0
                for stream in group.streams:
                    kind = stream.task_uses, stream.origin
                    if kind not in states:
                        states[kind] = CachedStates(*kind, new(len(states), shape), bounds)
                    start = int(bounds[numbers[stream.sequence]])
                    states[kind].rows[start : start + stream.length] = rows[at : at + stream.length]
                    at += stream.length
        return tuple(states.values())


def kept(
    network: Network,
    examples: dict[str, Examples],
    processes: Processes,
    say: Callable[[str], None],
) -> dict[str, Examples]:
    """The examples with the states of what is frozen, where that saves work and there is room."""
    states = States(network)
    if not states.worth:
        return examples
    with processes.first_ahead():
        fit = states.fit(examples)
        if fit:
            say("the trunk's fixed part is computed once for each text")
            cached = states.of_all(examples)
    if fit:
        if states.cache.damaged:
            say("kept states were damaged, and are computed anew")
        if all(source.first for source in cached.values()):
            return cached
    say(
        "some states of the trunk's fixed part have no room in the cache (BOUGH_CACHE, at most "
        "BOUGH_CACHE_GB) and are computed again whenever they are needed"
    )
    return examples


def _pair(names: Sequence[str]) -> tuple[str, str]:
    """As JSON gives it back, a list."""
    first, second = names
    return first, second
