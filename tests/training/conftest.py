"""For all tests of training."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pulls the plug here."""
    monkeypatch.setattr(os, "fsync", lambda number: None)
