"""Label cells of a task whose classes are not known before all of them are seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bough.data.prepared.columns import Ints


class UnreadCells:
    """Label cells of a task whose classes are not known yet: each kind of cell once."""

    def __init__(self) -> None:
        self.cells: list[Any] = []
        self._places: dict[tuple[type, Any], int] = {}
        self._codes: list[NDArray[np.int32]] = []

    def add(self, cells: Sequence[Any], values: Ints) -> None:
        """Those of a part, and which of them each of its rows has."""
        places = []
        for cell in cells:
            key = cell_key(cell)
            if self._places.setdefault(key, len(self.cells)) == len(self.cells):
                self.cells.append(cell)
            places.append(self._places[key])
        self._codes.append(np.array(places, np.int32)[values])

    def codes(self) -> NDArray[np.int32]:
        return np.concatenate([*self._codes, np.zeros(0, np.int32)])


def cell_key(cell: Any) -> tuple[type, Any]:
    """Equal for cells that are alike; a number is none of a text, nor of another kind."""
    return type(cell), cell if isinstance(cell, str | int | float) else repr(cell)
