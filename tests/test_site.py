"""The site builds from docs/: every page has its place, and no link or reference leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import bough

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = [p.relative_to(ROOT / "docs").with_suffix(".html") for p in ROOT.glob("docs/**/*.md")]
    built = {p.with_stem("index") if p.stem == "README" else p for p in pages}
    assert built <= {page.relative_to(site) for page in site.rglob("*.html")}


def test_every_page_is_in_the_menu() -> None:
    def listed(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for part in entry.values() if isinstance(entry, dict) else entry:
                yield from listed(part)

    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    pages = [str(p.relative_to(ROOT / "docs").as_posix()) for p in ROOT.glob("docs/**/*.md")]
    assert sorted(listed(menu)) == sorted(pages)


def test_the_start_shows_the_readmes_quick_start(site: Path) -> None:
    start = re.sub(r"<[^>]+>", "", (site / "index.html").read_text(encoding="utf-8"))
    assert "bough init sentiment.csv questions.csv" in start
    assert "--8&lt;--" not in start


@pytest.mark.parametrize("name", bough.__all__)
def test_the_reference_has_every_public_name(site: Path, name: str) -> None:
    page = (site / "reference.html").read_text(encoding="utf-8")
    home = getattr(bough, name).__module__
    assert f'id="bough.{name}"' in page or f'id="{home}.{name}"' in page
    example = (getattr(bough, name).__doc__ or "").split("Example:")[1]
    words = re.findall(r">>> (\w+)", example)
    assert words
    assert all(word in page for word in words)


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"?(https?://[^\s\">]+)", text)
        assert not [url for url in fetched if "canonical" not in url], page
