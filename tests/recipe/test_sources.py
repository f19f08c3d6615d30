"""Where rows come from: what is taken for a source, and laid out as plain rows."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from bough.recipe.sources import Hub
from bough.recipe.tasks import Task

SINGLE: dict[str, Any] = {"kind": "classify", "text": "sentence"}


def test_sources_in_memory_become_plain_rows() -> None:
    import numpy as np

    task = Task(
        **SINGLE,
        train={"sentence": np.array(["x", "y"]), "label": np.array([0, 1])},
        dev=[{"sentence": "x", "label": np.float32(1)}],
        test=["x", ("y",)],
    )
    assert task.train == ({"sentence": "x", "label": 0}, {"sentence": "y", "label": 1})
    assert task.dev == ({"sentence": "x", "label": 1.0},)
    assert task.test == (("x",), ("y",))
    assert type(task.train[0]["label"]) is int


def test_hub_sources() -> None:
    task = Task(**SINGLE, train={"hub": "owner/set", "columns": {"sentence": "text"}})
    assert task.train == Hub(hub="owner/set", columns={"sentence": "text"})


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"hubb": "x"}, "did you mean 'hub'"),
        ({"a": [1], "b": [1, 2]}, "different lengths"),
        ([b"bytes"], "expected a dict, a tuple or a text"),
        ([(b"bytes",)], "decode them"),
        ([(1 << 2000,)], "1024 bits"),
    ],
)
def test_what_is_no_source(train: object, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Task(**SINGLE, train=train)
