"""The demo from end to end, on an encoder small enough to train in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bough import demo
from bough.demo import run_demo
from tests import folders


def test_the_demo_trains_compares_reports_and_answers(
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe = folders.small(tiny_folder, steps=2, evaluate_rows=8)
    file = tmp_path / "survey.yaml"
    survey = {"recipe": recipe, "vary": {"plan": ["full", "split@1"]}, "baseline": "full"}
    file.write_text(yaml.safe_dump(survey), encoding="utf-8")
    monkeypatch.setattr(demo, "survey", lambda: file)
    monkeypatch.setattr(run_demo, "SERVED", "split@1")
    result = run_demo.show(tmp_path / "out")
    assert (result.done, result.total) == (2, 2)
    assert (result.folder / "report.html").stat().st_size > 10_000
    shown = capsys.readouterr().out
    for sample in demo.SAMPLES["similarity"][: run_demo.SHOWN]:
        assert sample[1] in shown, "a fresh sentence, answered"
    assert "sentiment: " in shown
    assert f"bough serve {result.folder}" in shown.replace("\n", "")
