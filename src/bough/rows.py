"""Rows: files, hub sets and memory become checked splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bough.tasks import Source, Split, Task

Policy = Literal["error", "skip"]


@dataclass(frozen=True)
class Skipped:
    """A row that cannot be used, and why."""

    file: str
    line: int
    column: str
    value: str
    why: str


@dataclass(frozen=True)
class Rows:
    """One split of a task, checked."""

    texts: list[tuple[str, ...]]
    labels: list[int] | list[float] | None
    ids: list[str]
    source: str
    lines: list[int]
    skipped: tuple[Skipped, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)


def load(
    name: str, task: Task, *, root: Path, policy: Policy, splits: Sequence[Split] | None = None
) -> tuple[Task, dict[Split, Rows]]:
    """The task with its classes known, and its splits."""
    raise NotImplementedError


def digest(rows: Rows) -> str:
    """sha256 of the contents: texts and labels."""
    raise NotImplementedError
