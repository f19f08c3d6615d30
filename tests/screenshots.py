"""The pictures in docs/img.

python -m tests.screenshots page RUN docs/img                the server's page
python -m tests.screenshots report REPORT.html docs/img/NAME  a report
python -m tests.screenshots part REPORT.html '#depth' FILE    one part of a report
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from bough.inference.load import load_torch
from bough.serve.settings import Settings
from tests.browser import Browser
from tests.serving import beside

VIEWS = {"desktop": (1280, 900), "phone": (390, 844)}


@contextmanager
def opened() -> Iterator[Browser]:
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        Browser(Path(profile)) as browser,
    ):
        yield browser


def page(run: str, folder: str) -> None:
    torch.set_num_threads(1)
    with beside(load_torch(run), Settings()) as url, opened() as browser:
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


def report(file: str, stem: str) -> None:
    """Its beginning, some screens long."""
    with opened() as browser:
        for name, (width, height) in VIEWS.items():
            browser.view(width, 3 * height, dark=False)
            browser.go(Path(file).resolve().as_uri())
            browser.run("document.documentElement.style.scrollbarWidth = 'none'")
            browser.screenshot(Path(f"{stem}-{name}.png"))


def part(file: str, selector: str, out: str) -> None:
    with opened() as browser:
        browser.view(*VIEWS["desktop"], dark=False)
        browser.go(Path(file).resolve().as_uri())
        browser.screenshot(Path(out), of=selector)


if __name__ == "__main__":
    verbs: dict[str, Callable[..., None]] = {"page": page, "report": report, "part": part}
    verbs[sys.argv[1]](*sys.argv[2:])
