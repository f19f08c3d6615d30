"""How a comparison was obtained, and the command that repeats it."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from bough.cli.main import app
from bough.comparison.compare import Comparison, compare
from bough.reports.page import page
from bough.reports.provenance import provenance
from tests import simulated
from tests.html_page import Page


def test_machines_versions_rows_and_the_recipe(comparison: Comparison) -> None:
    made = provenance(comparison)
    assert made.machines == ["Simulated <CPU>, 2 cores, 2 threads, 8 GiB, Linux x86_64"]
    assert made.packages["torch"] == "2.6"
    assert made.rows["sst"] == {"train": 30, "dev": 120}
    assert made.recipe == comparison.baseline.runs[0].recipe_file.read_text()


def test_the_page_says_it_in_words(text: str) -> None:
    words = Page(text).words
    assert "Python 3.11, bough 0.1.0, torch 2.6" in words
    assert "sst: train 30, dev 120 rows" in words
    assert "split@2 : seeds 0, 1; 200 steps; plan: split@2" in words


def test_the_command_that_repeats_it_is_the_one_that_was_given(tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 30)
    paths = [tmp_path / "two words" / f"{n}-{plan}" for n, plan in enumerate(("full", "split@2"))]
    for path, plan in zip(paths, ("full", "split@2"), strict=True):
        simulated.run(path, simulated.recipe(source, plan, 0))
    simulated.run(tmp_path / "two words" / "other", simulated.recipe(source, "separate", 0))
    text = page(compare(paths, baseline="split@2", tasks=["sst", "quora"]))
    command = shlex.split(html.unescape(re.findall(r"<pre>(bough report .*?)</pre>", text)[0]))
    assert command == ["bough", "report", *map(str, paths), "--baseline", "split@2",
                       "--split", "dev", "--tasks", "sst,quora"]  # fmt: skip
    done = CliRunner().invoke(app, [*command[1:], "-o", str(tmp_path / "again.html")])
    assert done.exit_code == 0
    assert shlex.join(command) in Page((tmp_path / "again.html").read_text()).words
