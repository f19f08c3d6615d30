"""The report in a real browser: on a desk and on a phone, by day and by night, and its script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bough.comparison.compare import Comparison
from bough.reports.page import page
from tests.browser import Browser, executable

pytestmark = pytest.mark.skipif(executable() is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(tab: Browser, file: Path) -> Iterator[Browser]:
    """The page, freshly loaded; at the end it must have fetched nothing but itself."""
    tab.events.clear()
    tab.view(1280, 900)
    tab.go(file.as_uri())
    tab.run("document.documentElement.style.scrollBehavior = 'auto'")  # a click does not wait
    yield tab
    assert tab.complaints() == []
    assert list(tab.fetched()) == [file.as_uri()]


def test_it_fits_a_phone_and_a_dark_room(browser: Browser) -> None:
    grounds = set()
    for width in (1280, 390):
        for dark in (False, True):
            browser.view(width, 900, dark)
            assert browser.run("document.documentElement.scrollWidth") <= width
            grounds.add(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2


def test_the_legend_hides_a_variant_everywhere(browser: Browser) -> None:
    shown = (
        "[...document.querySelectorAll('[data-v=\"1\"]')].filter(e => !e.closest('.off')).length"
    )
    before = browser.run(shown)
    assert before > 10
    browser.click('#learning [data-toggle="1"]')
    assert browser.run(shown) == 0
    pressed = "document.querySelector('#cost [data-toggle=\"1\"]').ariaPressed"
    assert browser.run(pressed) == "false"
    browser.click('#cost [data-toggle="1"]')
    assert browser.run(shown) == before


def test_a_table_sorts_by_the_heading_that_is_clicked(browser: Browser) -> None:
    column = "[...document.querySelectorAll('#table tbody tr')].map(r => +r.cells[7].dataset.sort)"
    for reverse in (True, False):
        browser.click("#table th:nth-child(8)")
        assert browser.run(column) == sorted(browser.run(column), reverse=reverse)


def test_one_variants_panels_at_a_time(browser: Browser) -> None:
    shown = "[...document.querySelectorAll('[data-panel^=\"sst:\"]')].map(p => !p.hidden)"
    assert browser.run(shown) == [True, False, False, False]
    browser.run(
        "(() => { const s = document.querySelector('[data-panels=sst]'); s.value = 2;"
        " s.dispatchEvent(new Event('change')); })()"
    )
    assert browser.run(shown) == [False, False, True, False]


def test_a_wrong_cell_leads_to_its_examples(browser: Browser) -> None:
    rows = (
        "[...document.querySelectorAll('#worst-sst tbody tr')].filter(r => !r.hidden)"
        ".map(r => [r.cells[2].innerText, r.cells[3].innerText])"
    )
    assert len(browser.run(rows)) == 10
    true, answer = browser.run(rows)[0]
    cell = f'[data-panel="sst:0"] td[data-true="{true}"][data-answer="{answer}"]'
    browser.click(cell)
    assert {tuple(row) for row in browser.run(rows)} == {(true, answer)}
    browser.click(cell)
    assert len(browser.run(rows)) == 10


def test_a_filtered_list_says_so_and_leads_back(browser: Browser) -> None:
    examples = "document.querySelector('#worst-sst').closest('.examples')"
    title = (
        f"[...{examples}.querySelectorAll('h3')].filter(h => h.offsetHeight).map(h => h.innerText)"
    )
    assert browser.run(title) == ["Worst-predicted rows of sst"]
    browser.click('[data-panel="sst:0"] td[data-true="1"][data-answer="3"]')
    assert browser.run(title) == ["Rows of sst of class 1, answered as 3"]
    browser.click('[data-panel="quora:0"] td[data-true="0"][data-answer="1"]')
    assert browser.run("document.querySelectorAll('[data-list].chosen').length") == 2, "one a task"
    browser.click(".examples:has(#worst-sst) [data-all]")
    assert browser.run(title) == ["Worst-predicted rows of sst"]
    shown = f"[...{examples}.querySelectorAll('tbody tr')].filter(r => !r.hidden).length"
    assert browser.run(shown) == 10
    assert browser.run("document.querySelectorAll('[data-list].chosen').length") == 1


def test_headings_stand_over_their_cells(browser: Browser) -> None:
    last = "getComputedStyle(document.querySelector('#worst-sst {}:last-child')).textAlign"
    assert browser.run(last.format("th")) == browser.run(last.format("td")) == "right"


@pytest.mark.parametrize("width", [1280, 390])
def test_a_mistake_among_many_classes_leads_to_its_examples(
    tab: Browser, many_classes: Comparison, tmp_path: Path, width: int
) -> None:
    """By mouse and by keyboard; long names leave the page as wide as it is."""
    file = tmp_path / "report.html"
    file.write_text(page(many_classes), encoding="utf-8")
    tab.view(width, 900)
    tab.go(file.as_uri())
    tab.run("document.documentElement.style.scrollBehavior = 'auto'")
    assert tab.run("document.documentElement.scrollWidth") <= width
    table = "document.querySelector('.mistakes')"
    assert tab.run(f"{table}.scrollWidth <= {table}.parentElement.clientWidth")
    examples = (
        "[...document.querySelectorAll('#worst-sst tbody tr')].filter(r => !r.hidden)"
        ".map(r => [r.dataset.true, r.dataset.answer])"
    )
    first = ".mistakes tbody tr:first-child"
    pair = tab.run(f"(({{dataset: d}}) => [d.true, d.answer])(document.querySelector('{first}'))")
    tab.click(first)
    assert tab.run(examples)
    assert all(found == pair for found in tab.run(examples))
    assert tab.run("document.documentElement.scrollWidth") <= width
    tab.run(f"document.querySelector('{first}').focus()")
    tab.press("Enter", 13)
    assert len(tab.run(examples)) == 10


@pytest.mark.parametrize(
    ("selector", "words"),
    [("#cost .plot .mark", "normalised ."), ("#gradients [data-heat]", "layer 4 · "),
     ("#answers td[data-true]", "answered as")],
)  # fmt: skip
def test_marks_tell_what_they_are(browser: Browser, selector: str, words: str) -> None:
    tip = browser.run(
        f"(() => {{ const e = document.querySelector({selector!r});"
        " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
        " e.dispatchEvent(new PointerEvent('pointermove', {bubbles: true,"
        " clientX: r.x + r.width / 2, clientY: r.y + r.height / 2}));"
        " return document.querySelector('.tip.on').innerText; })()"
    )
    assert words in tip
