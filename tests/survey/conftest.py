"""A small base recipe, and runs that take no time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bough.survey import launcher
from tests import folders
from tests.survey import files


@pytest.fixture
def base(tiny_folder: Path) -> dict[str, Any]:
    return {**folders.small(tiny_folder, steps=12), "threads": 1}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that take no time."""
    monkeypatch.setattr(launcher, "COMMAND", (sys.executable, str(files.PRETENDER)))


@pytest.fixture
def seed_1_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs that take no time, but for those of the seed 1, which fail until it is mended."""
    code = (
        "import pathlib, runpy, sys\n"
        f"mended = pathlib.Path({str(tmp_path / files.MENDED)!r}).exists()\n"
        "if sys.argv[-1].endswith('-s1') and not mended:\n"
        "    sys.exit('bough: no seed 1 today')\n"
        f"runpy.run_path({str(files.PRETENDER)!r})\n"
    )
    monkeypatch.setattr(launcher, "COMMAND", (sys.executable, "-c", code))


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
    """The same in all processes that are started from here."""
    place = str(Path(__file__).with_name("pretended"))
    monkeypatch.setenv("PYTHONPATH", place, prepend=":")
