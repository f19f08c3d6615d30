"""The report is one file that needs nothing, holds every part, and takes no text for markup."""

from __future__ import annotations

import re
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError
from typer.testing import CliRunner

from bough.cli.main import app
from bough.comparison.compare import Comparison, compare
from bough.errors import UserError
from bough.reports import page as pages
from bough.reports.page import page, report
from bough.runs.run_dir import Run
from tests import simulated
from tests.html_page import Page


def test_nothing_is_fetched(text: str) -> None:
    parsed = Page(text)
    assert parsed.asked == []
    assert "link" not in parsed.tags
    assert "iframe" not in parsed.tags
    assert not re.search(r"@import|url\(\s*[\"']?(?!#)", text)
    assert not re.search(r"fetch\(|XMLHttpRequest|WebSocket|import\(", text)
    addresses = set(re.findall(r"(?:https?:)?//[a-z][\w.-]+\.[a-z]+[^\s\"'<]*", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of SVG, not an address


def test_style_and_script_are_in_the_file_as_they_are(text: str) -> None:
    templates = resources.files("bough.reports") / "templates"
    for name in ("report.css", "report.js"):
        assert (templates / name).read_text(encoding="utf-8") in text


def test_every_part_is_there(text: str) -> None:
    parsed = Page(text)
    sections = {"cost", "differences", "depth", "table", "plans", "learning", "gradients",
                "answers", "contradictions", "breakdown", "method"}  # fmt: skip
    assert sections <= set(parsed.ids)
    assert {f"#{name}" for name in sections} <= set(parsed.links)
    assert len(parsed.ids) == len(set(parsed.ids))
    for part in ("An anecdote", "Worst-predicted rows of sts", "Calibration", "Simulated <CPU>",
                 "sst and quora", "split@2", "memory to serve", "seeds 0, 1"):  # fmt: skip
        assert part in parsed.words


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


def test_a_template_that_asks_for_what_is_not_there_fails(
    comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "provenance", lambda comparison: {"machines": []})
    with pytest.raises(UndefinedError, match="python"):
        page(comparison)


def test_sixty_runs_are_read_once_and_the_file_stays_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = ["separate", "full", "split@1", "split@2", "split@3", "split@4", "split@5", "late:S",
             "late:I", "pal:16", "lora:8", "feed:sst>sts"]  # fmt: skip
    simulated.survey(tmp_path, plans, 5, rows=60, cosines=True)
    compared = compare([tmp_path])
    read: Counter[Path] = Counter()
    metrics = Run.metrics

    def counted(run: Run) -> Any:
        read[run.folder] += 1
        return metrics(run)

    monkeypatch.setattr(Run, "metrics", counted)
    text = page(compared)
    assert len(read) == 60
    assert set(read.values()) == {1}
    assert len(text) < 700_000
    assert re.search(r"Costs of \d more variants: see the table\.", Page(text).words)


def test_many_variants_of_one_seed(tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 30)
    for n in range(14):
        recipe = simulated.recipe(source, "full", 0, **{"training.lr": (n + 1) * 1e-5})
        simulated.run(tmp_path / "runs" / f"r{n}", recipe)
    words = Page(page(compare([tmp_path]))).words
    assert "The best 12 variants are shown." in words
    assert "Not logged. Set training.cosines_every" in words


def test_one_run_alone(tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 30)
    recipe = simulated.recipe(source, "full", 0, tasks=("sst",))
    text = page(compare([simulated.run(tmp_path / "run", recipe)]))
    parsed = Page(text)
    assert "nothing to compare it with" in text
    assert "1 variant, 1 run, scores on dev" in parsed.words
    assert not {"cost", "differences", "contradictions"} & set(parsed.ids)


def test_a_variant_without_a_task_has_gaps(tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 30)
    simulated.run(tmp_path / "runs" / "both", simulated.recipe(source, "full", 0))
    one = simulated.recipe(source, "full", 0, tasks=("sst",))
    simulated.run(tmp_path / "runs" / "one", one)
    text = page(compare([tmp_path], tasks=["sst", "sts"]))
    table = text.partition('<section id="table">')[2].partition("</section>")[0]
    assert table.count('<td data-sort=""></td>') >= 3  # sts and both aggregates
    Page(text)


def test_one_path_or_several(survey: Path, tmp_path: Path) -> None:
    runs = [survey / "runs" / "full-0", survey / "runs" / "separate-0"]
    asked: list[Path | str | list[Path]] = [survey, str(survey), runs[0], runs]
    for n, paths in enumerate(asked):
        out = report(paths, tmp_path / f"{n}.html", tasks=["sst"])
        assert out == tmp_path / f"{n}.html"
        assert ("differences" in Page(out.read_text()).ids) == (paths != runs[0])


def test_markdown_and_the_command_line(survey: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    done = run(app, ["report", str(survey), "-o", str(tmp_path / "r.md"), "--baseline", "full"])
    assert done.exit_code == 0
    assert "| full (baseline) | 2 |" in (tmp_path / "r.md").read_text()
    for out, words in (("r.pdf", ".html or .md"), ("no/r.html", "no such folder")):
        wrong = run(app, ["report", str(survey), "-o", str(tmp_path / out)])
        assert isinstance(wrong.exception, UserError)
        assert words in str(wrong.exception)


def test_a_broken_log_is_one_sentence(tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 30)
    run = simulated.run(tmp_path / "run", simulated.recipe(source, "full", 0))
    log = run / "metrics.jsonl"
    log.write_text(log.read_text().replace('"step": 40', '"step": 4 0'))
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2: not JSON"):
        report(run, tmp_path / "report.html")
