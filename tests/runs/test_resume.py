"""A run that was stopped, killed or out of room goes on, and comes out the same bit for bit."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bough import files
from bough.errors import UserError
from bough.inference.load import load
from bough.runs.console import Moment, Silent
from bough.runs.run_dir import Run, Writer
from bough.training.loop import Failed, Stopped
from bough.training.train import resume, train
from tests import folders
from tests.raising import raising
from tests.same import assert_same_run


class Trouble(Silent):
    """Does something to the process after a certain step."""

    def __init__(self, step: int, what: Callable[[], object]):
        self.left = step
        self.what = what

    def step(self, moment: Moment) -> None:
        self.left -= 1
        if self.left == 0:
            self.what()


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def crash() -> None:
    raise RuntimeError("something broke")


HOW = {"SIGINT": (interrupt, Stopped), "SIGTERM": (terminate, Stopped),
       "crash": (crash, RuntimeError)}  # fmt: skip


TWO_PHASES = [{"frozen": True, "steps": 4, "lr": 1e-2}, {"steps": 4}]


CASES: dict[str, tuple[dict[str, Any], str, tuple[int, ...]]] = {
    "plain": ({}, "SIGINT", (1, 4)),
    "at the end": ({}, "SIGTERM", (8,)),
    "crash": ({"save_every": 0}, "crash", (3,)),
    "crash before any checkpoint": ({}, "crash", (3,)),
    "pcgrad, cosines": ({"combine": "pcgrad", "cosines_every": 3}, "SIGINT", (2,)),
    "gradvac": ({"combine": "gradvac"}, "SIGTERM", (3,)),
    "random gradients": ({"combine": "random"}, "SIGINT", (3,)),
    "uncertainty": ({"weighting": "uncertainty", "log_every": 3}, "SIGINT", (5,)),
    "imtl-l": ({"weighting": "imtl-l"}, "SIGINT", (5,)),
    "dwa": ({"weighting": "dwa", "epochs": 4}, "SIGINT", (8, 10)),
    "famo": ({"weighting": "famo", "combine": "pcgrad"}, "SIGINT", (5,)),
    "random weights": ({"weighting": "random"}, "SIGINT", (5,)),
    "average, accumulation": ({"ema": 0.7, "accumulate": 2}, "SIGINT", (3,)),
    "annealed": ({"sampling": "annealed", "steps_per_epoch": 4}, "SIGINT", (5,)),
    "in turn": ({"sampling": "in-turn", "epochs": 1, "batch": 24}, "SIGINT", (4, 6)),
    "method 1": ({"sampling": "method1", "schedule": "onecycle"}, "SIGINT", (5,)),
    "frozen, then tuned": ({"phases": TWO_PHASES}, "SIGINT", (2, 4, 6)),
    "tuned, then frozen": ({"phases": TWO_PHASES[::-1]}, "SIGINT", (4, 6)),
    "frozen": ({"plan": "frozen"}, "SIGINT", (3,)),
    "early stop": ({"patience": 1, "lr": 1e-12, "epochs": 4}, "SIGINT", (6,)),
    "best by steps": ({"evaluate_every": 3, "select": "sentiment", "lr": 1e-2}, "SIGINT", (5,)),
    "all of a plan": (
        {"plan": "split@1, late:IS, pal:8, feed~:sentiment>questions>similarity"}, "SIGINT", (5,)
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_resumed_bit_for_bit(
    case: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda number: None)
    settings, how, steps = CASES[case]
    recipe = folders.small(tiny_folder, **{"epochs": 2, "batch": 16, "evaluate_rows": 8} | settings)
    whole = train(recipe, tmp_path / "whole")
    what, error = HOW[how]
    for step in steps:
        with pytest.raises(error):
            train(recipe, tmp_path / str(step), display=Trouble(step, what))
        run = Run.open(tmp_path / str(step))
        assert not run.finished
        assert resume(run.folder).finished
        assert_same_run(whole, run)


def test_stopped_again_and_again(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, epochs=1, combine="pcgrad", evaluate_rows=8)
    before = signal.getsignal(signal.SIGINT)
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Stopped, match="stopped after step 1; go on with: bough train --resume"):
        train(recipe, tmp_path / "run", display=Trouble(1, interrupt))
    for _ in range(6):
        with pytest.raises(Stopped):
            resume(tmp_path / "run", Trouble(1, interrupt))
    assert_same_run(whole, resume(tmp_path / "run"))
    with pytest.raises(UserError, match="is finished; there is nothing to resume"):
        resume(tmp_path / "run")
    assert signal.getsignal(signal.SIGINT) is before, "handlers are put back"


def test_a_second_interrupt_stops_at_once(tiny_folder: Path, tmp_path: Path) -> None:
    def twice() -> None:
        interrupt()
        interrupt()

    recipe = folders.small(tiny_folder, epochs=1, evaluate_rows=8)
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "run", display=Trouble(3, twice))
    assert_same_run(whole, resume(tmp_path / "run"))


def test_resumed_from_elsewhere(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny_folder.parent)
    recipe = folders.small(tiny_folder, steps=4, evaluate_rows=8)
    recipe |= {"encoder": tiny_folder.name, "data": "rows"}
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Stopped):
        train(recipe, tmp_path / "run", display=Trouble(2, interrupt))
    monkeypatch.chdir(tmp_path)
    assert_same_run(whole, resume("run"))


def test_rows_that_changed_are_refused(tiny_folder: Path, tmp_path: Path) -> None:
    rows = folders.data(tmp_path / "rows")
    recipe = folders.small(tiny_folder, steps=4) | {"data": str(rows)}
    with pytest.raises(Stopped):
        train(recipe, tmp_path / "run", display=Trouble(2, interrupt))
    file = rows / "sentiment-train.csv"
    text = file.read_text()
    file.write_text(text + "One more.,neutral\n")
    said = r"the train rows of task 'sentiment' \(.*sentiment-train.csv\) have changed"
    with pytest.raises(UserError, match=said):
        resume(tmp_path / "run")
    file.write_text(text)
    assert resume(tmp_path / "run").finished


def test_a_checkpoint_that_cannot_be_gone_on_from(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, steps=4)
    with pytest.raises(Stopped):
        train(recipe, tmp_path / "run", display=Trouble(2, interrupt))
    file = tmp_path / "run/checkpoint/state.pt"
    whole = file.read_bytes()
    for damaged in (b"", whole[:1000], whole[: len(whole) // 2], b"\x80\x02x", b"text"):
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=r"state.pt: is damaged; train the recipe anew"):
            resume(tmp_path / "run")
    file.write_bytes(whole)
    state = torch.load(file, weights_only=True)
    for other in (state | {"form": 99}, {k: v for k, v in state.items() if k != "form"}, [1]):
        torch.save(other, file)
        with pytest.raises(UserError, match="was written by another version of bough"):
            resume(tmp_path / "run")
    file.write_bytes(whole)
    assert resume(tmp_path / "run").finished


def test_the_cost_goes_on_counting(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, epochs=1, evaluate_rows=8)
    whole = train(recipe, tmp_path / "whole").cost
    with pytest.raises(Stopped):
        train(recipe, tmp_path / "run", display=Trouble(6, interrupt))
    before = torch.load(tmp_path / "run/checkpoint/state.pt", weights_only=True)["progress"]
    cost = resume(tmp_path / "run").cost
    clock = ("training_seconds", "step_seconds", "peak_memory")
    assert {k: v for k, v in cost.items() if k not in clock} == {
        k: v for k, v in whole.items() if k not in clock
    }
    assert cost["training_seconds"] > before["seconds"] > 0
    assert cost["peak_memory"] >= before["memory"] > 0


def test_only_the_runs_own_parts_are_cleared(tiny_folder: Path, tmp_path: Path) -> None:
    """A folder that someone names by mistake may hold anything, other runs among it."""
    foreign = [tmp_path / ".download.part", tmp_path / "live" / "checkpoint" / ".state.pt.9.part"]
    for file in foreign:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("kept")
    with pytest.raises(UserError):
        train(folders.small(tiny_folder, steps=1) | {"plan": "nonsense"}, tmp_path)
    assert all(file.exists() for file in foreign)
    (tmp_path / "recipe.yaml").write_text("tasks: {}\n")
    (tmp_path / "plan.txt").write_text("full\n")
    own = tmp_path / "model" / ".model.safetensors.7.part"
    own.parent.mkdir()
    own.write_text("half")
    Writer.resume(tmp_path).close()
    assert not own.exists()
    assert foreign[1].exists()


def test_no_room_at_any_moment(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every single write fails once: told in a sentence, nothing half-written, resumed."""
    recipe = folders.small(tiny_folder, ("questions",), steps=2, save_every=0, evaluate_rows=8)
    real, calls = files.write_atomically, 0

    def counted(path: Path, content: files.Content) -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", raising(OSError(errno.ENOSPC, "No space left")))
                real(path, content)
        else:
            real(path, content)

    for module in ("bough.runs.run_dir", "bough.inference.torch_model"):
        monkeypatch.setattr(f"{module}.write_atomically", counted)
    failing = 0
    whole = train(recipe, tmp_path / "whole")
    for failing in range(1, calls + 1):
        calls = 0
        folder = tmp_path / str(failing)
        with pytest.raises(Failed, match=r"no space left to write .* Make room, then go on with"):
            train(recipe, folder)
        calls = -1000
        assert not list(tmp_path.rglob(f"*{files.PART}"))
        if failing == 1:
            assert not folder.exists(), "not even the recipe could be written"
            continue
        run = Run.open(folder)
        assert all("step" in entry for entry in run.metrics())
        assert_same_run(whole, resume(folder))


