"""Frozen parts are computed once: what a fixed trunk makes of each text, kept and used again.

Where a plan's first rows never learn (`frozen`, `frozen@k`, a frozen phase) the states of a text at
the first row that does learn are always the same. They are computed in one pass over a split and
kept on disk under the digest of the weights and the texts, so that later epochs, plans and runs on
the same trunk find them; large ones are mapped into memory instead of read.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bough.batches import Examples, Pack, Reached, by_tokens
from bough.network import Network
from bough.walk import Walk

TOKENS = 4096  # per pass
IN_MEMORY = 2**30  # bytes; more is left on disk and mapped
VERSION = 1  # of what the states are: part of every key


def folder() -> Path:
    """Where states are kept: BOUGH_CACHE, or the user's cache folder."""
    own = os.environ.get("BOUGH_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(own).expanduser() if own else Path(base).expanduser() / "bough" / "states"


def room() -> int:
    """The most that kept states may take on disk, in bytes: BOUGH_CACHE_GB, by default 10."""
    return int(float(os.environ.get("BOUGH_CACHE_GB", "10")) * 1e9)


class States:
    """The kept states of one network's fixed rows."""

    def __init__(self, network: Network, place: Path | None = None):
        self.network = network
        self.first = network.route.fixed
        self.place = folder() if place is None else place
        self._digests: dict[str, str] = {}

    @property
    def worth(self) -> bool:
        """Whether at least one layer is saved by keeping states."""
        return self.first > 1

    def of(self, task: str, examples: Examples) -> Examples:
        """The same examples with their states at the first row that learns."""
        key = self._key(task, examples)
        found = self._read(key)
        if found is None:
            found = self._compute(task, examples)
            found = self._write(key, found)
        return replace(examples, first=self.first, reached=found)

    def _key(self, task: str, examples: Examples) -> str:
        """What the states depend on: the fixed weights on the task's ways, and the texts."""
        digest = hashlib.sha256()
        route = self.network.route
        for walker in route.walkers(task):
            uses = route.uses[walker][: self.first]
            cells = [use.cell.key for use in uses if use.cell is not None]
            said = [VERSION, walker, [self._weights(key) for key in cells], cells]
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

    @torch.no_grad()
    def _compute(self, task: str, examples: Examples) -> tuple[Reached, ...]:
        device = next(self.network.parameters()).device
        own = examples.sequences
        rows: dict[tuple[object, object], list[torch.Tensor | None]] = {}
        for part in by_tokens(own.lengths, TOKENS):
            pack = Pack.of([(own, part)]).to(device)
            walk = Walk(self.network.route, self.network.cells, pack, [(task,)] * len(part), None)
            for group in walk.run(self.first):
                at = 0
                for stream in group.streams:
                    kept = rows.setdefault((stream.walkers, stream.origin), [None] * len(own))
                    kept[part[stream.sequence]] = group.rows[at : at + stream.length].cpu()
                    at += stream.length
        out = []
        for (walkers, origin), kept in rows.items():
            there = [tensor for tensor in kept if tensor is not None]
            sizes = [len(tensor) for tensor in there]
            bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
            out.append(Reached(walkers, origin, torch.cat(there), bounds))  # type: ignore[arg-type]
        return tuple(out)

    def _read(self, key: str) -> tuple[Reached, ...] | None:
        index = self.place / f"{key}.json"
        try:
            entries = json.loads(index.read_text(encoding="utf-8"))
            found = tuple(self._part(key, i, entry) for i, entry in enumerate(entries))
            os.utime(index)  # the states used longest ago are the first to go
        except (OSError, ValueError, KeyError):
            return None
        return found

    def _part(self, key: str, number: int, entry: dict[str, list[list[str]]]) -> Reached:
        file = self.place / f"{key}-{number}.npy"
        mapped = file.stat().st_size > IN_MEMORY
        rows = torch.from_numpy(np.load(file, mmap_mode="c" if mapped else None))
        walkers = tuple((task, reader) for task, reader in entry["walkers"])
        origin = (str(entry["origin"][0]), str(entry["origin"][1]))
        bounds = np.load(self.place / f"{key}-{number}-bounds.npy")
        return Reached(walkers, origin, rows, bounds)

    def _write(self, key: str, found: tuple[Reached, ...]) -> tuple[Reached, ...]:
        """Keep them if there is room; in any case they can be used."""
        size = sum(reached.rows.nbytes for reached in found)
        if size > room():
            return found
        try:
            self.place.mkdir(parents=True, exist_ok=True)
            self._make_room(size)
            for i, reached in enumerate(found):
                self._save(f"{key}-{i}.npy", reached.rows.numpy())
                self._save(f"{key}-{i}-bounds.npy", reached.bounds)
            entries = [{"walkers": r.walkers, "origin": r.origin} for r in found]
            aside = self.place / f".{key}.{os.getpid()}.part"
            aside.write_text(json.dumps(entries), encoding="utf-8")
            os.replace(aside, self.place / f"{key}.json")  # last: an entry is whole or absent
        except OSError:  # a full or read-only cache is no reason to stop a run
            return found
        return (self._read(key) or found) if size > IN_MEMORY else found

    def _save(self, name: str, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
        aside = self.place / f".{name}.{os.getpid()}.part"
        try:
            with open(aside, "wb") as file:
                np.save(file, array)
            os.replace(aside, self.place / name)
        finally:
            aside.unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        entries = sorted(self.place.glob("*.json"), key=lambda file: file.stat().st_mtime)
        files = {entry: [entry, *self.place.glob(f"{entry.stem}-*.npy")] for entry in entries}
        taken = sum(file.stat().st_size for own in files.values() for file in own)
        for entry in entries:
            if taken + size <= room():
                return
            for file in files[entry]:
                taken -= file.stat().st_size
                file.unlink(missing_ok=True)
