"""What a model is known by beside its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bough.data.checked_rows import Rows
from bough.recipe.tasks import Task
from bough.runs import model_facts


def rows(texts: Sequence[tuple[str, ...]], labels: list[int] | None) -> Rows:
    return Rows(list(texts), labels, [], "f.csv", list(range(len(texts))))


def test_examples_are_few_short_and_different() -> None:
    long = ("word " * 60,)
    texts = [long, ("a b",), ("a b c",), ("d e f",), ("g h i",), ("j k l",)]
    pairs = [("a b c", "x " * 80), ("a b c", "d e f")]
    examples = model_facts.examples_of(
        {"one": rows(texts, [0, 0, 1, 1, 2, 3]), "two": rows(pairs, None), "three": rows([], [])}
    )
    assert examples == ["a b c", "g h i", ["a b c", "d e f"]]


MOOD = Task(kind="classify", text="x", labels=("a", "b"), train="/home/me/mood.csv", dev=[("x", 0)])
LIKE = Task(kind="regress", text=("x", "y"), range=(0, 1), train={"hub": "/home/me/like"})


def test_data_is_named_without_the_users_folders() -> None:
    parts = {"mood": {"train": rows([("x",)], [0]), "dev": rows([], [])},
             "like": {"train": rows([("x", "y")] * 2, None)}}  # fmt: skip
    assert model_facts.data_of({"mood": MOOD, "like": LIKE}, parts) == {
        "mood": {
            "train": {"rows": 1, "source": "mood.csv"},
            "dev": {"rows": 0, "source": "rows in memory"},
        },
        "like": {"train": {"rows": 2, "source": "like"}},
    }


def test_a_part_of_a_model_has_the_facts_that_are_true_of_it() -> None:
    whole: dict[str, Any] = {
        "encoder": "minilm",
        "examples": ["one text", ["one", "other"]],
        "scores": {"dev": {"tasks": {"mood": 1, "like": 2}, "raw": 0.5}},
        "data": {"mood": 3, "like": 4},
        "cost": {"parameters": 100, "training_seconds": 9.0},
    }
    assert model_facts.of_part(whole, {"mood": MOOD}, 7) == {
        "encoder": "minilm",
        "examples": ["one text"],
        "scores": {"dev": {"tasks": {"mood": 1}}},
        "data": {"mood": 3},
        "cost": {"parameters": 7, "bytes_to_serve": 28},
    }
    assert model_facts.of_part({}, {"mood": MOOD}, 7) == {}
