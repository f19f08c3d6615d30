"""What a person sees: a panel in a terminal, lines in a file, tables of scores."""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bough.runs.console import (
    Lines,
    Moment,
    Panel,
    for_terminal,
    means,
    one_line,
    print_scores,
    progress,
)
from tests import folders

SCORES: dict[str, Any] = {
    "tasks": {
        "sst": {"metric": "accuracy", "accuracy": 0.5, "f1": 0.4, "mcc": 0.3, "loss": 1.2,
                "rows": 1101, "interval": [0.47, 0.53]},
        "sts": {"metric": "pearson", "pearson": 0.8, "spearman": 0.7, "loss": 0.1, "rows": 863},
    },
    "raw": 0.65,
    "normalised": 0.7,
}  # fmt: skip


def moment(step: int, **changes: Any) -> Moment:
    given: dict[str, Any] = {
        "step": step, "steps": 10, "epoch": step / 5, "phase": "", "lr": 1e-3,
        "losses": {"sst": 1.5, "sts": math.nan}, "passes": {"sst": 0.25, "sts": 0.0},
        "tokens_per_second": 12345.6,
    }  # fmt: skip
    return Moment(**given | changes)


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(every=1000)
    lines.step(moment(1))
    lines.step(moment(2))
    lines.step(moment(10, phase=" of phase 2"))
    lines.log({"step": 10})
    lines.scored(10, SCORES, True)
    lines.say("a note")
    lines.close()
    assert capsys.readouterr().err.splitlines() == [
        "step 1/10  epoch 0.20  loss sst 1.500  12,346 tokens/s",
        "step 10/10  epoch 2.00 of phase 2  loss sst 1.500  12,346 tokens/s",
        "step 10: sst 0.500  sts 0.800  raw 0.650  normalised 0.700  (best so far)",
        "a note",
    ]


def test_panel() -> None:
    text = io.StringIO()
    panel = Panel(Console(file=text, force_terminal=True, width=90))
    panel.say("task [sst]: 3 rows skipped")
    for step in (1, 2, 10):
        panel.step(moment(step))
    panel.log({"step": 10})
    panel.scored(10, SCORES, False)
    assert panel.live is not None
    panel.live.refresh()
    panel.close()
    panel.close()
    told = text.getvalue()
    assert "task [sst]: 3 rows skipped" in told, "texts are shown as they are"
    for word in (
        "loss",
        "passes",
        "sst",
        "1.500",
        "0.25",
        "10/10",
        "12,346 tokens/s",
        "epoch 2.00",
    ):
        assert word in told
    assert "sts 0.800" in told
    assert "best so far" not in told


def test_scores_as_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    print_scores({"dev": SCORES}, "runs/first")
    told = capsys.readouterr().out
    assert "runs/first: dev" in told
    assert "0.470 - 0.530" in told
    assert "f1 0.400  mcc 0.300" in told
    assert "1,101" in told
    assert "raw 0.650   normalised 0.700" in told
    assert one_line(SCORES) == "sst 0.500  sts 0.800  raw 0.650  normalised 0.700"


def test_which_display(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    assert isinstance(for_terminal(), Lines)
    assert list(progress(range(3), 3, "counting")) == [0, 1, 2]
    assert plain.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert isinstance(for_terminal(), Panel)
    assert list(progress(range(3), 3, "counting")) == [0, 1, 2]
    assert list(progress(iter("ab"), None, "counting")) == ["a", "b"]


def test_markup_and_escapes_in_names_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    print_scores({"dev": SCORES}, "runs/[/red]\x1b[2J:smile:")
    told = capsys.readouterr().out
    assert "runs/[/red]\\x1b[2J:smile:" in told
    assert "\x1b[2J" not in told


def test_means_that_are_the_same_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    task = {"metric": "accuracy", "accuracy": 0.5, "loss": 1.0, "rows": 4}
    same = {"tasks": {"sst": task}, "raw": 0.5, "normalised": 0.5}
    assert one_line(same) == "sst 0.500  mean 0.500"
    print_scores({"dev": same}, "runs/a")
    told = capsys.readouterr().out
    assert "mean 0.500" in told
    assert "normalised" not in told
    assert set(means({"raw": 0.5, "normalised": 0.75})) == {"raw", "normalised"}


def test_lines_say_how_long_it_will_take(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 10.0, 20.0])
    monkeypatch.setattr("bough.runs.console.time.monotonic", lambda: next(clock))
    lines = Lines(every=0)
    for step in (1, 3, 10):
        lines.step(moment(step))
    first, second, last = capsys.readouterr().err.splitlines()
    assert "left" not in first, "nothing is known of the pace yet"
    assert second.endswith("12,346 tokens/s  35 s left")
    assert "left" not in last
    assert "nan" not in first + second + last


def test_how_long_it_will_take_is_counted_anew_in_each_phase(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 500.0, 1000.0, 1010.0])
    monkeypatch.setattr("bough.runs.console.time.monotonic", lambda: next(clock))
    lines = Lines(every=0)
    for step in (1, 10, 1, 3):
        lines.step(moment(step))
    *_, first, second = capsys.readouterr().err.splitlines()
    assert "left" not in first
    assert second.endswith("35 s left"), "at this phase's pace, from its own beginning"


def test_a_task_not_yet_drawn_has_no_loss() -> None:
    paper = Console(width=80, force_terminal=True)
    panel = Panel(paper)
    with paper.capture() as text:
        panel.step(moment(1))
        panel.close()
    assert "sts" in text.get()
    assert "nan" not in text.get()


def test_a_notebook_shows_how_it_goes(tiny_folder: Path, tmp_path: Path) -> None:
    """In a kernel of its own: one line that is replaced, and what is said above it."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    recipe = folders.small(tiny_folder, steps=4, evaluate_rows=8)
    code = f"import bough\nrun = bough.train({recipe!r}, {str(tmp_path / 'run')!r}, progress=True)"
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(book, timeout=300).execute()
    outputs = book.cells[0].outputs
    bars = [o.data["text/plain"] for o in outputs if o.output_type == "display_data"]
    assert len(bars) == 1, "replaced in place"
    assert "4/4" in bars[0]
    assert "loss" in bars[0]
    said = "".join(o.text for o in outputs if o.output_type == "stream" and o.name == "stdout")
    assert "the run is written to" in said
    assert "best so far" in said
