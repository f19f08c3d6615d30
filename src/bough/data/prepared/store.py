"""Where the arrays of a table grow: in memory, or in the disk cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from bough.disk_cache import Array, DiskCache, GrowingArray


class Unkept(Exception):
    """The disk cache does not take a table: it is full, or read-only."""


@contextmanager
def keeping() -> Iterator[None]:
    """The cache's own errors, told from those of who reads the table."""
    try:
        yield
    except OSError as fault:
        raise Unkept from fault


class Memory:
    """Arrays that are held in memory."""

    def __init__(self) -> None:
        self.arrays: dict[str, tuple[np.dtype[Any], list[Array]]] = {}

    def add(self, name: str, kind: DTypeLike, part: Array) -> None:
        self.arrays.setdefault(name, (np.dtype(kind), []))[1].append(part)

    def finish(self, name: str, kind: DTypeLike) -> Array:
        kind, parts = self.arrays.pop(name, (np.dtype(kind), []))
        return np.concatenate([*parts, np.zeros(0, kind)]).astype(kind, copy=False)

    def save(self, facts: dict[str, Any], arrays: dict[str, Array]) -> None:
        pass

    def close(self) -> None:
        pass


class Disk:
    """Arrays of an entry of the disk cache."""

    def __init__(self, cache: DiskCache, key: str, size: int):
        """`size` is about what they will take."""
        self.cache = cache
        self.key = key
        self.growing: dict[str, GrowingArray] = {}
        self.order: list[str] = []
        with keeping():
            cache.make_room(size)

    def add(self, name: str, kind: DTypeLike, part: Array) -> None:
        with keeping():
            self._array(name, kind).add(part)

    def _array(self, name: str, kind: DTypeLike) -> GrowingArray:
        if name not in self.growing:
            self.growing[name] = self.cache.growing(self.key, len(self.order), kind)
            self.order.append(name)
        return self.growing[name]

    def finish(self, name: str, kind: DTypeLike) -> Array:
        with keeping():
            return self._array(name, kind).finish()

    def save(self, facts: dict[str, Any], arrays: dict[str, Array]) -> None:
        entry: list[tuple[dict[str, Any], Array]]
        entry = [({"name": name}, arrays[name]) for name in self.order]
        entry[0][0]["facts"] = facts
        with keeping():
            self.cache.save(self.key, entry, filled=True)

    def close(self) -> None:
        for array in self.growing.values():
            with suppress(OSError):  # what is not written yet is of an array that is given up
                array.close()
