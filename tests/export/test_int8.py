"""Weights in int8: smaller, near, and refused where they cost too much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bough.data.checked_rows import Rows
from bough.errors import UserError
from bough.export import int8
from bough.export.onnx_export import write_onnx
from bough.inference.model import Text
from tests import folders
from tests.exports import TASKS, exported, mixed, model_of, sentences, untraced, worst


def test_int8_is_smaller_and_near(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"width": 128, "embedding": 128, "inner": 256, "layers": 2}
    model = model_of("split@1", TASKS, **sizes)
    small = exported(model, tmp_path, int8=True)
    assert 0 < worst(model, small, mixed(30)) < 0.5
    single: list[Text] = [text for text in mixed(30) if isinstance(text, str)]
    assert 0 < worst(model, small, single, [("a",)] * len(single)) < 0.5
    fp32 = 4 * sum(parameter.numel() for parameter in model.network.parameters())
    assert (tmp_path / "model.onnx").stat().st_size < 0.4 * fp32


def test_int8_says_what_it_costs(run: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    out = write_onnx(run, tmp_path / "int8", int8=True, tolerance=1, tell=lines.append)
    assert [line.split(":")[0] for line in lines] == list(folders.TASKS)
    assert all("fp32" in line and "int8" in line and "change" in line for line in lines)
    assert {"config.json", "model.onnx", "tokenizer.json"} <= {file.name for file in out.iterdir()}
    with pytest.raises(UserError, match="already there"):
        write_onnx(run, out)


def test_int8_that_costs_too_much_leaves_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = {name: {"accuracy": 0.9, "pearson": 0.9, "rows": 16} for name in folders.TASKS}
    scores = iter([same, same | {"similarity": {"pearson": 0.88, "rows": 16}}])
    monkeypatch.setattr(int8, "dev_scores", lambda *_: next(scores))
    with pytest.raises(UserError, match=r"costs task 'similarity' 0\.0200 of its dev pearson"):
        write_onnx(run, tmp_path / "int8", int8=True, tell=lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_int8_needs_dev_rows(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run directory"):
        write_onnx(run / "model", tmp_path / "int8", int8=True)
    assert list(tmp_path.iterdir()) == []


def test_scores_are_those_of_the_rows() -> None:
    model = model_of("full", {"a": TASKS["a"]})
    texts = sentences(20)
    labels = ["xyz".index(str(answer["a"].label)) for answer in model.predict(texts)]
    labels[0] = (labels[0] + 1) % 3
    rows = Rows([(text,) for text in texts], list(labels), [""] * 20, "memory", list(range(20)))
    assert int8.dev_scores(model, {"a": rows})["a"]["accuracy"] == pytest.approx(0.95)
    scores = int8.dev_scores(untraced(model), {"a": rows})["a"]
    assert scores["accuracy"] == pytest.approx(0.95)
