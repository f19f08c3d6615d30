"""The report is one file that needs nothing, holds every part, and takes no text for markup."""

from __future__ import annotations

import html
import re
import shlex
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from bough.cli.main import app
from bough.comparison.compare import compare
from bough.errors import UserError
from bough.inference.torch_model import MultiTaskModel
from bough.reports import hard_examples, plots, provenance
from bough.reports import page as report_page
from bough.reports.html import Markup, element
from bough.runs.run_dir import Run
from tests import simulated, tiny


class Page(HTMLParser):
    """Tags in balance, the addresses that are asked for, and the visible words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.asked: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)
        for key, value in attrs:
            if key in ("src", "href", "xlink:href", "data", "action", "poster", "srcset"):
                (self.links if (value or "").startswith("#") else self.asked).append(value or "")
            if key == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plans = ["separate", "full", "split@2", "split@4"]
    folder = tmp_path_factory.mktemp("survey")
    return simulated.survey(folder, plans, 2, cosines=True)


@pytest.fixture(scope="module")
def text(survey: Path) -> str:
    return report_page.write([survey], survey / "report.html").read_text()


def test_nothing_is_fetched(text: str) -> None:
    page = Page(text)
    assert all(address.startswith("data:image/png;base64,") for address in page.asked)
    assert "link" not in page.tags
    assert "iframe" not in page.tags
    assert not re.search(r"@import|url\(\s*[\"']?(?!#)", text)
    assert not re.search(r"fetch\(|XMLHttpRequest|WebSocket|import\(", text)
    addresses = set(re.findall(r"(?:https?:)?//[a-z][\w.-]+\.[a-z]+[^\s\"'<]*", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of SVG, not an address


def test_every_part_is_there(text: str) -> None:
    page = Page(text)
    sections = {"cost", "differences", "depth", "table", "plans", "learning", "gradients",
                "answers", "contradictions", "breakdown", "method"}  # fmt: skip
    assert sections <= set(page.ids)
    assert {f"#{name}" for name in sections} <= set(page.links)
    assert len(page.ids) == len(set(page.ids))
    words = " ".join(page.words)
    for part in ("An anecdote", "Worst-predicted rows of sts", "Calibration", "Simulated <CPU>",
                 "sst and quora", "split@2", "memory to serve", "seeds 0, 1"):  # fmt: skip
        assert part in words


def test_no_plot_is_empty(text: str) -> None:
    drawn = re.findall(r'<svg class="plot".*?</svg>', text, re.DOTALL)
    assert len(drawn) > 30
    for plot in drawn:
        assert "nan" not in plot
        assert "data-tip" in plot or "data-heat" in plot


def test_texts_are_never_markup(text: str) -> None:
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<b>bold" not in text
    assert Page(text).tags.count("script") == 1


def test_gone_data_is_told(survey: Path, tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 30)
    run = simulated.run(tmp_path / "run", simulated.recipe(source, "full", 0))
    file = source / "sst-dev.tsv"
    file.write_text(file.read_text().replace("tree", "bush"))
    (source / "sts-dev.tsv").unlink()
    text = " ".join(Page(report_page.page(compare([run]))).words)
    assert "sst: texts not shown, the data has changed since it was judged" in text
    assert "sts: texts not shown (" in text
    assert "(text not at hand)" in text


def test_sixty_runs_are_quick_and_small(tmp_path: Path) -> None:
    plans = ["separate", "full", "split@1", "split@2", "split@3", "split@4", "split@5", "late:S",
             "late:I", "pal:16", "lora:8", "feed:sst>sts"]  # fmt: skip
    simulated.survey(tmp_path, plans, 5, rows=60, cosines=True)
    began = time.process_time()
    out = report_page.write([tmp_path], tmp_path / "report.html")
    assert time.process_time() - began < 20
    assert out.stat().st_size < 8e6
    Page(out.read_text())


def test_many_variants_of_one_seed(tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 30)
    for n in range(14):
        told = simulated.recipe(source, "full", 0, **{"training.lr": (n + 1) * 1e-5})
        simulated.run(tmp_path / "runs" / f"r{n}", told)
    text = report_page.page(compare([tmp_path]))
    assert "The best 12 variants are shown." in text
    assert "Not logged. Set training.cosines_every" in text


def test_one_run_alone(tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 30)
    told = simulated.recipe(source, "full", 0, tasks=("sst",))
    text = report_page.page(compare([simulated.run(tmp_path / "run", told)]))
    page = Page(text)
    assert "nothing to compare it with" in text
    assert not {"cost", "differences", "contradictions"} & set(page.ids)


def test_markdown_and_the_command_line(survey: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    done = run(app, ["report", str(survey), "-o", str(tmp_path / "r.md"), "--baseline", "full"])
    assert done.exit_code == 0
    assert "| full (baseline) | 2 |" in (tmp_path / "r.md").read_text()
    for out, words in (("r.pdf", ".html or .md"), ("no/r.html", "no such folder")):
        wrong = run(app, ["report", str(survey), "-o", str(tmp_path / out)])
        assert isinstance(wrong.exception, UserError)
        assert words in str(wrong.exception)


def test_the_command_that_repeats_it_is_the_one_that_was_given(tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 30)
    paths = [tmp_path / "two words" / f"{n}-{plan}" for n, plan in enumerate(("full", "split@2"))]
    for path, plan in zip(paths, ("full", "split@2"), strict=True):
        simulated.run(path, simulated.recipe(source, plan, 0))
    simulated.run(tmp_path / "two words" / "other", simulated.recipe(source, "separate", 0))
    text = str(provenance.section(compare(paths, baseline="split@2", tasks=["sst", "quora"])))
    command = shlex.split(html.unescape(re.findall(r"<pre>(bough report .*?)</pre>", text)[0]))
    assert command == ["bough", "report", *map(str, paths), "--baseline", "split@2",
                       "--split", "dev", "--tasks", "sst,quora"]  # fmt: skip
    done = CliRunner().invoke(app, [*command[1:], "-o", str(tmp_path / "again.html")])
    assert done.exit_code == 0
    assert shlex.join(command) in " ".join(Page((tmp_path / "again.html").read_text()).words)


def test_a_broken_log_is_one_sentence(survey: Path, tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 30)
    run = simulated.run(tmp_path / "run", simulated.recipe(source, "full", 0))
    log = run / "metrics.jsonl"
    log.write_text(log.read_text().replace('"step": 40', '"step": 4 0'))
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2: not JSON"):
        report_page.write([run], tmp_path / "report.html")


# --- examples ------------------------------------------------------------------------------------


def test_worst_examples_are_the_worst(survey: Path) -> None:
    found = compare([survey])
    known, gone = hard_examples.texts(found)
    assert gone == []
    for name in found.metrics:
        worst = hard_examples.worst(found, name, known)
        first = worst[: hard_examples.WORST]
        assert [e.miss for e in first] == sorted((e.miss for e in first), reverse=True)
        assert all(e.texts == known[name][e.number] for e in worst)
        assert all(e.runs == 8 for e in worst)
    kinds = {(e.truth, e.said) for e in hard_examples.worst(found, "sst", known)}
    assert len(kinds) > 5  # some of every confusion, for the matrix to lead to


def test_tasks_that_contradict_each_other(tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 40)
    told = simulated.recipe(source, "full", 0)
    run = simulated.run(tmp_path / "run", told)
    tasks = {
        "sst": tiny.task(labels=("0", "1", "2", "3", "4")),
        "quora": tiny.task(labels=("0", "1"), joint=True),
        "sts": tiny.task(number=True, labels=None, joint=True),
    }
    network = tiny.network("full", tasks, stir=0.5)
    with torch.no_grad():  # both heads on pairs read the same thing
        state = network.state_dict()
        mine = {k: v for k, v in state.items() if "head" in k and "quora" in k}
        for key, value in mine.items():
            state[key.replace("quora", "sts")].copy_(value)
    (run / "model" / "config.json").unlink()  # in place of the simulated one
    MultiTaskModel(network, tiny.tokenizer(), 40).save(run / "model")
    found = compare([run])
    known, _ = hard_examples.texts(found)
    truths = {name: ["?"] * 40 for name in known}
    pairs, why = hard_examples.contradictions(found.baseline, known, truths)
    assert why == ""
    assert pairs[0].tasks == ("quora", "sts")
    assert pairs[0].correlation > 0.99
    assert pairs[0].apart == 0  # one score for both is never far from itself
    a = np.linspace(0, 1, 20)
    b = np.where(a > 0.99, 0.15, a)
    asked = [(("x", "y"), "quora", "1")] * 20
    words = [("a", "b")] * 20
    told_of = hard_examples._between(("p", "q"), a, b, asked, words)
    assert told_of is not None
    assert told_of.apart == 1
    assert told_of.worst[0].gap == pytest.approx(0.85)
    turned = hard_examples._between(("p", "q"), a, 1 - b, asked, words)
    assert turned is not None
    assert turned.worst[0].gap == pytest.approx(0.85)
    assert hard_examples._between(("p", "q"), a, np.abs(a - 0.5), asked, words) is None


def test_no_weights_no_contradictions(survey: Path) -> None:
    found = compare([survey])
    known, _ = hard_examples.texts(found)
    assert hard_examples.contradictions(found.baseline, known, {}) == (
        [],
        "the run's weights are not there any more",
    )


# --- parts ---------------------------------------------------------------------------------------


def test_elements_escape_all_but_markup() -> None:
    assert element("td", "a < b", class_="x", hidden=True, title=None) == (
        '<td class="x" hidden>a &lt; b</td>'
    )
    assert element("p", [Markup("<b>"), "<i>"], data_tip='"') == (
        '<p data-tip="&quot;"><b>&lt;i&gt;</p>'
    )
    assert element("circle", r=1.23456789) == '<circle r="1.23457"/>'


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0.71, 0.79, [0.72, 0.74, 0.76, 0.78]), (3, 3, [3])],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert plots.ticks(low, high) == pytest.approx(expected)


def test_a_heat_map_is_a_picture() -> None:
    drawn = plots.heat(
        np.array([[1.0, np.nan], [-0.5, 0]]), ["a", "b"], ["x", "y"], "t", "m", reach=1
    )
    assert "[[1.0,null],[-0.5,0.0]]" in drawn.replace("&quot;", '"')
    assert "data:image/png;base64,iVBOR" in drawn


def test_run_is_the_runs(survey: Path) -> None:
    """The simulated runs are runs as the rest of bough reads them."""
    run = Run.open(survey / "runs" / "full-0")
    assert run.finished
    assert run.plan == "full"
    assert list(run.metrics())
