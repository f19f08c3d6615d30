"""Searches: several aims, trials that are stopped, tried again, or fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bough.errors import UserError
from bough.runs.run_dir import Run
from bough.survey import search
from bough.survey.search import SearchScheduler
from bough.survey.survey import conduct, prepare
from tests.survey import files

SPACE = {"training.lr": {"low": 1e-5, "high": 1e-1, "log": True}, "plan": ["full", "split@1"]}


def test_a_search_with_two_aims_goes_on_and_ends_with_its_front(base, tmp_path, quick, capsys):
    search = {"space": SPACE, "trials": 3, "objectives": ["raw", "bytes_to_serve"], "prune": False}
    out = tmp_path / "out"
    first = conduct(files.written(tmp_path, recipe=base, search=search, seeds=2), out=out)
    assert (first.done, first.total) == (6, 6)
    assert (out / "search.journal").is_file()
    more = {**search, "trials": 5}
    second = conduct(files.written(tmp_path, recipe=base, search=more, seeds=2), out=out, workers=2)
    assert (second.done, second.total) == (10, 10)
    assert set(files.starts(out).values()) == {1}
    assert len({r["training"]["lr"] for r in files.recipes(out)}) == 5
    shown = capsys.readouterr().out
    assert "No other trial is better in every aim:" in shown
    assert "bytes_to_serve 100" in shown
    other = {**more, "objectives": ["raw"]}
    with pytest.raises(UserError, match=r"holds another survey \(the searches differ"):
        conduct(files.written(tmp_path, recipe=base, search=other, seeds=2), out=out)


def test_a_search_that_was_stopped_goes_on_with_the_trial_at_hand(base, tmp_path, quick):
    space = {"training.lr": {"low": 1e-7, "high": 1e-6, "log": True}}
    file = files.written(tmp_path, recipe=base, search={"space": space, "trials": 2})
    out = tmp_path / "out"
    run = out / "runs" / "t0-s0"

    def stop() -> None:
        while not (run / "checkpoint" / "state.pt").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    assert conduct(file, out=out).stopped
    assert conduct(out, workers=2).done == 2
    assert files.starts(out) == {"t0-s0": 2, "t1-s0": 1}


def test_what_was_tried_is_not_run_again_and_a_trial_may_fail(base, tmp_path, quick):
    search = {"space": {"training.lr": [1e-3, 666]}, "trials": 8, "sampler": "random"}
    out = tmp_path / "out"
    result = conduct(files.written(tmp_path, recipe=base, search=search), out=out)
    tried = [r["training"]["lr"] for r in files.recipes(out)]
    assert tried.count(1e-3) == 1
    assert result.done == 1
    assert result.failed == tried.count(666) >= 1


def test_cells_that_the_recipe_refuses_are_not_run(base, tmp_path, quick, capsys):
    """Their values are each right, so that only the search itself comes upon them."""
    task = "tasks.similarity"
    space = {f"{task}.pair": ["joint", "twin"], f"{task}.head": ["linear", "cosine"]}
    search = {"space": space, "trials": 12, "sampler": "random"}
    out = tmp_path / "out"
    file = files.written(tmp_path, recipe=base, search=search)
    first = conduct(file, out=out)
    refused = capsys.readouterr().err.count(
        "`pair: twin`, or take head linear or mlp; it is not run\n"
    )
    tried = [r["tasks"]["similarity"] for r in files.recipes(out)]
    assert refused >= 1
    assert (first.done, first.failed, first.stopped) == (3, 0, False)
    assert len(tried) == 3
    assert all(t["pair"] == "twin" or t["head"] == "linear" for t in tried)
    for again in (conduct(out), conduct(out, retry=True)):
        assert (again.done, again.failed, again.stopped) == (3, 0, False)
    assert "is not run" not in capsys.readouterr().err, "said once"


def test_a_refused_trial_that_was_left_is_ended(base, tmp_path, quick):
    optuna = pytest.importorskip("optuna")
    out = tmp_path / "out"
    task = "tasks.similarity"
    space = {f"{task}.pair": ["joint", "twin"], f"{task}.head": ["linear", "cosine"]}
    asked = {"space": space, "trials": 2, "objectives": ["raw"]}
    folder, survey = prepare(files.written(tmp_path, recipe=base, search=asked), out)
    folder.settle(survey)
    scheduler = SearchScheduler(survey, folder)
    scheduler.study.enqueue_trial({f"{task}.pair": '"joint"', f"{task}.head": '"cosine"'})
    scheduler.study.ask(scheduler._distributions())
    assert conduct(out).done == 1
    states = [trial.state for trial in scheduler.study.get_trials(deepcopy=False)]
    assert states == [optuna.trial.TrialState.FAIL, optuna.trial.TrialState.COMPLETE]


def test_an_aim_that_some_cells_have_not_is_refused_before_anything_is_written(base, tmp_path):
    search = {"space": {"tasks": [["sentiment"], ["questions", "sentiment"]]}, "trials": 1}
    for name in ("questions", "similarity"):
        file = files.written(tmp_path, recipe=base, search={**search, "objectives": [name]})
        with pytest.raises(UserError, match=rf"{name}' is a task that search\.space leaves out"):
            conduct(file, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    prepare(files.written(tmp_path, recipe=base, search={**search, "objectives": ["sentiment"]}))


def test_a_failed_trial_is_tried_again_and_counts_once(base, tmp_path, seed_1_fails, capsys):
    search = {"space": SPACE, "trials": 2, "prune": False}
    out = tmp_path / "out"
    first = conduct(files.written(tmp_path, recipe=base, search=search, seeds=3), out=out)
    counted = (2, 2, 2, 6)  # the seeds 0 and 1, and the seed 2, which is not begun
    assert (first.done, first.failed, first.pruned, first.total) == counted
    assert "t1-s2: pruned (6 of 6)" in capsys.readouterr().err
    again = conduct(out)
    assert (again.done, again.failed, again.pruned, again.total) == counted
    (tmp_path / files.MENDED).touch()
    more = files.written(tmp_path, recipe=base, search={**search, "trials": 3}, seeds=3)
    last = conduct(more, out=out, retry=True)
    assert (last.done, last.failed, last.pruned, last.total) == (9, 0, 0, 9)
    names = [f"t{trial}-s{seed}" for trial in (0, 1, 4) for seed in (0, 1, 2)]
    assert files.starts(out) == dict.fromkeys(names, 1), "what was done is not done again"
    assert not any((out / "failures").iterdir())
    assert "Best trial:\n  t" in capsys.readouterr().out


def test_other_seeds_of_a_failed_trial_are_stopped(base, tmp_path, seed_1_fails):
    slow = {"space": {"training.lr": {"low": 1e-7, "high": 1e-6}}, "trials": 1, "prune": False}
    out = tmp_path / "out"
    result = conduct(files.written(tmp_path, recipe=base, search=slow, seeds=2), out=out, workers=2)
    assert (result.done, result.failed, result.pruned, result.total) == (0, 1, 1, 2)
    assert not (out / "runs" / "t0-s0" / "checkpoint").exists()


def test_two_processes_search_in_one_directory(base, tmp_path, pretended):
    """One that is killed is survived by another; every trial is had once, and comes to its end."""
    space = {"training.lr": {"low": 1e-7, "high": 9e-6, "log": True}}
    search = {"space": space, "trials": 5, "prune": False}
    file = files.written(tmp_path, recipe=base, search=search)
    out = tmp_path / "out"
    words = [sys.executable, "-m", "bough", "survey", str(file), "-o", str(out), "--workers", "2"]
    null = subprocess.DEVNULL
    with subprocess.Popen(words, stdout=null, stderr=null) as dying:
        while not list(out.glob("runs/*/checkpoint/state.pt")):
            assert dying.poll() is None
            time.sleep(0.02)
        dying.kill()
    pipe, into = subprocess.PIPE, subprocess.STDOUT
    both = [subprocess.Popen(words, stdout=pipe, stderr=into, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], "\n".join(said)
    assert sorted(files.starts(out)) == [f"t{n}-s0" for n in range(5)]
    assert sum(files.starts(out).values()) <= 7  # the two that the killed one had begun, again
    assert all(run.finished for run in map(Run.open, (out / "runs").iterdir()))
    assert len({r["training"]["lr"] for r in files.recipes(out)}) == 5
    assert (out / "search.journal").is_file()


def test_a_search_from_before_goes_on_in_its_database(base, tmp_path, quick):
    optuna = pytest.importorskip("optuna")
    out = tmp_path / "out"
    out.mkdir()
    url = f"sqlite:///{out / 'search.db'}"
    optuna.create_study(study_name="survey", storage=url, directions=["maximize"])
    search = {"space": {"training.lr": [1e-3, 1e-4]}, "trials": 2, "objectives": ["raw"]}
    assert conduct(files.written(tmp_path, recipe=base, search=search), out=out).done >= 1
    assert len(optuna.load_study(study_name="survey", storage=url).trials) == 2
    assert not (out / "search.journal").exists()


@pytest.mark.parametrize("outcome", ["done", "failed"])
def test_a_trial_that_ends_while_another_looks_is_not_taken_over(
    outcome, base, tmp_path, monkeypatch
):
    asked = {"space": SPACE, "trials": 1, "prune": False}
    folder, survey = prepare(files.written(tmp_path, recipe=base, search=asked), tmp_path / "out")
    folder.settle(survey)
    first, second = SearchScheduler(survey, folder), SearchScheduler(survey, folder)
    spec = first.ask()
    assert spec is not None
    folder.add(spec)
    run = [str(folder.recipe(spec.name)), "-o", str(folder.run(spec.name).folder)]
    subprocess.run([sys.executable, str(files.PRETENDER), "train", *run], check=True)
    real = search.locked  # type: ignore[attr-defined]

    def late(path, *rest, **keys):  # between the second's look and its lock
        if path.name == "0.lock":
            first.tell(spec, outcome)
        return real(path, *rest, **keys)

    monkeypatch.setattr(search, "locked", late)
    assert second.ask() is None


def test_a_journal_whose_writer_was_killed_is_written_on(base, tmp_path, monkeypatch, pretended):
    """Optuna's own lock is a file, and stays; where the path is relative, for ever."""
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    Path("out/search.journal").touch()
    os.symlink("out/search.journal", "out/search.journal.lock")
    asked = {"space": SPACE, "trials": 1, "prune": False}
    file = files.written(tmp_path, recipe=base, search=asked)
    words = [sys.executable, "-m", "bough", "survey", str(file), "-o", "out"]
    assert subprocess.run(words, capture_output=True, timeout=60).returncode == 0
