"""A model's folder is found from whatever a user names, or what is wrong with the name is said."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bough.errors import UserError
from bough.inference.folder import find, unfinished
from bough.runs.run_dir import Run


def test_a_model_is_found_from_its_run_and_from_itself(run: Run) -> None:
    for source in (run, run.folder, str(run.folder), run.model, str(run.model)):
        assert find(source) == run.model


def test_a_run_without_a_model(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("")
    with pytest.raises(UserError, match=r"no model there yet; train the recipe: bough train /"):
        find(tmp_path)
    (tmp_path / "plan.txt").write_text("full\n")
    with pytest.raises(UserError, match="no model there yet; go on with the run: bough train --"):
        find(tmp_path)


def test_a_model_of_a_run_that_was_stopped(run: Run, tmp_path: Path) -> None:
    assert unfinished(run.folder) == unfinished(run.model) == []
    stopped = shutil.copytree(run.folder, tmp_path / "stopped")
    (stopped / "scores.json").unlink()
    assert unfinished(stopped) == [
        f"{stopped}: the run is not finished; this is its best model so far"
    ]


def test_a_mistyped_run_is_not_looked_for_on_the_hub(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "first").symlink_to(run.folder, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"runs/frist: no such run .*did you mean 'runs/first'\?"):
        find("runs/frist")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such run or model folder"):
        find(tmp_path / "nothing")
    with pytest.raises(UserError, match="no model there"):
        find(tmp_path)
