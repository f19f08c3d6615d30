"""Where rows come from: what is taken for a source, and laid out as plain rows."""

from __future__ import annotations

from typing import Any

import datasets
import pandas
import polars
import pyarrow
import pytest
from pydantic import ValidationError

from bough.errors import UserError
from bough.recipe.sources import Hub, as_source
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


def frames() -> dict[str, Any]:
    columns = {"text": ["fine", "bad", "odd"], "label": [1, 0, 1]}
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    return {
        "pandas": pandas.DataFrame(columns),
        "polars": polars.DataFrame(columns),
        "arrow": pyarrow.table(columns),
        "datasets": datasets.Dataset.from_dict(columns),
        "with names": datasets.Dataset.from_dict(columns, features=features),
    }


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "datasets", "with names"])
def test_frames_are_rows(kind: str) -> None:
    found = as_source(frames()[kind], "the rows")
    labels: list[Any] = ["yes", "no", "yes"] if kind == "with names" else [1, 0, 1]
    texts = ("fine", "bad", "odd")
    expected = [{"text": t, "label": label} for t, label in zip(texts, labels, strict=True)]
    assert list(found) == expected
    assert all(type(row["label"]) in (int, str) for row in found if isinstance(row, dict))
    task = Task(kind="classify", text="text", train=frames()[kind])
    assert task.train == found


def test_a_frame_with_gaps() -> None:
    frame = pandas.DataFrame({"text": ["a", None], "label": pandas.Categorical(["x", None])})
    rows = as_source(frame, "the rows")
    assert isinstance(rows, tuple)
    first, second = rows
    assert first == {"text": "a", "label": "x"}
    assert isinstance(second, dict)
    assert all(cell is None or cell != cell for cell in second.values())


def test_what_is_no_source_is_said() -> None:
    with pytest.raises(UserError, match=r"^the rows: .*expected a dict, a tuple or a text"):
        as_source([3], "the rows")
    with pytest.raises(UserError, match="the rows: "):
        as_source(3, "the rows")
