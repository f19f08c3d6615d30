"""Cells before anybody knows what they mean."""

from __future__ import annotations

import numpy as np

from bough.data.prepared.unread_cells import UnreadCells


def test_each_kind_of_cell_once_over_all_parts() -> None:
    unread = UnreadCells()
    unread.add(["x", 1, [2]], np.array([0, 1, 1, 2]))
    unread.add(["1", [2], "x"], np.array([2, 0, 1]))
    assert unread.cells == ["x", 1, [2], "1"]
    assert unread.codes().tolist() == [0, 1, 1, 2, 0, 3, 2]
    assert UnreadCells().codes().tolist() == []
