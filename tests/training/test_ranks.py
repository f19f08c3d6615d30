"""Training over processes: as one process on the whole batch; killed, restarted, resumed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from benchmarks.communication import steps_of
from bough.distributed import joined
from bough.recipe.recipe import Recipe
from bough.runs.console import Silent
from bough.runs.run_dir import Run
from bough.training.train import resume, train
from tests import folders
from tests.command import QUIET
from tests.ranks import together
from tests.same import assert_same_run

# Batches of 7 make uneven shares; of batches of 2 some of four ranks have nothing.
CASES: dict[str, dict[str, Any]] = {
    "sum": {"plan": "full", "sampling": "method2"},
    "pcgrad": {"plan": "split@3", "combine": "pcgrad", "cosines_every": 7},
    "uncertainty": {"plan": "pal:64", "weighting": "uncertainty", "sampling": "annealed"},
    "famo": {"plan": "full", "weighting": "famo", "accumulate": 3, "ema": 0.9},
    "few": {"plan": "split@1", "combine": "pcgrad", "batch": 2, "weighting": "dwa"},
    "frozen": {"plan": "full", "phases": [{"frozen": True, "steps": 10}, {"steps": 20}]},
    "kinds": {"plan": "split@2", "combine": "pcgrad"},
}
ALL = "tests.training.test_ranks:train_all"


def train_all(folder: Path) -> None:
    """What each process does: all the cases, one after the other."""
    for name, recipe in json.loads((folder / "recipes.json").read_text()).items():
        train(recipe, folder / name)


def recipes(tiny_folder: Path, dropout: float, **cases: dict[str, Any]) -> dict[str, Any]:
    made = {}
    for name, settings in cases.items():
        usual = {"batch": 7, "lr": 5e-5, "dropout": dropout, "log_every": 10}
        usual |= {"evaluate_rows": 8, "evaluate_every": 15}
        if "phases" not in settings:
            usual["steps"] = 30
        made[name] = folders.small(tiny_folder, **usual | settings)
        for task in made[name]["tasks"]:
            made[name]["tasks"][task] = {**made[name]["tasks"][task], "dropout": dropout}
    return made


def kinds(folder: Path) -> dict[str, Any]:
    """Tasks of further kinds, whose texts have unlike numbers of labels."""
    words = ["a", "bough", "of", "the", "old", "tree", "bends", "in", "a", "late", "wind"]
    for split, many in (("train", 40), ("dev", 12)):
        rows = []
        for i in range(many):
            text = " ".join(words[: 2 + i % 9])
            spans = [
                {"start": 0, "end": 1, "label": "X"},
                {"start": 2, "end": len(text), "label": "Y"},
            ]
            rows.append({"text": text, "spans": spans[: i % 3], "topics": ["a", "b", "c"][: i % 4]})
        lines = "\n".join(map(json.dumps, rows)) + "\n"
        (folder / f"kinds-{split}.jsonl").write_text(lines)
    files = {"text": "text", "train": "kinds-train.jsonl", "dev": "kinds-dev.jsonl"}
    return {
        "names": {"kind": "tag", "label": "spans", **files},
        "topics": {"kind": "multilabel", "label": "topics", **files},
    }


def spread(folder: Path, count: int, made: dict[str, Any], work: str = ALL) -> Path:
    folder.mkdir()
    (folder / "recipes.json").write_text(json.dumps(made))
    if count == 1:
        train_all(folder)
    else:
        together(count, folder, work)
    return folder


@pytest.fixture(scope="module")
def by_count(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("ranks")
    folders.data(folder / "rows")
    deep = folders.encoder(folder / "encoder", layers=4, width=64)
    made = recipes(deep, 0.0, **CASES)
    further = {name: {**task, "dropout": 0.0} for name, task in kinds(folder / "rows").items()}
    made["kinds"]["tasks"] |= further
    return {count: spread(folder / str(count), count, made) for count in (1, 2, 4)}


def weights(run: Path) -> dict[str, torch.Tensor]:
    state: dict[str, Any] = torch.load(run / "checkpoint" / "state.pt", weights_only=True)
    network: dict[str, torch.Tensor] = state["stepper"]["network"]
    return network


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("case", CASES)
def test_a_share_each_is_the_whole_batch(by_count: dict[int, Path], case: str, count: int) -> None:
    one, many = by_count[1] / case, by_count[count] / case
    before, after = weights(one), weights(many)
    for name, tensor in before.items():
        assert torch.allclose(after[name], tensor, rtol=0, atol=1e-5), name
    scores = [Run.open(run).scores["dev"] for run in (one, many)]
    assert scores[1]["raw"] == pytest.approx(scores[0]["raw"], abs=1e-4)
    for mine, theirs in zip(Run.open(one).metrics(), Run.open(many).metrics(), strict=True):
        assert mine["step"] == theirs["step"]
        if "loss" in mine:
            assert theirs["loss"] == pytest.approx(mine["loss"], rel=1e-4)
            assert theirs["weights"] == pytest.approx(mine["weights"], rel=1e-4)
            assert theirs["examples"] == mine["examples"]
            assert theirs["tokens"] == mine["tokens"]
            assert theirs["exchanged"] > 0
        for place, pairs in mine.get("cosines", {}).items():
            assert theirs["cosines"][place] == pytest.approx(pairs, abs=1e-3)
    cost = Run.open(many).cost
    assert cost["processes"] == count
    assert cost["exchanged_bytes_per_step"] > 0
    assert "processes" not in Run.open(one).cost


def test_another_way_of_training_would_be_noticed(by_count: dict[int, Path]) -> None:
    sums, others = (weights(by_count[1] / case) for case in ("sum", "famo"))
    assert max(float((sums[name] - others[name]).abs().max()) for name in sums) > 1e-4


def count_bytes(folder: Path) -> None:
    """What each process does: a few steps of each case, of which the benchmark keeps account."""
    with joined() as processes:
        for recipe in json.loads((folder / "recipes.json").read_text()).values():
            for counted, parts in steps_of(Recipe.read(recipe), processes, 3):
                assert counted == sum(parts.values()) > 0


def test_bytes_of_a_step_are_those_that_the_docs_compute(tiny_folder: Path, tmp_path: Path) -> None:
    cases = {
        f"{plan} {combine}": {"plan": plan, "combine": combine}
        for plan in ("full", "split@1", "pal:8")
        for combine in ("sum", "pcgrad")
    }
    made = recipes(tiny_folder, 0.0, **cases)
    spread(tmp_path / "bytes", 2, made, "tests.training.test_ranks:count_bytes")


# --- started by torchrun, and killed --------------------------------------------------------------

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def start(folder: Path, name: str, *options: str) -> subprocess.Popen[str]:
    """`torchrun -m bough train`, and its first lines of log awaited."""
    words = [*TORCHRUN, *options, "-m", "bough", "train", "recipe.yaml", "-o", name]
    process = subprocess.Popen(
        words, cwd=folder, env=QUIET, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    log = folder / name / "metrics.jsonl"
    while not (log.exists() and log.read_bytes().count(b"\n") > 6):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    return process


def kill(process: subprocess.Popen[str], rank: int) -> None:
    for child in psutil.Process(process.pid).children():
        if child.environ().get("RANK") == str(rank):
            os.kill(child.pid, signal.SIGKILL)
            return
    raise AssertionError(f"there is no rank {rank}")


def undisturbed(folder: Path) -> None:
    """What each of two processes does: the same run without a kill, and the killed one's rest."""
    recipe = Recipe.read(folder / "recipe.yaml")
    train(recipe, folder / "whole")
    resume(folder / "killed")


