"""The pictures of the page in docs/img: `python -m tests.screenshots RUN docs/img`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

from bough.model import load
from bough.server import Settings

from .browser import Browser
from .serving import beside

VIEWS = {"desktop": (1280, 900), "phone": (390, 844)}


def main(run: str, folder: str) -> None:
    torch.set_num_threads(1)
    with (
        beside(load(run), Settings()) as url,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        Browser(Path(profile)) as browser,
    ):
        for name, (width, height) in VIEWS.items():
            for dark in (False, True):
                browser.view(width, height, dark)
                browser.go(f"{url}/")
                browser.run("document.documentElement.style.scrollbarWidth = 'none'")
                browser.until("document.querySelectorAll('#examples button').length > 3")
                browser.click("#examples button:last-child")
                browser.until("document.querySelectorAll('.read').length === 3")
                browser.run("new Promise((done) => setTimeout(done, 400))")  # bars have grown
                browser.run("document.activeElement.blur(); scrollTo(0, 0)")
                file = Path(folder) / f"page-{name}{'-dark' if dark else ''}.png"
                browser.screenshot(file, whole=name == "phone")


if __name__ == "__main__":
    main(*sys.argv[1:])
