"""Which runs are meant, and what is told of those that are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.comparison.compare import compare
from bough.comparison.finding import find_runs
from bough.errors import UserError
from tests import simulated


def test_unfinished_runs_are_named_and_left_out(make: simulated.Make) -> None:
    runs = [make("done"), make("cut-short", seed=1, finished=False)]
    assert any("cut-short" in note for note in compare(runs).notes)
    assert "none of the runs is finished" in simulated.refused(runs[1:])


def test_find_runs(survey: Path, tmp_path: Path) -> None:
    names = [run.name for run in find_runs([survey])]
    assert names[:3] == ["full-0", "full-1", "full-2"]
    assert [run.name for run in find_runs([survey / "runs"])] == names
    assert [run.name for run in find_runs([survey / "runs" / "full-1", survey])][:2] == names[1::-1]
    empty = tmp_path / "empty"
    (empty / "runs").mkdir(parents=True)
    for path, words in ((tmp_path / "none", "no such run directory"), (empty, "an empty survey")):
        with pytest.raises(UserError, match=words):
            find_runs([path])


def test_numbered_runs_come_in_order(make: simulated.Make, tmp_path: Path) -> None:
    for number in (10, 2, 1):
        make(f"all/run-{number}", seed=number)
    assert [run.name for run in find_runs([tmp_path / "all"])] == ["run-1", "run-2", "run-10"]


def test_a_folder_of_data_is_no_survey(tmp_path: Path) -> None:
    (tmp_path / "mood.csv").write_text("text,label\n")
    with pytest.raises(UserError, match=r"holds data \(mood.csv\), and no run"):
        find_runs([tmp_path])


def test_surveys_in_a_folder_of_runs_are_named(make: simulated.Make, tmp_path: Path) -> None:
    folder = tmp_path / "all"
    survey = folder / "my plans"
    make("all/my plans/runs/full-s0", seed=1)
    (survey / "survey.yaml").write_text("cells: {}\n", encoding="utf-8")
    command = f"compare them with: bough compare '{survey}'"
    with pytest.raises(UserError, match="no runs in it but those of surveys") as refused:
        find_runs([folder])
    assert str(refused.value).endswith(command)
    make("all/alone")
    notes = [note for note in compare(folder).notes if "surveys" in note]
    assert notes == [f"left out, the runs of surveys; {command}"]
    both = compare([folder, survey])
    assert [v.seeds for v in both.variants] == [(0, 1)]
    assert not any("surveys" in note for note in both.notes)
