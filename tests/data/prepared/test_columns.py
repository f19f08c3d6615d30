"""Columns that read like lists."""

from __future__ import annotations

import numpy as np
import pytest

from bough.data.prepared.columns import Column, Names, Numbers, Objects, Strings, Tuples, joined

TEXTS = ["a", "", "böse", "x\ny", "z" * 3000]


def strings(texts: list[str]) -> Strings:
    blob, sizes = joined(texts)
    return Strings(blob, np.concatenate([[0], sizes.cumsum()]).astype(np.int64))


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        (Numbers(np.array([3, 1, 2])), [3, 1, 2]),
        (strings(TEXTS), TEXTS),
        (Tuples(strings([*TEXTS, "last"]), 2), [("a", ""), ("böse", "x\ny"), ("z" * 3000, "last")]),
        (Objects(strings(["[1, 2]", "[]"]), tuple), [(1, 2), ()]),
        (Names(Numbers(np.array([7, 10]))), ["7", "10"]),
        (strings([]), []),
    ],
)
def test_they_are_like_lists(column: Column[object], cells: list[object]) -> None:
    assert column == cells
    assert list(column) == cells
    assert column != [*cells, "more"]
    assert column[1:] == cells[1:]
    assert column[::-1] == cells[::-1]
    assert [column[n] for n in range(-len(cells), len(cells))] == cells * 2
    with pytest.raises(IndexError):
        column[len(cells)]
    if cells:
        some = np.array([len(cells) - 1, 0, 0])
        assert column.chosen(some) == [cells[-1], cells[0], cells[0]]
        assert column.chosen(some).chosen(np.array([0])) == [cells[-1]]
    assert column.chosen(None) is column


def test_numbers_come_at_once() -> None:
    every = Numbers(np.arange(5.0))
    assert np.asarray(every).dtype == np.float64
    assert np.asarray(every.chosen(np.array([4, 1]))).tolist() == [4, 1]
    assert Names(every).numbers() is None
    assert isinstance(every[0], float)
