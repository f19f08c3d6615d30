"""Columns as plain arrays, in memory or mapped from disk, that read like lists.

A Python object is made of a cell when somebody looks at it, and not before: ten million rows are a
few arrays.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Ints = NDArray[np.int64]
AT_A_TIME = 1024  # cells that are made into objects at a time


class Column(Sequence[T]):
    """A sequence that is equal to any other with the same cells."""

    @abstractmethod
    def part(self, numbers: Ints) -> list[T]:
        """These cells as objects."""

    @abstractmethod
    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, number: int) -> T: ...
    @overload
    def __getitem__(self, number: slice) -> list[T]: ...

    def __getitem__(self, number: int | slice) -> T | list[T]:
        if isinstance(number, slice):
            return self.part(np.arange(*number.indices(len(self))))
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        return self.part(np.array([number % len(self)]))[0]

    def __iter__(self) -> Iterator[T]:
        for start in range(0, len(self), AT_A_TIME):
            yield from self.part(np.arange(start, min(start + AT_A_TIME, len(self))))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{list(self[:5])}{'...' if len(self) > 5 else ''}"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        numbers = self.numbers()
        return np.array(list(self), dtype) if numbers is None else np.asarray(numbers, dtype)

    def numbers(self) -> NDArray[Any] | None:
        """All cells at once, if they are numbers."""
        return None

    def chosen(self, numbers: Ints | None) -> Column[T]:
        """The cells of these numbers alone; None is all."""
        return self if numbers is None else Chosen(self, numbers)


class Chosen(Column[T]):
    """Some cells of another column."""

    def __init__(self, whole: Column[T], places: Ints):
        self.whole = whole
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def part(self, numbers: Ints) -> list[T]:
        return self.whole.part(self.places[numbers])

    def numbers(self) -> NDArray[Any] | None:
        every = self.whole.numbers()
        return None if every is None else every[self.places]


class Numbers(Column[Any]):
    """Numbers, as Python has them."""

    def __init__(self, array: NDArray[Any]):
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def part(self, numbers: Ints) -> list[Any]:
        return list(self.array[numbers].tolist())

    def numbers(self) -> NDArray[Any] | None:
        return self.array


class Strings(Column[str]):
    """Texts in UTF-8, end to end."""

    def __init__(self, blob: NDArray[np.uint8], bounds: Ints):
        self.blob = blob
        self.bounds = bounds  # text i is blob[bounds[i] : bounds[i + 1]]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def part(self, numbers: Ints) -> list[str]:
        blob, starts, ends = self.blob, self.bounds[numbers], self.bounds[numbers + 1]
        if len(numbers) and bool((np.diff(numbers) == 1).all()):
            whole, first = blob[starts[0] : ends[-1]].tobytes(), int(starts[0])
            places = zip((starts - first).tolist(), (ends - first).tolist(), strict=True)
            return [whole[a:b].decode() for a, b in places]
        places = zip(starts.tolist(), ends.tolist(), strict=True)
        return [blob[a:b].tobytes().decode() for a, b in places]


class Tuples(Column[tuple[str, ...]]):
    """Rows of so many texts each."""

    def __init__(self, strings: Strings, width: int):
        self.strings = strings
        self.width = width

    def __len__(self) -> int:
        return len(self.strings) // self.width

    def part(self, numbers: Ints) -> list[tuple[str, ...]]:
        every = (numbers[:, None] * self.width + np.arange(self.width)).reshape(-1)
        texts = iter(self.strings.part(every))
        return list(zip(*[texts] * self.width, strict=True))


class Objects(Column[Any]):
    """What is neither number nor text, as JSON that `read` makes something of."""

    def __init__(self, strings: Strings, read: Callable[[Any], Any]):
        self.strings = strings
        self.read = read

    def __len__(self) -> int:
        return len(self.strings)

    def part(self, numbers: Ints) -> list[Any]:
        return [self.read(json.loads(text)) for text in self.strings.part(numbers)]


class Names(Column[str]):
    """Numbers by their digits."""

    def __init__(self, whole: Column[Any]):
        self.whole = whole

    def __len__(self) -> int:
        return len(self.whole)

    def part(self, numbers: Ints) -> list[str]:
        return list(map(str, self.whole.part(numbers)))


def joined(texts: Sequence[str]) -> tuple[NDArray[np.uint8], Ints]:
    """Texts end to end, and the size of each."""
    whole = "".join(texts)
    parts = texts if whole.isascii() else [text.encode() for text in texts]
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    return np.frombuffer(whole.encode(), np.uint8), sizes
