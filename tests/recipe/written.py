"""A small recipe as a file, and what is said against one that is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bough.errors import UserError
from bough.recipe.recipe import Recipe

TASKS: dict[str, dict[str, Any]] = {
    "sst": {"kind": "classify", "text": "sentence", "train": "a.csv", "dev": "b.csv"},
    "sts": {"kind": "regress", "text": ["a", "b"], "range": [0, 5], "train": "c.csv"},
}
TEXT = """\
encoder: minilm
plan: split@3
tasks:
  sst: {kind: classify, text: sentence}
  sts:
    kind: regress
    text: [a, b]
    range: [0, 5]
training:
  lr: 5e-5
"""

Write = Callable[[str], str]


def mistake(source: Any, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        Recipe.read(source, overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)
