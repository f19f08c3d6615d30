"""Jinja's environment for the templates of a package: pages, cards and recipes are laid out there.

A name that a template asks for and nobody gave is an error, and lines that hold only a tag leave
no trace.
"""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def environment(package: str, *, html: bool = False) -> Environment:
    """Of the package's folder `templates`; as HTML, whatever is put in is escaped."""
    return Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
