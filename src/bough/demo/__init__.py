"""The embedded default: three small tasks written for bough, and the recipe that trains them."""

from __future__ import annotations

from pathlib import Path


def folder() -> Path:
    """Where the data files are."""
    return Path(__file__).parent / "data"
