"""Frozen parts are computed once: what a fixed trunk makes of each text, kept and used again.

Where a plan's first rows never learn (`frozen`, `frozen@k`, a frozen phase) the states of a text at
the first row that does learn are always the same. They are computed in one pass over a split and
kept on disk under the digest of the weights and the texts, so that later epochs, plans and runs on
the same trunk find them. How much they take is known before: large ones are written to the disk as
they are computed and mapped into memory, and those for which there is no room are not kept.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bough.data.batches import CachedStates, Examples, Ints, Pack, by_tokens
from bough.errors import UserError
from bough.model.forward import PackedForward
from bough.model.network import Network
from bough.model.routing import READ

TOKENS = 4096  # per pass
IN_MEMORY = 2**30  # bytes; more is left on disk and mapped
VERSION = 2  # of what the states are: part of every key
ORPHAN = 3600  # seconds after which a file that belongs to no entry was left by a killed run
FILE = re.compile(r"\.?(?P<key>[0-9a-f]{32})\b.*\.(json|npy|part)")  # a user's own are let alone


def folder() -> Path:
    """Where states are kept: BOUGH_CACHE, or the user's cache folder."""
    own = os.environ.get("BOUGH_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(own).expanduser() if own else Path(base).expanduser() / "bough" / "states"


def room() -> int:
    """The most that kept states may take on disk, in bytes: BOUGH_CACHE_GB, by default 10."""
    told = os.environ.get("BOUGH_CACHE_GB", "10")
    try:
        most = float(told)
    except ValueError:
        most = math.nan
    if not 0 <= most < math.inf:
        raise UserError(
            f"BOUGH_CACHE_GB is {told!r}; expected a number of gigabytes from 0 on, as in 10"
        )
    return int(most * 1e9)


class States:
    """The kept states of one network's fixed rows."""

    def __init__(self, network: Network, place: Path | None = None):
        self.network = network
        self.first = network.routing.frozen_rows
        self.place = folder() if place is None else place
        self._digests: dict[str, str] = {}

    @property
    def worth(self) -> bool:
        """Whether at least one layer is saved by keeping states."""
        return self.first > 1

    def fit(self, examples: Mapping[str, Examples]) -> bool:
        """Whether all these examples' states have room in memory or on disk."""
        return sum(self.size(n, own) for n, own in examples.items()) <= max(room(), IN_MEMORY)

    def size(self, task: str, examples: Examples) -> int:
        """What these examples' states take, in bytes."""
        routing = self.network.routing
        paths = {tuple(routing.in_evaluation[use][: self.first]) for use in routing.task_uses(task)}
        return len(paths) * int(self._bounds(examples)[-1]) * self.network.shape.width * 4

    def of_all(self, examples: Mapping[str, Examples]) -> dict[str, Examples]:
        """All with their states, or all without: the tasks of a batch go on from one row."""
        kept: dict[str, Examples] = {}
        for task, own in examples.items() if self.fit(examples) else ():
            kept[task] = self.of(task, own)
            if kept[task] is own:
                return dict(examples)
        return kept or dict(examples)

    def of(self, task: str, examples: Examples) -> Examples:
        """The same examples with their states at the first row that learns, if there is room."""
        key = self._key(task, examples)
        found = self._read(key, task, examples)
        if found is None:
            found = self._make(key, task, examples)
        return examples if found is None else replace(examples, first=self.first, reached=found)

    def _bounds(self, examples: Examples) -> Ints:
        """Where each sequence's rows begin and end: one per token, a single one once read out."""
        read = self.first > self.network.routing.rows.index(READ)
        own = examples.sequences
        return np.arange(len(own) + 1) if read else own.bounds

    def _key(self, task: str, examples: Examples) -> str:
        """What the states depend on: the fixed weights on the task's paths, and the texts."""
        digest = hashlib.sha256()
        routing = self.network.routing
        for task_use in routing.task_uses(task):
            path = routing.in_training[task_use][: self.first]
            cells = [use.cell.key for use in path if use.cell is not None]
            said = [VERSION, task_use, [self._weights(key) for key in cells], cells]
            digest.update(json.dumps([*said, vars(self.network.shape)]).encode())
        own = examples.sequences
        for array in (own.ids, own.types, own.bounds):
            digest.update(np.ascontiguousarray(array).tobytes())
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

    def _make(self, key: str, task: str, examples: Examples) -> tuple[CachedStates, ...] | None:
        """Compute them, and keep them on disk if there is room; None if they fit nowhere."""
        size = self.size(task, examples)
        large = size > IN_MEMORY
        found = None
        if not large:
            found = self._compute(task, examples, lambda number, shape: torch.empty(shape))
        if size > room():
            return found
        try:
            self._make_room(size)
            if found is None:
                found = self._compute(task, examples, partial(self._mapped, key))
            self._save(key, found, filled=large)
        except OSError:  # a full or read-only cache is no reason to stop a run
            return found
        finally:
            for aside in self.place.glob(f".{key}*.{os.getpid()}.part"):
                aside.unlink(missing_ok=True)
        return (self._read(key, task, examples) or found) if large else found

    @torch.no_grad()
    def _compute(
        self, task: str, examples: Examples, new: Callable[[int, tuple[int, int]], Tensor]
    ) -> tuple[CachedStates, ...]:
        """The states, put where they stay: into what `new` makes for a number and a shape."""
        device = next(self.network.parameters()).device
        own, bounds = examples.sequences, self._bounds(examples)
        shape = int(bounds[-1]), self.network.shape.width
        found: dict[tuple[object, object], CachedStates] = {}
        for part in by_tokens(own.lengths, TOKENS):
            pack = Pack.of([(own, part)]).to(device)
            forward = PackedForward(
                self.network.routing, self.network.cells, pack, [(task,)] * len(part), None
            )
            for group in forward.run(self.first):
                rows, at = group.rows.cpu(), 0
                for stream in group.streams:
                    kind = stream.task_uses, stream.origin
                    if kind not in found:
                        found[kind] = CachedStates(*kind, new(len(found), shape), bounds)
                    to = int(bounds[part[stream.sequence]])
                    found[kind].rows[to : to + stream.length] = rows[at : at + stream.length]
                    at += stream.length
        return tuple(found.values())

    # On disk: <key>-<number>.npy for each kind of stream, then <key>.json, which says whose.

    def _read(self, key: str, task: str, examples: Examples) -> tuple[CachedStates, ...] | None:
        index = self.place / f"{key}.json"
        mapped = self.size(task, examples) > IN_MEMORY
        bounds = self._bounds(examples)
        found = []
        try:
            for number, entry in enumerate(json.loads(index.read_text(encoding="utf-8"))):
                file = self.place / f"{key}-{number}.npy"
                rows = np.load(file, mmap_mode="c" if mapped else None)
                if rows.shape != (bounds[-1], self.network.shape.width):
                    return None
                task_uses = tuple((name, consumer) for name, consumer in entry["task_uses"])
                origin = str(entry["origin"][0]), str(entry["origin"][1])
                found.append(CachedStates(task_uses, origin, torch.from_numpy(rows), bounds))
            os.utime(index)  # the states used longest ago are the first to go
        except (OSError, EOFError, ValueError, KeyError):  # absent, empty or cut off
            return None
        return tuple(found)

    def _aside(self, name: str) -> Path:
        return self.place / f".{name}.{os.getpid()}.part"

    def _mapped(self, key: str, number: int, shape: tuple[int, int]) -> Tensor:
        """A new file's rows, to be filled in place."""
        file = self._aside(f"{key}-{number}.npy")
        rows = np.lib.format.open_memmap(file, "w+", np.dtype(np.float32), shape)
        # The blocks are taken now: where the disk is full, filling a mapped page is the end.
        if hasattr(os, "posix_fallocate"):
            with open(file, "r+b") as opened:
                os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
        elif shutil.disk_usage(self.place).free < rows.nbytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return torch.from_numpy(rows)

    def _save(self, key: str, found: tuple[CachedStates, ...], filled: bool) -> None:
        """Under their names; the index comes last, so that an entry is whole or absent."""
        for number, reached in enumerate(found):
            aside = self._aside(f"{key}-{number}.npy")
            with open(aside, "r+b" if filled else "wb") as file:
                if not filled:
                    np.save(file, reached.rows.numpy())
                    file.flush()
                os.fsync(file.fileno())
            os.replace(aside, self.place / f"{key}-{number}.npy")
        aside = self._aside(f"{key}.json")
        entries = [{"task_uses": r.task_uses, "origin": r.origin} for r in found]
        aside.write_text(json.dumps(entries), encoding="utf-8")
        os.replace(aside, self.place / f"{key}.json")

    def _make_room(self, size: int) -> None:
        """Let go of what killed runs left behind, and of the states used longest ago."""
        self.place.mkdir(parents=True, exist_ok=True)
        stats: dict[Path, os.stat_result] = {}
        owner: dict[Path, str] = {}
        for file in self.place.iterdir():
            ours = FILE.fullmatch(file.name)
            with suppress(FileNotFoundError):  # another run has let go of it
                if ours is not None:
                    stats[file], owner[file] = file.stat(), ours["key"]
        used = {owner[f]: told.st_mtime for f, told in stats.items() if f.suffix == ".json"}
        taken = sum(told.st_size for told in stats.values())

        def remove(files: list[Path]) -> None:
            nonlocal taken
            for file in files:
                file.unlink(missing_ok=True)
                taken -= stats[file].st_size

        loose = [f for f in stats if f.suffix == ".part" or owner[f] not in used]
        remove([f for f in loose if stats[f].st_mtime < time.time() - ORPHAN])
        for key in sorted(used, key=used.__getitem__):
            if taken + size <= room():
                return
            whole = [f for f in stats if owner[f] == key and f.suffix != ".part"]
            remove(sorted(whole, key=lambda f: f.suffix != ".json"))  # the index first
