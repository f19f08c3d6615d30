"""The benchmark of defaults: its table says what its lines hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path("benchmarks/defaults.py")


def table(results: Path) -> str:
    command = [sys.executable, str(SCRIPT), "--table", "--results", str(results)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def mark() -> str:
    """The name of today's defaults."""
    command = [sys.executable, "-c", "import defaults; print(defaults.DEFAULTS)"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=SCRIPT.parent)
    return ran.stdout.strip()


@pytest.fixture(scope="module")
def today() -> str:
    return mark()


def line(way: str, seed: int, right: int, today: str, **other: Any) -> str:
    key = ["cola", "64", str(seed), way, today if way == "bough" else ""]
    values = "1" * right + "0" * (100 - right)
    entry = {"key": key, "score": right / 100, "rows": 128, "seconds": 1.0, "values": values}
    return json.dumps(entry | other)


def test_only_common_seeds_are_compared(tmp_path: Path, today: str) -> None:
    lines = [line("bough", 0, 70, today), line("vectors", 0, 60, today)]
    lines.append(line("vectors", 1, 100, today))  # bough has not run with it yet
    (tmp_path / "x.jsonl").write_text("\n".join(lines) + "\n")
    said = table(tmp_path / "x.jsonl")
    assert "| .700 (1) | .600 (1) | - | - |" in said
    assert said.count("| best |") == 1
    assert "1 of 1 cells" in said


def test_a_failure_of_bough_is_no_win(tmp_path: Path, today: str) -> None:
    lines = [line("bough", 0, 70, today), line("vectors", 0, 60, today)]
    lines.append(line("bough", 1, 0, today, score=None, error="out of memory"))
    (tmp_path / "x.jsonl").write_text("\n".join(lines) + "\n")
    said = table(tmp_path / "x.jsonl")
    assert "| failed |" in said
    assert "0 of 1 cells" in said


def test_runs_of_other_defaults_do_not_count(tmp_path: Path, today: str) -> None:
    (tmp_path / "x.jsonl").write_text(line("bough", 0, 70, "before") + "\n")
    assert "cola" not in table(tmp_path / "x.jsonl")


def test_the_page_holds_what_was_measured() -> None:
    """Of the defaults that it names: where they are others today, it is to be measured anew."""
    code = (
        "import pathlib, defaults as d\n"
        "mark, shown = d.BLOCK.search(pathlib.Path('../docs/defaults.md').read_text()).groups()\n"
        "assert shown.strip() == d.table(d.Results(d.RESULTS), mark, tried=False).strip(), mark\n"
        "assert '| best |' in shown\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=SCRIPT.parent)
