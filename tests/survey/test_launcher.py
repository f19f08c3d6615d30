"""Runs as processes that fail, die, are stopped or waited for, and are done once."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import ExitStack

import pytest

from bough.runs.lock import BUSY, locked
from bough.runs.run_dir import Run
from bough.survey import launcher
from bough.survey.cells import RunSpec
from bough.survey.launcher import GridScheduler, Launcher
from bough.survey.progress import Progress
from bough.survey.spec import Survey
from bough.survey.survey import conduct
from bough.survey.survey_dir import SurveyDir
from tests.survey import files


def test_runs_are_done_once_and_a_failing_one_is_recorded(base, tmp_path, quick, capsys):
    file = files.written(tmp_path, recipe=base, vary={"training.lr": [1e-3, 1e-4]},
                   cells={"bad": {"training.lr": 666}, "dead": {"training.lr": 13}},
                   seeds=2)  # fmt: skip
    out = tmp_path / "out"
    result = conduct(file, out=out, workers=2)
    assert (result.done, result.failed, result.total, result.stopped) == (4, 4, 8, False)
    said = (out / "failures" / "bad-s0.txt").read_text()
    assert said.startswith("the loss is not a finite number at step 2\n")
    assert (
        (out / "failures" / "dead-s1.txt")
        .read_text()
        .startswith("its process was ended by SIGKILL")
    )
    shown = capsys.readouterr()
    assert "bad-s0: failed" in shown.err
    assert "lr=0.001-s0: done" in shown.err
    assert "lr=0.001" in shown.out
    assert "bough compare" in str(result)
    assert "--retry" in str(result)

    before = files.starts(out)
    assert before == dict.fromkeys(before, 1)
    again = conduct(out, workers=2)
    assert (again.done, again.failed) == (4, 4)
    assert files.starts(out) == before, "neither the finished nor the failed ones are run again"
    conduct(out, retry=True)
    assert {n for n, times in files.starts(out).items() if times == 2} == {
        f"{cell}-s{seed}" for cell in ("bad", "dead") for seed in (0, 1)
    }


def test_a_failure_is_told_by_the_words_of_its_own_attempt(base, tmp_path, monkeypatch):
    file = files.written(tmp_path, recipe=base, vary={"plan": ["full"]})
    out = tmp_path / "out"
    (out / "logs").mkdir(parents=True)
    (out / "logs" / "full-s0.txt").write_text("bough: stopped after step 12\n")

    def reason(code: str) -> list[str]:
        monkeypatch.setattr(launcher, "COMMAND", (sys.executable, "-c", code))
        assert conduct(file, out=out, retry=True).failed == 1
        return list((out / "failures" / "full-s0.txt").read_text().splitlines())

    fault = "import sys; print('bough: a word', file=sys.stderr); raise ValueError('a\\nb')"
    assert reason(fault)[0] == "ValueError: a"
    silent = reason("raise SystemExit(3)")
    assert silent[0] == "its process ended with code 3"
    assert not any("stopped" in line or "ValueError" in line for line in silent)


def test_finished_runs_keep_what_is_asked_for(base, tmp_path, quick):
    file = files.written(tmp_path, recipe=base, vary={"plan": ["full"]})
    for keep, checkpoint, weights in (
        ("all", True, True),
        ("models", False, True),
        ("scores", False, False),
    ):
        conduct(file, out=tmp_path / keep, keep=keep)
        run = Run.open(tmp_path / keep / "runs" / "full-s0")
        assert run.checkpoint.is_file() == checkpoint
        assert (run.model / "model.safetensors").is_file() == weights
    conduct(tmp_path / "all", keep="models")
    assert not Run.open(tmp_path / "all" / "runs" / "full-s0").checkpoint.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_survey_that_is_told_to_stop_goes_on_where_it_was(base, tmp_path, quick, number):
    file = files.written(tmp_path, recipe=base, vary={"training.lr": [1e-3, 1e-6]})
    out = tmp_path / "out"
    slow = out / "runs" / "lr=1e-06-s0"

    def stop() -> None:
        while not (slow / "checkpoint" / "state.pt").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=stop)
    thread.start()
    result = conduct(file, out=out)
    thread.join()
    assert result.stopped
    assert (result.done, result.failed) == (1, 0)
    assert not Run.open(slow).finished
    done = sum("dev" in entry for entry in Run.open(slow).metrics())
    assert 0 < done < 4
    assert conduct(out).done == 2
    steps = [entry["step"] for entry in Run.open(slow).metrics() if "dev" in entry]
    assert steps == [1, 2, 3, 4]
    assert files.starts(out)["lr=0.001-s0"] == 1


def test_a_run_that_another_process_still_writes_is_waited_for(base, tmp_path, quick):
    file = files.written(tmp_path, recipe=base, vary={"plan": ["full", "separate"]})
    run = tmp_path / "out" / "runs" / "full-s0"
    lock = ExitStack()
    lock.enter_context(locked(run / ".lock"))
    begun: list[bool] = []

    def release() -> None:
        begun.append((run / "starts.txt").exists())
        lock.close()

    threading.Timer(1.0, release).start()
    assert conduct(file, out=tmp_path / "out").done == 2
    assert begun == [False], "not before the other has let go"


def test_a_run_that_is_pruned_is_stopped_and_its_checkpoint_dropped(base, tmp_path, quick):
    class Strict(GridScheduler):
        def should_prune(self, spec: RunSpec) -> bool:
            return any("dev" in entry for entry in folder.run(spec.name).metrics())

    asked = {"recipe": base, "vary": {"training.lr": [1e-6]}}
    folder = SurveyDir(tmp_path)
    progress = Progress("mine", 1, 1, folder.run)
    runs = Strict(Survey.read(asked).resolved().run_specs(), folder)
    assert Launcher(runs, folder, 1, progress).run()
    assert progress.counts == {"done": 0, "failed": 0, "pruned": 1, "stopped": 0}
    run = Run.open(tmp_path / "runs" / "lr=1e-06-s0")
    assert not run.finished
    assert not run.checkpoint.exists()
    assert not (tmp_path / "failures").exists()


def test_code_in_the_folder_at_hand_is_not_run(base, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    (here / "torch.py").write_text("open('ran.txt', 'w').close()\n")
    file = files.written(tmp_path, recipe={**base, "encoder": "nowhere/"}, vary={"plan": ["full"]})
    monkeypatch.chdir(here)
    result = conduct(file, out=tmp_path / "out")
    assert result.failed == 1
    assert not (here / "ran.txt").exists()


def test_a_run_that_another_process_just_finished_has_not_failed(base, tmp_path, monkeypatch):
    """The other had it when ours was refused, and has let go of it when we look."""
    folder = SurveyDir(tmp_path)
    runs = GridScheduler(Survey.read({"recipe": base, "vary": {"plan": ["full"]}}).resolved()
                         .run_specs(), folder)  # fmt: skip
    run = folder.run("full-s0")
    looks = []

    def free(_: Run) -> bool:
        looks.append(run.finished)
        if len(looks) == 2:
            (run.folder / "scores.json").write_text("{}")
        return True

    class Refused:
        def poll(self) -> int:
            run.folder.mkdir(parents=True)
            return 2

        def terminate(self) -> None: ...

        def kill(self) -> None: ...

    monkeypatch.setattr(launcher, "free", free)
    monkeypatch.setattr(Progress, "ended", lambda self, spec, outcome, why: ended.append(outcome))
    ended: list[str] = []
    progress = Progress("mine", 1, 1, folder.run)
    assert Launcher(runs, folder, 1, progress, start=lambda *_: Refused()).run()
    assert looks == [False, False]
    assert ended == ["done"]


@pytest.mark.parametrize(
    ("code", "begun_meanwhile", "outcomes"),
    [(BUSY, False, ["done"]), (2, True, ["done"]), (2, False, ["failed"])],
)
def test_a_worker_that_another_process_was_quicker_than_has_not_failed(
    code, begun_meanwhile, outcomes, base, tmp_path, monkeypatch
):
    """Refused by its lock, or as a run that is there already; the other has let go since."""
    folder = SurveyDir(tmp_path)
    asked = {"recipe": base, "vary": {"plan": ["full"]}}
    runs = GridScheduler(Survey.read(asked).resolved().run_specs(), folder)
    run = folder.run("full-s0")
    started: list[int] = []

    class Job:
        def poll(self) -> int:
            run.folder.mkdir(parents=True, exist_ok=True)
            if len(started) > 1:
                (run.folder / "scores.json").write_text("{}")
                return 0
            if begun_meanwhile:
                run.recipe_file.write_text("{}")
            return int(code)

        def terminate(self) -> None: ...

        def kill(self) -> None: ...

    def start(*_) -> Job:
        started.append(code)
        return Job()

    monkeypatch.setattr(Progress, "ended", lambda self, spec, outcome, why: ended.append(outcome))
    ended: list[str] = []
    progress = Progress("mine", 1, 1, folder.run)
    assert Launcher(runs, folder, 1, progress, start=start).run()
    assert ended == outcomes
    assert len(started) == (2 if outcomes == ["done"] else 1)
    assert (tmp_path / "failures").exists() == (outcomes == ["failed"])


def test_a_run_that_was_begun_and_cannot_go_on_has_failed(base, tmp_path, monkeypatch):
    """Being overtaken is for runs that were to begin: else this would be tried for ever."""
    code = "raise SystemExit(2)"
    monkeypatch.setattr(launcher, "COMMAND", (sys.executable, "-c", code))
    run = tmp_path / "out" / "runs" / "full-s0"
    run.mkdir(parents=True)
    (run / "recipe.yaml").write_text("{}")
    file = files.written(tmp_path, recipe=base, vary={"plan": ["full"]})
    assert conduct(file, out=tmp_path / "out").failed == 1
