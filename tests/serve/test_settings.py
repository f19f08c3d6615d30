"""What cannot work is said at the start."""

from __future__ import annotations

import re

import pytest

from bough.errors import UserError
from bough.serve.settings import Settings


@pytest.mark.parametrize(
    ("origin", "right"),
    [
        ("https://my.site/", "https://my.site"),
        ("https://my.site/page?a=b", "https://my.site"),
        ("https://My.site", "https://my.site"),
        ("https://my.site:443", "https://my.site"),
        ("http://me@[::1]:8080", "http://[::1]:8080"),
        ("my.site", "https://my.site"),
        ("https://my.site:port", "https://my.site"),
        ("", "https://my.site"),
    ],
)
def test_origins_are_as_browsers_name_them(origin: str, right: str) -> None:
    sentence = f"--cors {origin!r} is no site as browsers name it; write {right} or *"
    with pytest.raises(UserError, match=re.escape(sentence)):
        Settings(origins=("*", origin))
    Settings(origins=(right, "http://localhost:3000"))


@pytest.mark.parametrize("host", ["", "http://my.site", "my.site:8000", "[::1]", "My.site"])
def test_host_names_are_names(host: str) -> None:
    with pytest.raises(UserError, match=r"is no host.s name; write my\.site"):
        Settings(hosts=(host,))
    Settings(hosts=("*", "my.site", "::1", "10.0.0.1"))
