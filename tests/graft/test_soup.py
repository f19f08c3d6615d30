"""Runs of several seeds become one model, as far as the dev rows agree."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest
import torch

from bough.errors import UserError
from bough.graft.soup import mean, soup
from bough.inference.load import load, load_torch
from bough.inference.precision.int8_scores import ScoreChange, keep
from bough.runs.run_dir import Run
from bough.training.train import train
from tests import folders
from tests.command import bough

TASKS = ("sentiment", "similarity")


@pytest.fixture(scope="module")
def runs(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("soup")
    return [
        train(folders.small(tiny_folder, TASKS, steps=6, seed=seed), folder / f"s{seed}").folder
        for seed in range(3)
    ]


def test_the_mean_of_each_weight() -> None:
    states = [{"a": torch.tensor([1.0, 2.0])}, {"a": torch.tensor([3.0, 0.0])}]
    assert mean(states)["a"].tolist() == [2.0, 1.0]


def test_what_stays_in_is_no_worse_and_what_is_written_is_its_mean(
    runs: list[Path], tmp_path: Path
) -> None:
    done = soup(runs, tmp_path / "soup")
    assert [t.alone for t in done.tried] == sorted((t.alone for t in done.tried), reverse=True)
    assert done.tried[0].kept
    assert done.tried[0].mixed == pytest.approx(done.tried[0].alone)
    best = float("-inf")
    for tried in done.tried:
        assert tried.kept == (tried.mixed >= best)
        best = max(best, tried.mixed) if tried.kept else best
    assert done.scores["normalised"] == pytest.approx(best)
    kept = [load_torch(t.run).network.state_dict() for t in done.tried if t.kept]
    written = load_torch(done.folder).network.state_dict()
    for name, tensor in written.items():
        torch.testing.assert_close(tensor, torch.stack([s[name] for s in kept]).mean(0))
    model = load(done.folder)
    assert model.predict("A fine film.")["sentiment"].label
    assert model.facts["scores"]["dev"]["normalised"] == pytest.approx(best)
    assert done.lines()[-1].endswith(str(tmp_path / "soup"))


def test_nothing_is_said_of_it_that_is_true_of_one_run_only(
    runs: list[Path], tmp_path: Path
) -> None:
    copies = [Path(copytree(run, tmp_path / run.name)) for run in runs[:2]]
    weights = [copy / "model" / "model.safetensors" for copy in copies]
    weights[1].write_bytes(weights[0].read_bytes())  # so that both stay in
    for copy in copies:
        run = Run.open(copy)
        keep(run, load(copy), [ScoreChange("sentiment", "accuracy", 0.5, 0.4, 16)])
        assert load(copy).facts["int8"]
    done = soup(copies, tmp_path / "soup")
    model = load(done.folder)
    assert not model.facts.get("int8")
    with pytest.raises(UserError, match="int8"):
        load(done.folder, precision="int8")
    card = (done.folder / "README.md").read_text()
    assert "trained in" not in card
    assert "parameters, " in card
    assert "seed" not in model.facts["training"]
    assert "the mean of 2 runs with the seeds 0, 1" in card
    assert "batch 8" in card


def test_runs_that_see_parts_of_speech(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, ("sentiment",), steps=2) | {"parts_of_speech": "pattern"}
    two = [
        train(recipe, tmp_path / f"s{seed}", [f"training.seed={seed}"]).folder for seed in (0, 1)
    ]
    done = soup(two, tmp_path / "soup")
    for tried in done.tried:
        scores = Run.open(tried.run).scores["dev"]
        assert tried.alone == pytest.approx(scores["normalised"], abs=1e-6)


def test_tasks_of_earlier_phases_do_not_count(tiny_folder: Path, tmp_path: Path) -> None:
    phases = [{"tasks": ["similarity"], "steps": 2}, {"tasks": ["sentiment"], "steps": 2}]
    two = [
        train(folders.small(tiny_folder, TASKS, phases=phases, seed=seed), tmp_path / f"{seed}")
        for seed in (0, 1)
    ]
    done = soup([run.folder for run in two], tmp_path / "soup")
    alone = {tried.run: tried.alone for tried in done.tried}
    for run in two:
        dev = run.scores["dev"]
        assert dev["normalised"] == dev["tasks"]["sentiment"]["accuracy"]
        assert alone[str(run.folder)] == pytest.approx(dev["normalised"], abs=1e-6)
    assert done.scores["normalised"] == done.scores["tasks"]["sentiment"]["accuracy"]


def test_others_are_refused(runs: list[Path], tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="two or more runs"):
        soup(runs[:1], tmp_path / "a")
    with pytest.raises(UserError, match="one run twice"):
        soup([runs[0], runs[0]], tmp_path / "a")
    other = train(
        folders.small(tiny_folder, TASKS, steps=6, seed=5, lr=2e-3), tmp_path / "other"
    ).folder
    with pytest.raises(UserError, match=r"differ in training\.lr"):
        soup([runs[0], other], tmp_path / "a")
    (other / "scores.json").unlink()
    with pytest.raises(UserError, match="is not finished"):
        soup([other, runs[0]], tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_the_command(runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bough("soup", *runs, "-o", tmp_path / "soup", "--threads", "1") == 0
    assert "of 3 runs" in capsys.readouterr().out
