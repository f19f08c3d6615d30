"""A survey is looked at from another terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from functools import partial
from pathlib import Path
from select import select

import pytest
from rich.console import Console

from bough.runs.lock import locked
from bough.survey.survey import conduct
from bough.survey.survey_dir import SurveyDir
from bough.survey.watch import QUIET, Board, look_on
from tests.command import bough
from tests.survey import files


@pytest.fixture
def folder(base, tmp_path, quick) -> SurveyDir:
    """Of two cells with two seeds, all done."""
    file = files.written(tmp_path, recipe=base, vary={"plan": ["full", "separate"]}, seeds=[0, 1])
    conduct(file, out=tmp_path / "out")
    return SurveyDir(tmp_path / "out")


def seen(folder: SurveyDir) -> str:
    paper = Console(width=120)
    assert folder.survey is not None
    with paper.capture() as text:
        paper.print(Board(folder, folder.survey).look())
    return text.get()


def begun_again(folder: SurveyDir, name: str) -> Path:
    run = folder.run(name).folder
    (run / "scores.json").unlink()
    return run


def test_all_done(folder):
    text = seen(folder)
    assert "4 done of 4; 0 running; " in text
    assert " on disk, " in text
    assert "full" in text
    assert "separate" in text


def test_what_runs_what_stands_still_and_what_failed(folder):
    begun_again(folder, "full-s0")
    still = begun_again(folder, "full-s1")
    for file in (still / "metrics.jsonl", still / "recipe.yaml", folder.log("full-s1")):
        if file.exists():
            os.utime(file, (time.time() - 2 * QUIET,) * 2)
    begun_again(folder, "separate-s0")
    folder.failure("separate-s0").parent.mkdir()
    folder.failure("separate-s0").write_text("no")
    taken = folder.run("separate-s1")  # a minute, though it was stopped for a night
    os.utime(taken.recipe_file, (time.time() - 36000,) * 2)
    cost = taken.folder / "cost.json"
    known = json.loads(cost.read_text()) if cost.exists() else {}
    cost.write_text(json.dumps({**known, "training_seconds": 60}))
    text = seen(folder)
    assert "1 done, 1 failed of 4; 1 running; about 68 s left; " in text
    assert "full-s0    step 4 of 12" in text
    assert "(no sign for 10 min)" in text


def test_before_the_first_run_is_done(folder):
    for name in ("full-s0", "full-s1", "separate-s0", "separate-s1"):
        begun_again(folder, name)
    text = seen(folder)
    assert "0 done of 4; 4 running; about 8 s left; " in text
    assert "step 4 of 12" in text
    assert "cell" not in text, "a table of nothing"


def test_what_changes_between_two_looks(folder):
    """A failed run that is tried again; seeds that are added."""
    begun_again(folder, "full-s0")
    folder.failure("full-s0").parent.mkdir()
    folder.failure("full-s0").write_text("no")
    assert folder.survey is not None
    board, paper = Board(folder, folder.survey), Console(width=140)
    with paper.capture() as text:
        paper.print(board.look())
        folder.failure("full-s0").unlink()
        folder.settle(folder.survey.model_copy(update={"seeds": (0, 1, 2)}))
        paper.print(board.look())
    assert "3 done, 1 failed of 4; 0 running" in text.get()
    assert "3 done of 6; 1 running" in text.get()
    assert not board.complete


def test_the_head_comes_first(folder):
    """A long table is cut off below by a terminal."""
    lines = [line.strip() for line in seen(folder).splitlines() if line.strip()]
    assert lines[0].startswith("4 done of 4")


def test_other_options_have_no_say(folder, capsys):
    assert bough("survey", folder.path, "--watch", "--retry") == 2
    assert "--watch only looks on; leave the other options out" in capsys.readouterr().err


def test_a_run_that_goes_on_is_not_disturbed(folder):
    """Its lock stays its own, and nothing is written."""
    run = begun_again(folder, "full-s0")
    before = {file: file.stat().st_mtime_ns for file in folder.path.rglob("*")}
    with locked(run / ".lock"):
        seen(folder)
    assert {file: file.stat().st_mtime_ns for file in folder.path.rglob("*")} == before


def test_without_a_terminal_it_is_told_once(folder, capsys):
    assert bough("survey", folder.path, "--watch") == 0
    assert "4 done of 4" in capsys.readouterr().out


@pytest.mark.parametrize("source", ["asked.yaml", "nowhere", "."])
def test_what_was_not_begun_cannot_be_watched(source, folder, capsys):
    assert bough("survey", folder.path.parent / source, "--watch") == 2
    said = capsys.readouterr().err
    assert "not a survey's directory; --watch wants one that was begun" in said


def seen_there(terminal: int, words: bytes) -> None:
    """Within half a minute."""
    text, end = b"", time.monotonic() + 30
    while words not in text:
        assert select([terminal], [], [], max(0, end - time.monotonic()))[0], text
        text += os.read(terminal, 4096)


def test_in_a_terminal_it_follows_until_the_end(folder):
    run = begun_again(folder, "full-s0")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    command = [sys.executable, "-m", "bough", "survey", str(folder.path), "--watch"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen_there(ours, b"1 running")
    (run / "scores.json").write_bytes((folder.run("full-s1").folder / "scores.json").read_bytes())
    seen_there(ours, b"4 done of 4")
    assert process.wait(20) == 0


def test_ctrl_c_ends_the_look_alone(folder):
    begun_again(folder, "full-s0")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "bough", "survey", str(folder.path), "--watch"]
    # Where the tests run in the background, it would be ignored.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=heard
    )
    os.close(theirs)
    seen_there(ours, b"1 running")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0


def test_a_search_shows_the_trials_it_has_come_to(base, tmp_path, quick, capsys):
    file = files.written(
        tmp_path, recipe=base,
        search={"trials": 2, "space": {"training.lr": {"low": 1e-5, "high": 1e-3, "log": True}}},
    )  # fmt: skip
    conduct(file, out=tmp_path / "out")
    look_on(tmp_path / "out")
    assert "2 done of 2; 0 running" in capsys.readouterr().out
