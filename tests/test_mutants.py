"""The lines that tools/mutants.py makes wrong are still there, each once."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def mutants() -> list[Any]:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.MUTANTS)


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: str(mutant.name))
def test_its_line_is_there(mutant: Any) -> None:
    text = (ROOT / "src" / "bough" / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.right) == 1
