"""What a message says about an extra installs just what the extra stands for."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest

from bough.extras import install_line

EXTRAS = tomllib.loads(
    (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
)["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", ["serve", "search", "export", "hub", "tensorboard", "wandb"])
def test_the_line_names_the_packages(extra: str) -> None:
    pip, install, *packages = shlex.split(install_line(extra))
    assert (pip, install) == ("pip", "install")
    assert packages == EXTRAS[extra]


def test_no_message_or_page_asks_for_the_other_bough() -> None:
    """On PyPI the name belongs to another project."""
    root = Path(__file__).parent.parent
    pages = [
        root / "README.md",
        *(root / "docs").rglob("*.md"),
        *(root / "recipes").rglob("*.yaml"),
    ]
    for file in [*pages, *(root / "src").rglob("*.py")]:
        text = file.read_text(encoding="utf-8")
        assert not [line for line in text.splitlines() if "install" in line and "bough[" in line]
