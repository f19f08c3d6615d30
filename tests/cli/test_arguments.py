"""Threads: as asked, as the environment says, as the run had, or as many as are free."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from typer.main import get_command

from bough.cli import arguments
from bough.cli.arguments import settle_threads
from bough.cli.main import app
from bough.runs.run_dir import Run
from tests import folders
from tests.command import bough

COMPUTE = ("train", "eval", "predict", "serve", "export", "survey", "demo")


@pytest.fixture(autouse=True)
def _threads_put_back() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight cores three are free."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(arguments, "cores", lambda: 8)
    monkeypatch.setattr(arguments, "free_cores", lambda: 3)


@pytest.mark.parametrize("verb", COMPUTE)
def test_every_verb_that_computes_takes_threads(verb: str) -> None:
    options = get_command(app).commands[verb].params  # type: ignore[attr-defined]
    assert "threads" in [option.name for option in options]


@pytest.mark.usefixtures("machine")
def test_what_is_free_is_taken_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    assert settle_threads(None, announce=said.append) == torch.get_num_threads() == 3
    assert len(said) == 1
    assert said[0].startswith("other work keeps this machine busy: 3 of 8 cores")
    assert settle_threads(None) == 3
    assert not capsys.readouterr().err, "who does not compute for long says nothing of it"


@pytest.mark.usefixtures("machine")
def test_a_busy_machine_is_told_once_and_not_before_the_input_is_checked(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = folders.small(tiny_folder, ("sentiment",), steps=2)
    file = tmp_path / "recipe.yaml"
    file.write_text(json.dumps(recipe), encoding="utf-8")
    bad = ("--set", "tasks.sentiment.label=lable")
    assert bough("train", file, "-o", tmp_path / "bad", *bad) == 2
    assert "keeps this machine busy" not in capsys.readouterr().err
    assert bough("train", file, "-o", tmp_path / "run") == 0
    assert capsys.readouterr().err.count("keeps this machine busy") == 1


@pytest.mark.usefixtures("machine")
def test_asked_or_usual_numbers_come_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settle_threads(2) == torch.get_num_threads() == 2
    assert settle_threads(None, 4) == torch.get_num_threads() == 4
    assert settle_threads(2, 4) == torch.get_num_threads() == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert settle_threads(None, 4) is None
    assert torch.get_num_threads() == 2, "torch has read the variable itself"
    assert settle_threads(1) == 1
    assert not capsys.readouterr().err


@pytest.mark.usefixtures("machine")
def test_a_run_is_resumed_with_its_own_number(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = folders.small(tiny_folder, ("sentiment",), steps=2) | {"threads": 1}
    file = tmp_path / "recipe.yaml"
    file.write_text(json.dumps(recipe), encoding="utf-8")
    folder = tmp_path / "run"
    assert bough("train", file, "-o", folder, "--threads", "2") == 0
    run = Run.open(folder)
    assert run.environment["threads"] == 2
    assert yaml.safe_load(run.recipe_file.read_text(encoding="utf-8"))["threads"] is None
    (folder / "scores.json").unlink()
    torch.set_num_threads(1)
    capsys.readouterr()
    assert bough("train", "--resume", folder) == 0
    assert torch.get_num_threads() == 2
    assert "results may differ" not in capsys.readouterr().err
