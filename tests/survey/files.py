"""What tests of surveys write and look into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MENDED = "mended.txt"  # where it is, runs of the seed 1 do not fail any more
PRETENDER = Path(__file__).parents[1] / "pretender.py"


def written(folder: Path, **keys: Any) -> Path:
    file = folder / "asked.yaml"
    file.write_text(yaml.safe_dump(keys, sort_keys=False), encoding="utf-8")
    return file


def starts(folder: Path) -> dict[str, int]:
    """How often each run was begun or resumed."""
    notes = sorted((folder / "runs").glob("*/starts.txt"))
    return {file.parent.name: len(file.read_text().splitlines()) for file in notes}


def recipes(out: Path) -> list[dict[str, Any]]:
    return [yaml.safe_load(f.read_text()) for f in sorted((out / "runs").glob("*/recipe.yaml"))]
