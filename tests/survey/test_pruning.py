"""A run is pruned when it falls behind the median of those that cost no more; else never."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bough.runs.run_dir import Run
from bough.survey.pruning import PEERS, evaluations, is_behind
from bough.survey.search import SearchScheduler
from bough.survey.spec import Survey
from bough.survey.survey_dir import SurveyDir


def logged(
    folder: Path, raw: Sequence[float], size: int = 100, finished: bool = True, pace: float = 1.0
) -> Run:
    """A run judged after every step, as far as it has come."""
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "model.safetensors").write_bytes(bytes(size))
    entries: list[dict[str, Any]] = []
    for step, value in enumerate(raw, 1):
        task = {"metric": "f1", "f1": 1 - value, "accuracy": 0.0}
        entries.append({"step": step, "seconds": step * pace})
        entries.append({"step": step, "dev": {"raw": value, "tasks": {"sst": task}}})
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    if finished:
        cost = {"bytes_to_serve": size, "step_seconds": pace, "peak_memory": 9}
        (folder / "cost.json").write_text(json.dumps(cost))
        (folder / "scores.json").write_text("{}")
    return Run(folder)


@pytest.fixture
def peers(tmp_path: Path) -> list[Run]:
    """Finished runs, whose best until step 2 is .3 to .7."""
    return [logged(tmp_path / f"p{n}", [n / 10, 0.1, 0.9]) for n in range(3, 8)]


def behind(run: Run, peers: Sequence[Run], *objectives: str) -> bool:
    return is_behind(run, evaluations(run), peers, objectives)


def test_the_best_so_far_is_held_against_the_median_at_that_step(
    tmp_path: Path, peers: list[Run]
) -> None:
    for name, raw, expected in (
        ("worse", [0.2, 0.49], True),
        ("even", [0.2, 0.5], False),
        ("fallen", [0.6, 0.0], False),
        ("late", [0.6, 0.0, 0.0], True),  # by then the others had .9
    ):
        run = logged(tmp_path / name, raw, finished=False)
        assert behind(run, peers, "raw") == expected, name
        assert not behind(run, peers[: PEERS - 1], "raw"), "too few to judge by"


def test_it_must_be_behind_in_every_score(tmp_path: Path, peers: list[Run]) -> None:
    run = logged(tmp_path / "run", [0.2], finished=False)
    assert behind(run, peers, "raw")
    assert not behind(run, peers, "sst"), "which is best where the other is worst"
    assert not behind(run, peers, "raw", "sst")
    assert not behind(run, peers, "bytes_to_serve"), "costs alone say nothing"


def test_only_those_that_cost_no_more_are_peers(tmp_path: Path, peers: list[Run]) -> None:
    small = logged(tmp_path / "small", [0.2], size=90, finished=False)
    like = logged(tmp_path / "like", [0.2], size=96, finished=False)
    assert not behind(small, peers, "raw", "bytes_to_serve")
    assert behind(like, peers, "raw", "bytes_to_serve"), "costs that close are the same"
    quick = logged(tmp_path / "quick", [0.2], pace=0.5, finished=False)
    assert not behind(quick, peers, "raw", "step_seconds")
    assert behind(quick, peers, "raw", "bytes_to_serve")
    assert not behind(like, peers, "raw", "peak_memory"), "which only its end will tell"


def test_a_slow_stretch_is_not_a_runs_pace(tmp_path: Path, peers: list[Run]) -> None:
    """Else the slower ones of its peers would be thought as quick as it is."""
    run = logged(tmp_path / "run", [0.2] * 6, pace=0.5, finished=False)
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if "seconds" in line and line["step"] >= 2:
            line["seconds"] += 60
    (run.folder / "metrics.jsonl").write_text("".join(f"{json.dumps(e)}\n" for e in lines))
    assert not behind(run, peers, "raw", "step_seconds")
    slow = logged(tmp_path / "slow", [0.2] * 6, finished=False)
    assert behind(slow, peers, "raw", "step_seconds")


def test_a_search_asks_once_per_evaluation(base: dict[str, Any], tmp_path: Path) -> None:
    def scheduler(prune: bool) -> SearchScheduler:
        space = {"training.lr": {"low": 1e-3, "high": 2e-3}}
        search = {"space": space, "objectives": ["raw"], "prune": prune}
        asked = Survey.read({"recipe": base, "search": search}).resolved()
        return SearchScheduler(asked, SurveyDir(tmp_path))

    trials = scheduler(prune=True)
    spec = trials.ask()
    assert spec is not None
    for n in range(PEERS):
        logged(tmp_path / "runs" / f"p{n}", [0.5, 0.9])
    assert not trials.should_prune(spec), "it has not begun"
    logged(tmp_path / "runs" / spec.name, [0.4], finished=False)
    assert not scheduler(prune=False).should_prune(spec)
    assert trials.should_prune(spec)
    assert not trials.should_prune(spec), "asked again only when it was judged again"
