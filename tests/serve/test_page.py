"""The page in a real browser: ask about a text and a pair, by mouse and by keyboard."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from bough.inference.torch_model import MultiTaskModel
from bough.recipe.tasks import Task
from bough.serve.settings import Settings
from tests import tiny
from tests.browser import Browser, executable
from tests.serving import beside, model

pytestmark = pytest.mark.skipif(executable() is None, reason="no Chromium on this machine")

TREE, LEAF = "the old tree is green", "the leaf was not bright"
EVIL = "<img src=x onerror=\"document.title='owned'\"> & the 'tree' </script>"


@pytest.fixture(scope="module")
def made() -> MultiTaskModel:
    return model("split@1/same+near, feed:mood>same", examples=[TREE, (TREE, LEAF), EVIL])


@pytest.fixture(scope="module")
def url(made: MultiTaskModel) -> Iterator[str]:
    with beside(made, Settings()) as address:
        yield address


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(tab: Browser, url: str) -> Iterator[Browser]:
    """The page, freshly loaded; at the end it must have fetched nothing from elsewhere."""
    tab.events.clear()
    tab.view(1280, 900)
    tab.go(f"{url}/")
    tab.until("document.querySelectorAll('#examples button').length > 0")
    yield tab
    assert tab.complaints() == []
    assert all(one.startswith(url) for one in tab.fetched()), tab.fetched()


def cards(browser: Browser) -> list[list[str]]:
    """Task and answer of every card, in order."""
    pairs = browser.run(
        "[...document.querySelectorAll('.card')].map(c =>"
        " [c.querySelector('h3').innerText, c.querySelector('.said')?.innerText ?? ''])"
    )
    assert isinstance(pairs, list)
    return pairs


def test_a_text(browser: Browser, made: MultiTaskModel) -> None:
    truth = made.predict(TREE)["mood"]
    assert truth.probabilities is not None
    browser.type("#first", TREE)
    browser.click("#ask")
    browser.until("document.querySelectorAll('.card').length === 3")
    assert cards(browser) == [["mood", truth.label], ["same", ""], ["near", ""]]
    shares = browser.run(
        "[...document.querySelectorAll('.card[data-task=mood] .bars > div')].map(d =>"
        " [d.querySelector('dt').innerText, d.querySelector('.share').innerText,"
        " d.querySelector('.bar span').style.width])"
    )
    for (label, shown, width), (name, share) in zip(
        shares, truth.probabilities.items(), strict=True
    ):
        assert (label, shown) == (name, f"{100 * share:.1f}\u00a0%")
        assert float(width.removesuffix("%")) == pytest.approx(100 * share, abs=1e-3)
    assert "Needs a second text." in browser.text("#answers")
    assert "ms in the model" in browser.text("#took")
    assert browser.text("#work").startswith("The text took 4 steps:")
    # Only the single text's own way is drawn in full.
    used = browser.run(
        "[...document.querySelectorAll('#picture .head')].map(h =>"
        " [h.dataset.tasks, h.classList.contains('away')])"
    )
    assert sorted(used) == [["mood", False], ["near", True], ["same", True]]


def test_a_pair_by_keyboard(browser: Browser, made: MultiTaskModel) -> None:
    pair = made.predict((TREE, LEAF))
    value = pair["near"].value
    assert value is not None
    browser.type("#first", TREE)
    browser.press("Tab", 9)
    browser.call("Input.insertText", text=LEAF)
    browser.press("Enter", 13, modifiers=2)
    browser.until("document.querySelectorAll('.card').length === 4")
    moods = [made.predict(text)["mood"].label for text in (TREE, LEAF)]
    assert cards(browser) == [
        ["same", pair["same"].label],
        ["near", f"{value:.2f}"],
        ["mood", moods[0]],
        ["mood", moods[1]],
    ]
    heads = browser.run("[...document.querySelectorAll('.read h2')].map(h => h.innerText)")
    assert heads == ["Both texts", f"First text {TREE}", f"Second text {LEAF}"]
    work = browser.text("#work")
    # Nothing is saved: `same` alone walks mood's way, too, and `near` reads the texts apart.
    assert work.splitlines()[0] == "The pair took 6 steps:"
    assert "once for mood and same: embeddings, layer 1" in work
    assert browser.run("document.querySelectorAll('#picture .once').length") == 2


def test_empty_input_is_an_error_that_is_read_out(browser: Browser) -> None:
    browser.click("#ask")
    browser.until("document.querySelector('#error').innerText !== ''")
    assert browser.text("#error") == "Write a text first."
    assert browser.run("document.querySelector('#error').getAttribute('role')") == "alert"
    assert browser.run("document.activeElement.id") == "first"
    assert browser.run("document.activeElement.getAttribute('aria-invalid')") == "true"
    browser.type("#second", LEAF)
    browser.click("#ask")
    browser.until("document.querySelector('#error').innerText === 'The first text is empty.'")
    browser.type("#first", TREE)
    browser.click("#ask")
    browser.until("document.querySelectorAll('.card').length === 4")
    assert browser.text("#error") == ""


def test_the_servers_own_refusal_is_shown(browser: Browser) -> None:
    browser.run(f"document.querySelector('#first').value = {json.dumps('a' * 20_001)}")
    browser.click("#ask")
    browser.until("document.querySelector('#error').innerText !== ''")
    wanted = "Text 1 has 20,001 characters; at most 20,000 are taken."
    assert browser.text("#error") == wanted
    refused = [words for words in browser.complaints() if "422" in words]
    assert len(refused) == 1
    browser.events.clear()


def test_examples_are_clicked_and_nothing_in_them_is_code(browser: Browser) -> None:
    browser.click("#examples button:nth-child(2)")
    browser.until("document.querySelectorAll('.card').length === 4")
    assert browser.run("document.querySelector('#second').value") == LEAF
    browser.click("#examples button:nth-child(3)")
    browser.until("document.querySelectorAll('.card').length === 3")
    browser.type("#second", EVIL)
    browser.click("#ask")
    browser.until("document.querySelectorAll('.card').length === 4")
    assert EVIL[:40] in browser.text("#answers")
    assert browser.run("document.querySelectorAll('main img').length") == 0
    assert browser.run("document.title") == "bough: first"


def test_the_cells_that_a_task_uses(browser: Browser) -> None:
    assert browser.run("document.querySelectorAll('#picture .away').length") == 0
    browser.click("#tasks button[data-task=near]")
    pressed = browser.run("document.querySelector('#tasks [aria-pressed=true]').innerText")
    assert pressed == "near"
    away = browser.run("[...document.querySelectorAll('#picture .away')].map(b => b.dataset.tasks)")
    assert sorted(set(away)) == ["mood", "same"]
    # `same` reads the head of `mood`, and so uses its way.
    browser.click("#tasks button[data-task=same]")
    away = browser.run("[...document.querySelectorAll('#picture .away')].map(b => b.dataset.tasks)")
    assert away == ["near"]
    browser.click("#tasks button[data-task='']")
    assert browser.run("document.querySelectorAll('#picture .away').length") == 0


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844), (320, 600)])
def test_it_fits_and_can_be_read(browser: Browser, width: int, height: int, dark: bool) -> None:
    browser.view(width, height, dark, phone=width < 500)
    browser.click("#examples button:nth-child(2)")
    browser.until("document.querySelectorAll('.card').length === 4")
    assert browser.run("document.documentElement.scrollWidth") <= width
    for selector in ("body", "#ask", ".pale", ".said", ".card p, .share", "#error", "a"):
        assert contrast(browser, selector) >= 4.5, selector


def contrast(browser: Browser, selector: str) -> float:
    """https://www.w3.org/TR/WCAG21/#contrast-minimum, of text on what is painted behind it."""
    ratio = browser.run(
        f"""(() => {{
          const node = document.querySelector({json.dumps(selector)});
          const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
          const light = (colour) => channels(colour).slice(0, 3).map((c) => c / 255)
            .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
          let behind = node;
          while (channels(getComputedStyle(behind).backgroundColor)[3] === 0) {{
            behind = behind.parentElement;
          }}
          const pair = [getComputedStyle(node).color, getComputedStyle(behind).backgroundColor];
          const [low, high] = pair.map(light).sort((a, b) => a - b);
          return (high + 0.05) / (low + 0.05);
        }})()"""
    )
    assert isinstance(ratio, int | float)
    return ratio


