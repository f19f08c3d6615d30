"""Fixtures of the recipe's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recipe.written import Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> str:
        (tmp_path / "recipe.yaml").write_text(text, encoding="utf-8")
        return str(tmp_path / "recipe.yaml")

    return write
