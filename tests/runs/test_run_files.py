"""A run's JSON files are checked as far as they are read, however deep the damage is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bough.comparison.compare import compare
from bough.errors import UserError
from bough.reports.page import report
from bough.runs import run_files
from tests import simulated

DAMAGED: list[tuple[str, Callable[[Any], object], str]] = [
    ("environment.json", lambda c: c["data"].update(sst=5), "data.sst is 5"),
    ("environment.json", lambda c: c["data"]["sst"].update(dev=None), "data.sst.dev is None"),
    ("environment.json", lambda c: c["data"]["sst"]["dev"].pop("sha256"), "dev.sha256 is missing"),
    ("environment.json", lambda c: c["data"]["sst"]["dev"].update(rows="x"), "dev.rows is 'x'"),
    ("environment.json", lambda c: c.update(packages=[1]), r"packages is \[1\]"),
    ("environment.json", lambda c: c.update(memory="x"), "memory is 'x'"),
    ("cost.json", lambda c: c.update(bytes_to_serve=10**400), "bytes_to_serve is 1000"),
    ("cost.json", lambda c: c.update(step_seconds=float("nan")), "step_seconds is nan"),
    ("cost.json", lambda c: c.update(parameters=-1), "parameters is -1"),
]


@pytest.mark.parametrize(("file", "damage", "told"), DAMAGED)
def test_damage_deep_in_a_file_is_a_sentence(
    file: str, damage: Callable[[Any], object], told: str, tmp_path: Path
) -> None:
    runs = simulated.survey(tmp_path, ["full", "split@3"], 2, rows=12, steps=20) / "runs"
    path = runs / "full-0" / file
    content = json.loads(path.read_text())
    damage(content)
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=rf"{file}: is damaged, .*{told}.*; train the run anew"):
        report([runs], tmp_path / "report.html")


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"step": 1, "loss": 5}, "loss is 5"),
        ({"step": 1, "loss": {"sst": "x"}}, "loss.sst is 'x'"),
        ({"step": 1, "cosines": {"layer 1": 3}}, "cosines.layer 1 is 3"),
        ({"step": 1, "dev": {"tasks": {"sst": 0.5}}}, "dev.tasks.sst is 0.5"),
        ({"step": 1.5}, "step is 1.5"),
        ({"step": True}, "step is True"),
        ({"loss": {}}, "step is missing"),
    ],
)
def test_damage_in_the_log_is_told_with_its_line(entry: Any, told: str, tmp_path: Path) -> None:
    runs = simulated.survey(tmp_path, ["full", "split@3"], 2, rows=12, steps=20) / "runs"
    log = runs / "full-0" / "metrics.jsonl"
    first, *rest = log.read_text().splitlines(keepends=True)
    log.write_text("".join([first, json.dumps(entry) + "\n", *rest]))
    with pytest.raises(UserError, match=f"line 2: expected an entry of the log, {told}; remove"):
        compare([runs])


def test_what_is_not_read_may_be_anything() -> None:
    entry = {"step": 3, "loss": {"sst": float("nan")}, "more": [{"x": None}]}
    assert run_files.check(run_files.Entry, entry, "wrong", "mend") == entry
