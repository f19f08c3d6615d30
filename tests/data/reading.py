"""Rows of any source, read for one of two small tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bough.data import rows
from bough.data.rows import Policy, Rows
from bough.errors import UserError
from bough.recipe.tasks import Task

BARE: dict[str, Any] = {"kind": "classify", "text": "sentence"}
CLASSIFY = Task(**BARE, labels=("0", "1"))
REGRESS = Task(kind="regress", text=("a", "b"), range=(0, 5))

Write = Callable[[str, str | bytes], str]


def read(task: Task, source: Any, policy: Policy = "error", **more: Any) -> Rows:
    return rows.read("t", task, source, root=Path("/nowhere"), policy=policy, **more)


def mistake(task: Task, source: Any, policy: Policy = "error", **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        read(task, source, policy, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)
