"""Texts of users and of their files, where something would run them: a terminal, Markdown, a sheet.

A label may hold an escape sequence, a link or a formula. It is shown as it is, and nothing more.
"""

from __future__ import annotations

import re

# Control characters but for the line's end and the tab, marks that turn the direction of writing,
# and halves of characters, which cannot be written at all.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_FORMULA = tuple("=+-@\t\r")


def shown(text: str) -> str:
    """For a terminal: control characters as their escapes, `\\x1b` and the like."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def markdown(text: str) -> str:
    """As Markdown shows it in a line or in a cell of a table: no markup, no links, no HTML."""
    return re.sub(r"([\\`*_\[\]<>#|&~$!])", r"\\\1", re.sub(r"\s+", " ", shown(text)))


def sheet_cell(text: str) -> str:
    """For a cell of a CSV file: with a quote before what a spreadsheet takes for a formula."""
    bare = text.lstrip("'")
    safe = not bare.startswith(_FORMULA) or (bare == text and _NUMBER.fullmatch(text))
    return text if safe else f"'{text}"


def from_sheet(cell: str) -> str:
    """The text of which `sheet_cell` made this cell."""
    quoted = cell.startswith("'") and cell.lstrip("'").startswith(_FORMULA)
    return cell[1:] if quoted else cell
