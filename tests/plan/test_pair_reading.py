"""How pairs are read where the recipe leaves it open: by the rows and what the encoder is for."""

from __future__ import annotations

from typing import Any

import pytest

from bough.plan.pair_reading import ENOUGH_ROWS, resolved
from bough.recipe.tasks import Task


def pair(**settings: Any) -> Task:
    given = {"kind": "regress", "text": ("a", "b"), "range": (0, 5), "train": "x.csv", **settings}
    return Task.model_validate(given)


@pytest.mark.parametrize(
    ("rows", "compares", "expected"),
    [
        (ENOUGH_ROWS - 1, True, "twin"),
        (ENOUGH_ROWS, True, "joint"),
        (10, False, "joint"),
    ],
)
def test_few_rows_and_an_encoder_of_sentences(rows: int, compares: bool, expected: str) -> None:
    tasks, notes = resolved({"sts": pair()}, {"sts": rows}, compares)
    assert tasks["sts"].pair == expected
    assert tasks["sts"].twin == (expected == "twin")
    assert len(notes) == compares  # where there is a choice, it is said


@pytest.mark.parametrize("said", ["joint", "twin", "cross-encoder", "bi-encoder"])
def test_what_the_recipe_says_holds(said: str) -> None:
    task = pair(pair=said)
    assert resolved({"sts": task}, {"sts": 10}, True) == ({"sts": task}, [])
    assert task.twin == (said in ("twin", "bi-encoder"))


def test_single_texts_are_no_pairs() -> None:
    task = pair(text="a")
    assert resolved({"one": task}, {"one": 10}, True) == ({"one": task}, [])


def test_a_table_of_several_tasks_is_read_in_one_way() -> None:
    tasks = {"a": pair(label="x"), "b": pair(label="y")}
    found, notes = resolved(tasks, {"a": 10, "b": 10}, True)
    assert {task.pair for task in found.values()} == {"joint"}
    assert notes == []
