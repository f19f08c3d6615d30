"""Rows of any source, read for one of two small tasks; columns of texts and labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bough.data import checked_rows
from bough.data.checked_rows import Policy, Rows
from bough.errors import UserError
from bough.recipe.tasks import Task

BARE: dict[str, Any] = {"kind": "classify", "text": "sentence"}
CLASSIFY = Task(**BARE, labels=("0", "1"))
REGRESS = Task(kind="regress", text=("a", "b"), range=(0, 5))

WORDS = ["the", "old", "tree", "is", "green", "and", "very", "tall", "today"]
Write = Callable[[str, str | bytes], str]


def read(task: Task, source: Any, policy: Policy = "error", **more: Any) -> Rows:
    return checked_rows.read("t", task, source, root=Path("/nowhere"), policy=policy, **more)


def mistake(task: Task, source: Any, policy: Policy = "error", **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        read(task, source, policy, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def texts(number: int, start: int = 0) -> list[str]:
    return [f"{' '.join(WORDS[i % 5 :])} number {i}" for i in range(start, start + number)]


def words(number: int, *names: str) -> list[str]:
    return [names[i % len(names)] for i in range(number)]
