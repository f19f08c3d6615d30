"""Training over processes: as one process on the whole batch; killed, restarted, resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bough.runs.run_dir import Run
from bough.training.train import train
from tests import folders
from tests.ranks import together

# No share of these batches is a whole number, and tasks of four are absent on some of the ranks.
CASES: dict[str, dict[str, Any]] = {
    "sum": {"plan": "full"},
    "pcgrad": {"plan": "split@1", "combine": "pcgrad", "sampling": "method2", "cosines_every": 7},
    "uncertainty": {"plan": "pal:8", "weighting": "uncertainty", "sampling": "annealed"},
    "surgery": {"plan": "split@1, pal:8", "combine": "pcgrad", "weighting": "uncertainty"},
    "famo": {"plan": "full", "weighting": "famo", "accumulate": 3, "ema": 0.9},
    "few": {"plan": "split@1", "combine": "pcgrad", "batch": 3, "weighting": "dwa"},
    "frozen": {"plan": "full", "phases": [{"frozen": True, "steps": 10}, {"steps": 20}]},
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
        if "phases" not in settings:
            usual["steps"] = 30
        made[name] = folders.small(tiny_folder, **usual | settings)
        for task in made[name]["tasks"]:
            made[name]["tasks"][task] = {**made[name]["tasks"][task], "dropout": dropout}
    return made


def spread(folder: Path, count: int, made: dict[str, Any], work: str = ALL) -> Path:
    folder.mkdir()
    (folder / "recipes.json").write_text(json.dumps(made))
    if count == 1:
        train_all(folder)
    else:
        together(count, folder, work)
    return folder


@pytest.fixture(scope="module")
def by_count(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("ranks")
    made = recipes(tiny_folder, 0.0, **CASES)
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
