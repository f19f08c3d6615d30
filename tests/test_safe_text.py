"""Texts that a terminal, Markdown or a spreadsheet would run are shown instead."""

from __future__ import annotations

import pytest

from bough.safe_text import from_sheet, markdown, sheet_cell, shown


def test_control_characters_are_shown() -> None:
    assert shown("a\x1b[2Jb\x9b1m\u202e\ud800\n\tc") == "a\\x1b[2Jb\\x9b1m\\u202e\\ud800\n\tc"
    assert shown("naïve [/red] :smile:") == "naïve [/red] :smile:"


def test_markdown_is_no_markup() -> None:
    assert markdown("[x](http://a) <b>|\n&amp; `c`") == (r"\[x\](http://a) \<b\>\| \&amp; \`c\`")


@pytest.mark.parametrize("text", ["=1+1", "+x", "-x", "@x", "\t=x", "-1+cmd|'/c'!A0", "'=x"])
def test_formulas_are_quoted_and_come_back(text: str) -> None:
    assert sheet_cell(text) == f"'{text}"
    assert from_sheet(sheet_cell(text)) == text


@pytest.mark.parametrize("text", ["", "x", "-5", "+1.5e-3", "'x", "a=b", "''", "5"])
def test_the_rest_stays_as_it_is(text: str) -> None:
    assert sheet_cell(text) == text
    assert from_sheet(text) == text


def test_a_quoted_number_comes_back() -> None:
    assert from_sheet(sheet_cell("'-5")) == "'-5"
