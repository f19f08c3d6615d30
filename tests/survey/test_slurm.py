"""A survey through sbatch, here a stand-in: every run once, what was killed with the next array."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bough.errors import UserError
from bough.survey.survey import conduct, prepare, submit
from tests.command import bough
from tests.survey import files


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pretended: None) -> None:
    file = tmp_path / "bin" / "sbatch"
    file.parent.mkdir()
    stand_in = Path(__file__).with_name("sbatch.py")
    file.write_text(f'#!/bin/sh\nexec {sys.executable} {stand_in} "$@"\n')
    file.chmod(0o755)
    monkeypatch.setenv("PATH", str(file.parent), prepend=":")


def test_runs_of_an_array_of_which_a_task_is_killed(
    base: Any, tmp_path: Path, sbatch: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The killed one last: what it had begun goes on for a while, and is looked at at once.
    asked = {"vary": {"training.lr": [1e-3, 666, 1e-6]}, "seeds": 1}
    file = files.written(tmp_path, recipe=base, **asked)
    out, here = tmp_path / 'a "50%" survey #1', tmp_path / "here"
    monkeypatch.setenv("KILL", "3")
    assert submit(*prepare(file, out, workers=2), workers=2).startswith(
        "3 runs submitted as job 7\n"
    )
    assert files.starts(out) == {"lr=0.001-s0": 1, "lr=1e-06-s0": 1, "lr=666-s0": 1}
    assert not (out / "runs" / "lr=1e-06-s0" / "scores.json").exists()
    assert sorted(file.name for file in (out / "slurm").glob("7-*")) == [
        f"7-{number}.txt" for number in range(3)
    ]
    monkeypatch.delenv("KILL")
    assert submit(*prepare(out)).startswith("1 runs submitted as job 7\n")
    starts = files.starts(out)
    assert starts.pop("lr=1e-06-s0") in (1, 2)  # what trained may have outlived the killed task
    assert starts == {"lr=0.001-s0": 1, "lr=666-s0": 1}
    assert submit(*prepare(out)).startswith("all 3 runs")
    result = conduct(file, out=here)
    assert (result.done, result.failed) == (2, 1)
    for name in ("runs/lr=0.001-s0/scores.json", "runs/lr=1e-06-s0/scores.json"):
        assert (out / name).read_bytes() == (here / name).read_bytes()
    failure = "failures/lr=666-s0.txt"
    assert (out / failure).read_text().startswith("the loss is not a finite number")
    assert submit(*prepare(out), retry=True).startswith("1 runs")


def test_a_search_is_an_array_of_processes_that_search(
    base: Any, tmp_path: Path, sbatch: None
) -> None:
    search = {"space": {"training.lr": [1e-3, 1e-4]}, "trials": 2, "sampler": "random"}
    file = files.written(tmp_path, recipe=base, search=search)
    told = submit(*prepare(file, tmp_path / "out", workers=2), workers=2)
    assert told.startswith("a search by 2 processes submitted")
    assert set(files.starts(tmp_path / "out").values()) == {1}


def test_failed_trials_of_a_search_are_tried_again_by_one_of_its_processes(
    base: Any, tmp_path: Path, sbatch: None
) -> None:
    file = files.written(
        tmp_path, recipe=base, search={"space": {"training.lr": [666]}, "trials": 1}
    )
    out = tmp_path / "out"
    submit(*prepare(file, out))
    assert files.starts(out) == {"t0-s0": 1}
    submit(*prepare(out), workers=2, retry=True)
    assert files.starts(out) == {"t0-s0": 2}
    with pytest.raises(UserError, match="--only names cells, and a search finds its own"):
        submit(*prepare(out), only=["t0"])


def test_without_slurm(base: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = files.written(tmp_path, recipe=base, vary={"plan": ["full"]})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="--slurm needs sbatch"):
        submit(*prepare(file, tmp_path / "out"))
    refusing = tmp_path / "sbatch"
    refusing.write_text("#!/bin/sh\necho 'sbatch: error: no partition' >&2\nexit 1\n")
    refusing.chmod(0o755)
    with pytest.raises(UserError, match=r"does not take .*array\.sh: sbatch: error: no partition"):
        submit(*prepare(file, tmp_path / "out"))
    assert bough("survey", file, "--slurm", "--ray", "local") == 2
