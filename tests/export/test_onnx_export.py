"""An ONNX folder is complete, tells what it is, or is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.errors import UserError
from bough.export import onnx_export
from bough.export.onnx_export import write_onnx
from bough.inference import onnx_model
from bough.inference.load import load_torch
from tests import tiny
from tests.exports import CLOSE, TASKS, exported, mixed, model_of, sentences, worst


@pytest.mark.parametrize("int8", [False, True])
def test_the_card_is_of_what_was_written(int8: bool, run: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    out = write_onnx(run, tmp_path / "x", int8=int8, tolerance=1, tell=lines.append)
    body = (out / "README.md").read_text(encoding="utf-8")
    assert "bough serve FOLDER\n" in body
    code = body.split("```python\n")[1].split("```")[0]
    exec(code.replace('"this folder"', repr(str(out))), {})
    size = sum(file.stat().st_size for file in out.glob("*.onnx"))
    assert f"{size / 2**20:,.0f} MiB to serve{' in int8' * int8}" in body
    written = onnx_model.load(out, threads=1)
    scores = written.facts["scores"]["dev"]["tasks"]
    if not int8:
        assert scores == load_torch(run).facts["scores"]["dev"]["tasks"]
        return
    assert written.facts["scores"].keys() == {"dev"}
    for line in lines:  # "questions: accuracy fp32 0.5000  int8 0.6000  change +0.1000"
        name, metric, *_, after, _, _ = line.replace(":", "").split()
        assert f"{scores[name][metric]:.4f}" == after
        assert f"| dev | {name} | {metric} | {scores[name][metric]:.3f} |" in body


def test_large_graphs_keep_their_weights_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_export, "LARGEST", 1000)
    model = model_of("full", TASKS, layers=1)
    other = exported(model, tmp_path)
    assert (tmp_path / "model.onnx.data").is_file()
    assert worst(model, other, mixed()) < CLOSE


def test_a_graph_that_cannot_be_run_is_not_left_behind(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_export, "_save", lambda _, file: file.write_bytes(b"not a graph"))
    with pytest.raises(UserError, match="onnxruntime cannot read it"):
        write_onnx(run, tmp_path / "onnx")
    assert list(tmp_path.iterdir()) == []


def test_an_export_has_the_models_temperature(tmp_path: Path) -> None:
    tasks = {"a": tiny.task(temperature=3.0), "b": tiny.task(labels=("no", "yes"), temperature=0.5)}
    model = model_of("full", tasks)
    written = exported(model, tmp_path / "onnx")
    for text in sentences(5):
        for name, answer in model.predict(text).items():
            theirs = written.predict(text)[name].probabilities
            assert theirs == pytest.approx(dict(answer.probabilities or {}), abs=CLOSE)
    cold = model_of(
        "full", {n: t.model_copy(update={"temperature": None}) for n, t in tasks.items()}
    )
    hot, plain = model.predict("the old tree")["a"], cold.predict("the old tree")["a"]
    assert (hot.score or 1) < (plain.score or 0)