def test_everything_has_a_name_for_those_who_do_not_see_it(browser: Browser) -> None:
    browser.click("#examples button:nth-child(2)")
    browser.until("document.querySelectorAll('.card').length === 4")
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "textbox", "link", "image", "heading", "region"}
    nameless = [
        node["role"]["value"]
        for node in nodes
        if not node["ignored"]
        and node["role"]["value"] in roles
        and not node.get("name", {}).get("value")
    ]
    assert nameless == []
    named = {node["name"]["value"] for node in nodes if node.get("name", {}).get("value")}
    assert {"Ask", "Answers", "Plan", "Examples", "Show what a task uses"} <= named
    assert any(name.startswith("Second text") for name in named)


def test_the_api_page(browser: Browser, url: str) -> None:
    browser.go(f"{url}/docs")
    browser.until("document.querySelectorAll('#paths section').length === 5")
    assert f"curl {url}/predict" in browser.text("#curl")
    assert "a number from 0 to 5" in browser.text("#tasks")
    assert "POST /predict" in browser.text("#paths")
    assert "With abstain, a probability from 0 to 1," in browser.text("main")


def test_a_text_that_is_cut_is_marked(browser: Browser, made: MultiTaskModel) -> None:
    browser.type("#first", "tree " * 2 * made.longest)
    browser.click("#ask")
    browser.until("document.querySelectorAll('.card').length === 3")
    sentence = f"Only the first {made.longest} tokens were read."
    assert sentence in browser.text(".card[data-task=mood]")


