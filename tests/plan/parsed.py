"""Plans for three tasks on six layers, as the tests of this folder read them."""

from __future__ import annotations

from typing import Any

from bough.plan.plan import Plan

TASKS = ("sst", "para", "sts")
ALL = ("all", "all", "all")
PAIRS = ("sst", "para+sts", "para+sts")


def parse(text: Any, tasks: tuple[str, ...] = TASKS, layers: int = 6, **other: Any) -> Plan:
    return Plan.parse(text, tasks, layers, **other)