@pytest.fixture
def little_room(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB, where one may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_really_full_disk(tiny_folder: Path, tmp_path: Path, little_room: Path) -> None:
    recipe = folders.small(tiny_folder, steps=4, save_every=0, evaluate_rows=8)
    whole = train(recipe, tmp_path / "whole")
    need = sum(f.stat().st_size for f in whole.folder.rglob("*") if f.is_file())
    assert need < 1_000_000
    failed = 0
    for spare in range(0, 800_000, 160_000):
        ballast = little_room / "ballast"
        ballast.write_bytes(bytes(1_000_000 - spare))
        folder = little_room / "run"
        said = "room"
        try:
            train(recipe, folder)
        except (Failed, UserError) as error:  # a UserError: no room for the directory itself
            said = str(error)
            failed += 1
        assert any(word in said for word in ("room", "no space left", "cannot be written")), said
        assert not list(little_room.rglob(f"*{files.PART}"))
        ballast.unlink()
        if folder.exists():
            list(Run.open(folder).metrics())
            if not Run.open(folder).finished:
                resume(folder)
            assert_same_run(whole, Run.open(folder))
            subprocess.run(["rm", "-r", str(folder)], check=True)
    assert failed >= 3


def test_a_second_process_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, epochs=1)
    file = tmp_path / "recipe.yaml"
    file.write_text(json.dumps(recipe))
    said: list[tuple[int, str]] = []

    def rival() -> None:
        code = "from bough.cli.main import main; main()"
        for how in (["train", str(file), "-o", "run"], ["train", "--resume", "run"]):
            command = [sys.executable, "-c", code, *how]
            ended = subprocess.run(
                command, cwd=tmp_path, capture_output=True, text=True, check=False
            )
            said.append((ended.returncode, ended.stderr))

    run = train(recipe, tmp_path / "run", display=Trouble(2, rival))
    assert said == [(2, "bough: run: another process is writing this run; wait for it\n")] * 2
    assert run.finished
    assert load(run.folder).predict("Fine.")


