"""Runs of several seeds become one model, as far as the dev rows agree."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bough.errors import UserError
from bough.graft.soup import mean, soup
from bough.inference.load import load, load_torch
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
