"""The command line as a whole: its verbs, its help, and words that are none."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bough.runs.lock import BUSY, locked
from tests import folders
from tests.command import bough


def test_words_of_no_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert bough("trian") == 2
    assert bough("train", "--no-such-option") == 2
    assert bough("--version") == 0
    assert capsys.readouterr().out.startswith("bough 0.")
    assert bough("--help") == 0
    told = capsys.readouterr().out
    for verb in ("train", "eval", "predict", "plan", "schema", "demo"):
        assert verb in told


def test_as_a_module() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "bough", "--version"], capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith("bough ")


@pytest.mark.parametrize("verb", ["eval"])
def test_help_offers_what_the_verb_takes(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bough(verb, "--help") == 0
    shown = capsys.readouterr().out
    assert "A run directory, a model folder, an ONNX folder or a hub id." in shown
    assert "[FILE...]" in shown


def test_export_offers_no_folder_that_it_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    """Torch cannot read an ONNX folder's weights."""
    assert bough("export", "--help") == 0
    shown = capsys.readouterr().out
    assert "A run directory, a model folder or a hub id." in shown
    assert "ONNX folder" not in shown


@pytest.mark.parametrize("verb", ["init", "eval", "predict"])
def test_files_of_words_with_their_tags_are_offered(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bough(verb, "--help") == 0
    assert ".conll" in capsys.readouterr().out


def test_a_signal_while_it_ends_is_no_fault() -> None:
    """SIGTERM after the last line, while Python puts things away: no traceback."""
    code = (
        "import atexit, os, signal, sys\n"
        "from bough.cli.main import main\n"
        "def end() -> None:\n"
        "    sys.stdout.flush()\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "atexit.register(end)\n"
        "sys.argv = ['bough', '--version']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("bough ")
    assert done.stderr == ""
    assert done.returncode == -signal.SIGTERM


def test_a_run_that_another_process_has_is_a_mistake_but_for_workers(
    tiny_folder: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(folders.small(tiny_folder)), encoding="utf-8")
    words = ["train", str(recipe), "-o", str(tmp_path / "run")]
    with locked(tmp_path / "run" / ".lock"):
        assert bough(*words) == 2
        worker = [sys.executable, "-m", "bough.cli.worker", *words]
        with subprocess.Popen(worker, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            assert b"another process is writing this run" in process.stderr.read()
    assert process.returncode == BUSY