def test_a_question_that_is_wrong_ends_the_one_before(browser: Browser) -> None:
    """Else its answers would come to stand below the complaint."""
    browser.type("#first", TREE)
    click = "document.querySelector('#ask').click();"
    browser.run(f"{click} document.querySelector('#first').value = ''; {click}")
    time.sleep(1)
    assert browser.text("#error") == "Write a text first."
    assert cards(browser) == []
    assert browser.run("document.querySelector('#ask').getAttribute('aria-disabled')") is None


def give_key(tab: Browser, key: str) -> None:
    tab.type("#key", key)
    tab.press("Enter", 13)


def test_a_key_that_has_changed_is_asked_for_again(tab: Browser, made: MultiTaskModel) -> None:
    with beside(made, Settings(key="secret")) as locked:
        tab.go(f"{locked}/")
        tab.until("!document.querySelector('#key-form').hidden")
        give_key(tab, "secret")
        tab.until("document.querySelector('#key-form').hidden")
        tab.run("sessionStorage.setItem('bough-key', 'älter ✓')")
        tab.type("#first", TREE)
        tab.click("#ask")
        tab.until("!document.querySelector('#key-form').hidden")
        assert tab.text("#key-form .error") == "This key is not the server's."
        give_key(tab, "secret")
        tab.until("document.querySelector('#key-form').hidden")
        tab.click("#ask")  # the text is still there
        tab.until("document.querySelectorAll('.card').length === 3")


def test_a_key_is_asked_for(tab: Browser, made: MultiTaskModel) -> None:
    with beside(made, Settings(key="secret")) as locked:
        tab.go(f"{locked}/")
        tab.until("!document.querySelector('#key-form').hidden")
        for key, hidden in (("wrong", "false"), ("secret", "true")):
            give_key(tab, key)
            tab.until(f"document.querySelector('#key-form').hidden === {hidden}")
            if key == "wrong":
                tab.until("document.querySelector('#key-form .error').innerText !== ''")
                assert tab.text("#key-form .error") == "This key is not the server's."
                for part in ("#form", ".plan"):  # nothing can be asked yet
                    assert tab.run(f"document.querySelector('{part}').offsetParent === null")
        tab.until("document.querySelectorAll('#examples button').length > 0")
        tab.click("#examples button:nth-child(1)")
        tab.until("document.querySelectorAll('.card').length === 3")
        assert tab.text("#error") == ""
        assert tab.run("document.querySelector('.plan').offsetParent !== null")


def test_spans_are_marked_in_the_text(tab: Browser) -> None:
    """By characters: a tree is one of them, and two to JavaScript."""
    text = "🌳🌳 the old tree is green and the leaf was not bright"
    tasks = {
        "mood": tiny.task(),
        "names": Task(kind="tag", text="text", labels=("wood", "colour"), pooling="words"),
    }
    source = tiny.encoder(layers=2)
    network = tiny.network("full", tasks, source, stir=0.3)
    marking = MultiTaskModel(network, source.tokenizer, 40, {"examples": [text]})
    answer = marking.predict(text)["names"]
    assert answer.spans
    with beside(marking, Settings()) as url:
        tab.events.clear()
        tab.go(f"{url}/")
        tab.until("document.querySelectorAll('#examples button').length > 0")
        tab.type("#first", text)
        tab.click("#ask")
        tab.until("document.querySelectorAll('.card').length === 2")
        found = tab.run(
            "[...document.querySelectorAll('.card[data-task=names] mark')].map(m =>"
            " [m.firstChild.textContent, m.querySelector('small').textContent])"
        )
        assert found == [[span.text, span.label] for span in answer.spans]
        whole = tab.run(
            "[...document.querySelector('.marked').childNodes].map(n =>"
            " n.nodeName === 'MARK' ? n.firstChild.textContent : n.textContent).join('')"
        )
        assert whole == text
        count = len(answer.spans)
        assert ["names", "1 span" if count == 1 else f"{count} spans"] in cards(tab)
        assert tab.complaints() == []


def test_long_names_of_classes_are_not_cut(tab: Browser) -> None:
    labels = tuple(f"card_payment_fee_charged_{end}" for end in ("twice", "abroad", "by_mistake"))
    source = tiny.encoder(layers=2)
    tasks = {"intent": Task(kind="classify", text="text", labels=labels, pooling="mean")}
    intents = MultiTaskModel(tiny.network("full", tasks, source, stir=0.3), source.tokenizer, 40)
    names = "[...document.querySelectorAll('.bars dt')]"
    with beside(intents, Settings()) as url:
        for width in (1280, 400):
            tab.events.clear()
            tab.view(width, 900)
            tab.go(f"{url}/")
            tab.until("document.querySelector('#tasks button') !== null")
            tab.type("#first", TREE)
            tab.click("#ask")
            tab.until("document.querySelectorAll('.card').length === 1")
            assert tab.run(f"{names}.map(n => n.innerText)") == list(labels)
            assert tab.run(f"{names}.every(n => n.scrollWidth <= n.clientWidth)")
            assert tab.run("document.documentElement.scrollWidth") <= width
            bars = "[...document.querySelectorAll('.bars .bar')].map(b => b.clientWidth)"
            assert min(tab.run(bars)) >= 40
            assert tab.complaints() == []
