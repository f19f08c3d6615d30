"""kill -9 at any moment, `--resume` after it: the same run, bit for bit, and never unreadable."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bough.runs.run_dir import Run
from tests import folders
from tests.same import assert_same_run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

ROOT = Path(__file__).parents[2]
QUIET = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def tortured(tmp_path: Path, how: str, recipe: dict[str, object], kills: int) -> list[str]:
    file = tmp_path / "recipe.yaml"
    file.write_text(json.dumps(recipe))
    words = [sys.executable, "-m", "tests.killing", str(tmp_path), how, str(file), str(kills), "7"]
    told = subprocess.run(words, cwd=ROOT, env=QUIET, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    finished: list[str] = json.loads(told.stdout)
    return finished


@pytest.mark.parametrize(
    ("how", "precision", "kills"),
    [("random", "fp32", 20), ("random", "bf16", 6), ("ranks", "fp32", 4)],
)
def test_kills_at_random(
    how: str, precision: str, kills: int, tiny_folder: Path, tmp_path: Path
) -> None:
    """On the embedded data, as the demo has it; a checkpoint after every step."""
    recipe = folders.recipe(
        tiny_folder, epochs=2, batch=48, save_every=0, combine="pcgrad", sampling="annealed",
        steps_per_epoch=20, evaluate_rows=40, log_every=3, weighting="uncertainty", ema=0.9,
    )  # fmt: skip
    finished = tortured(tmp_path, how, recipe | {"precision": precision}, kills)
    assert finished
    for name in finished:
        assert_same_run(Run.open(tmp_path / "whole"), Run.open(tmp_path / name))


def test_kills_while_files_are_written(tiny_folder: Path, tmp_path: Path) -> None:
    phases = [{"frozen": True, "steps": 2}, {"steps": 2}]
    recipe = folders.small(tiny_folder, phases=phases, save_every=0, evaluate_rows=8)
    finished = tortured(tmp_path, "files", recipe, 6)
    assert len(finished) == 6
    for name in finished:
        assert_same_run(Run.open(tmp_path / "whole"), Run.open(tmp_path / name))


def test_the_command_itself(tiny_folder: Path, tmp_path: Path) -> None:
    """Once with the program as it is installed, and a checkpoint now and then."""
    recipe = folders.small(tiny_folder, steps=150, save_every=0.2, evaluate_rows=8, log_every=2)
    file = tmp_path / "recipe.yaml"
    file.write_text(json.dumps(recipe))
    bough = [str(Path(sys.executable).parent / "bough"), "train"]
    log = tmp_path / "run" / "metrics.jsonl"
    with subprocess.Popen([*bough, str(file), "-o", "run"], cwd=tmp_path, env=QUIET) as process:
        while not (log.exists() and log.stat().st_size > 2_000) and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    run = Run.open(tmp_path / "run")
    assert not run.finished
    assert all("step" in entry for entry in run.metrics())
    for words in ([*bough, "--resume", "run"], [*bough, str(file), "-o", "whole"]):
        subprocess.run(words, cwd=tmp_path, env=QUIET, check=True, capture_output=True)
    assert_same_run(Run.open(tmp_path / "whole"), run)