@pytest.fixture(scope="module")
def killed(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Two ranks of which one was killed by SIGKILL; what was said, and by whom restarted."""
    folder = tmp_path_factory.mktemp("killed")
    settings = {"log_every": 1, "save_every": 0, "evaluate_rows": 8, "combine": "pcgrad"}
    made = recipes(tiny_folder, 0.1, run={**settings, "weighting": "uncertainty"})
    (folder / "recipe.yaml").write_text(json.dumps(made["run"]))
    process = start(folder, "killed")
    kill(process, 1)
    said = process.communicate(timeout=60)[1]  # the other one ends, too
    assert process.returncode == 1
    shutil.copytree(folder / "killed", folder / "alone")
    again = start(folder, "restarted", "--max-restarts", "1")
    kill(again, 0)
    told = again.communicate(timeout=300)[0]
    assert again.returncode == 0
    together(2, folder, "tests.training.test_ranks:undisturbed")
    return folder, said, told


def test_a_rank_that_dies_is_told_of_once(killed: tuple[Path, str, str]) -> None:
    said = [line for line in killed[1].splitlines() if line.startswith("bough:")]
    assert len(said) == 1, killed[1]
    assert "another process of this run is gone" in said[0]
    assert said[0].endswith("go on with: bough train --resume killed")
    of_torchrun = killed[1].partition("Traceback")[2]  # it always ends with one of its own
    assert "Traceback" not in of_torchrun
    assert "ChildFailedError" in of_torchrun


def test_after_a_kill_two_ranks_end_as_undisturbed(killed: tuple[Path, str, str]) -> None:
    """With dropout: the same number of ranks gives the same bits."""
    folder, _, told = killed
    whole = Run.open(folder / "whole")
    assert_same_run(whole, Run.open(folder / "killed"))
    assert_same_run(whole, Run.open(folder / "restarted"))
    assert told.count("Next: bough predict") == 1  # one display


def test_a_run_of_two_ranks_goes_on_with_one(killed: tuple[Path, str, str]) -> None:
    folder = killed[0]
    run = resume(folder / "alone", display=(heard := Heard()))
    assert any("began with 2 and goes on with 1" in text for text in heard.said)
    assert set(run.scores["dev"]["tasks"]) == set(folders.TASKS)
    steps = [entry["step"] for entry in run.metrics() if "loss" in entry]
    assert steps == list(range(1, 31))


class Heard(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)