def test_one_wrong_bit_in_a_checkpoint_is_damage(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        train(folders.small(tiny_folder, steps=4), tmp_path / "run", display=Trouble(2, interrupt))
    file = tmp_path / "run/checkpoint/state.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"state.pt: is damaged"):
        resume(tmp_path / "run")


def test_another_tokenizer_is_refused_and_other_threads_are_told(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = shutil.copytree(tiny_folder, tmp_path / "encoder")
    recipe = folders.small(tiny_folder, steps=4) | {"encoder": str(encoder)}
    with pytest.raises(Stopped):
        train(recipe, tmp_path / "run", display=Trouble(2, interrupt))
    file = encoder / "tokenizer.json"
    before = file.read_text()
    file.write_text(before.replace('"lowercase":true', '"lowercase":false').replace(
        '"lowercase": true', '"lowercase": false'))  # fmt: skip
    assert file.read_text() != before
    with pytest.raises(UserError, match=r"the tokenizer of encoder .* is another than when"):
        resume(tmp_path / "run")
    file.write_text(before)
    environment = tmp_path / "run/environment.json"
    facts = json.loads(environment.read_text())
    assert len(facts["tokenizer"]) == len(facts["encoder"]) == 64
    environment.write_text(json.dumps(facts | {"threads": 7}))
    told: list[str] = []
    display = Silent()
    monkeypatch.setattr(display, "say", told.append)
    assert resume(tmp_path / "run", display).finished
    assert any("began with 7 threads and goes on with 1" in text for text in told)


def test_a_second_interrupt_in_a_checkpoint_waits_for_it(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = torch.save

    def interrupted(*arguments: Any) -> None:
        interrupt()
        interrupt()
        save(*arguments)

    recipe = folders.small(tiny_folder, steps=4)
    whole = train(recipe, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", interrupted)
        with pytest.raises(Stopped):
            train(recipe, tmp_path / "run", display=Trouble(2, interrupt))
    assert not list((tmp_path / "run/checkpoint").glob(".*"))
    assert_same_run(whole, resume(tmp_path / "run"))
