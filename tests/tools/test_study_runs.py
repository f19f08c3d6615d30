"""Runs that were kept say what they said, without the data, and a survey goes on with them."""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from bough.comparison.compare import compare
from bough.errors import UserError
from bough.survey.survey_dir import SurveyDir
from tests import simulated
from tools import study_runs

KEPT = sorted(study_runs.PLACE.glob("*.json.xz"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = simulated.surveyed(tmp_path / "survey", {"apart": "separate", "together": "full"})
    monkeypatch.setenv("BOUGH_DATA", str(folder / "data"))
    return folder


def test_what_is_unpacked_compares_as_before(folder: Path, tmp_path: Path) -> None:
    kept = json.loads(json.dumps(study_runs.packed(folder)))
    study_runs.unpack(kept, tmp_path / "again")
    before, after = (compare(place, baseline="separate") for place in (folder, tmp_path / "again"))
    assert after.scores == before.scores
    assert after.notes == before.notes
    assert [v.cost for v in after.variants] == [v.cost for v in before.variants]


def test_answers_to_rows_without_labels_are_not_kept(folder: Path, tmp_path: Path) -> None:
    file = folder / "runs" / "apart-s0" / "predictions" / "sst-test.csv"
    file.write_text("id,predicted\n1,0\n")
    kept = study_runs.packed(folder)
    assert "sst-test" not in kept["runs"]["apart-s0"]["answers"]
    assert "sst-dev" in kept["runs"]["apart-s0"]["answers"]
    study_runs.unpack(kept, tmp_path / "again")


def test_nothing_of_the_data_is_kept(folder: Path) -> None:
    kept = json.dumps(study_runs.packed(folder))
    assert str(folder) not in kept
    for word in ("bough tree", "green leaf"):
        assert word not in kept
    answers = json.loads(kept)["runs"]["apart-s0"]["answers"]
    assert all({"id", "label"}.isdisjoint(columns) for columns in answers.values())


def test_a_survey_goes_on_with_what_was_not_done(folder: Path, tmp_path: Path) -> None:
    shutil.rmtree(folder / "runs" / "together-s2")
    study_runs.unpack(study_runs.packed(folder), tmp_path / "again")
    place = SurveyDir(tmp_path / "again")
    assert place.survey == SurveyDir(folder).survey
    assert place.state("together-s1") == "done"
    assert place.state("together-s2") == "waiting"


def test_what_cannot_be(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no survey\.yaml"):
        study_runs.packed(tmp_path)
    with pytest.raises(UserError, match="is not empty"):
        study_runs.unpack(study_runs.packed(folder), folder)


def test_the_commands(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_runs, "PLACE", tmp_path / "kept")
    monkeypatch.setattr(sys, "argv", ["study_runs", "pack", str(folder), "--name", "depth"])
    study_runs.main()
    again = tmp_path / "again"
    monkeypatch.setattr(sys, "argv", ["study_runs", "unpack", "depth", str(again)])
    study_runs.main()
    assert len([*(again / "runs").iterdir()]) == 6


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_what_the_project_keeps_names_no_place(file: Path) -> None:
    kept = json.loads(lzma.decompress(file.read_bytes()))
    assert kept["runs"]
    for run in kept["runs"].values():
        for text in (kept["survey"], *run["files"].values(), json.dumps(run["config"])):
            assert not re.search(r"[\s\"']/\w+/", text)


@pytest.mark.real
@pytest.mark.skipif("BOUGH_DATA" not in os.environ, reason="BOUGH_DATA is not set")
@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_what_the_project_keeps_has_the_scores_it_says(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predictions and labels out of the real data give each run's own scores."""
    monkeypatch.setenv("BOUGH_READ", "runs/b_read")  # encoders that a study made, named only
    kept = json.loads(lzma.decompress(file.read_bytes()))
    names = list(kept["runs"])[:1]
    kept["runs"] = {name: kept["runs"][name] for name in names}
    study_runs.unpack(kept, tmp_path / "again")
    (run,) = (tmp_path / "again" / "runs").iterdir()
    tasks = json.loads((run / "scores.json").read_text())["dev"]["tasks"]
    scores = compare(run, tasks=[*tasks]).scores
    for label in scores:
        for task, known in tasks.items():
            assert scores[label][task].value == pytest.approx(known[known["metric"]], abs=1e-4)
