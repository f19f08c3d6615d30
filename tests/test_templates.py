"""Templates escape what is put into HTML, and take no name that nobody gave."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError

from bough.templates import environment


def test_html_is_escaped_and_plain_text_is_not() -> None:
    for html, expected in ((True, "a &lt; b\n"), (False, "a < b\n")):
        template = environment("bough.plan", html=html).from_string(
            "{% if 1 %}\n{{ x }}\n{% endif %}"
        )
        assert template.render(x="a < b") == expected


def test_a_name_that_nobody_gave_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'nobody' is undefined"):
        environment("bough.plan").from_string("{{ nobody }}").render()
