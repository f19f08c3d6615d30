"""Whether two runs are the same run, bit for bit, whatever happened to one of them."""

from __future__ import annotations

import csv
import json
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bough.runs.run_dir import Run

CLOCK = {"seconds", "step_seconds", "memory"}  # what is allowed to differ


def assert_same_run(one: Run, other: Run) -> None:
    """Weights kept and reached, optimiser, generators, sampler, log, answers and scores."""
    for name in ("model/model.safetensors", "plan.txt", "recipe.yaml", "scores.json"):
        assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes(), name
    states = [torch.load(run.checkpoint, weights_only=True) for run in (one, other)]
    assert_equal(*(state | {"log": 0} for state in states))
    assert_same_log(one, other)
    files = sorted(file.name for file in (one.folder / "predictions").iterdir())
    assert files == sorted(file.name for file in (other.folder / "predictions").iterdir())
    for name in files:
        texts = [(run.folder / "predictions" / name).read_bytes() for run in (one, other)]
        assert texts[0] == texts[1], name


def predictions(run: Run, task: str, split: str) -> list[dict[str, str]]:
    """The rows of a predictions file, as text."""
    file = run.folder / "predictions" / f"{task}-{split}.csv"
    with open(file, encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def assert_equal(one: Any, other: Any, at: str = "") -> None:
    assert type(one) is type(other), at
    if isinstance(one, dict):
        assert list(one) == list(other), at
        for key in one:
            if key not in CLOCK:
                assert_equal(one[key], other[key], f"{at}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), at
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_equal(a, b, f"{at}[{i}]")
    elif isinstance(one, Tensor):
        assert torch.equal(one, other), at
    elif isinstance(one, np.ndarray):
        assert np.array_equal(one, other), at
    else:
        assert one == other, at


def assert_same_log(one: Run, other: Run) -> None:
    assert _log(one) == _log(other)


def _log(run: Run) -> list[str]:
    entries = (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.dumps({k: v for k, v in json.loads(e).items() if k not in CLOCK}) for e in entries]
