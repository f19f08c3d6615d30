"""What a message says about an extra installs just what the extra stands for."""

from __future__ import annotations

import shlex
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from hatchling.build import prepare_metadata_for_build_wheel

from bough.extras import install_line

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ["serve", "search", "export", "hub", "cluster", "tensorboard", "wandb"]


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_line_names_the_packages(
    extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a wheel made now would have them, whatever is installed here."""
    monkeypatch.chdir(ROOT)
    wheel = metadata.PathDistribution(tmp_path / prepare_metadata_for_build_wheel(str(tmp_path)))
    monkeypatch.setattr(metadata, "requires", lambda name: wheel.requires)
    pip, install, *packages = shlex.split(install_line(extra))
    assert (pip, install) == ("pip", "install")
    expected = [name.replace("_", "-") for name in PROJECT["optional-dependencies"][extra]]
    assert sorted(packages) == sorted(expected)


def test_no_message_or_page_asks_for_the_other_bough() -> None:
    """On PyPI the name belongs to another project."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("recipes/**/*.yaml")]
    for file in [*pages, *ROOT.glob("src/**/*.py")]:
        text = file.read_text(encoding="utf-8")
        assert not [line for line in text.splitlines() if "install" in line and "bough[" in line]
