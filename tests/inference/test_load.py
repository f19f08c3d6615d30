"""One way to open a model: a run, a folder or a hub id, for torch or for onnxruntime."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bough.errors import UserError
from bough.export.onnx_export import write_onnx
from bough.inference.load import load, load_torch
from bough.inference.onnx_model import OnnxModel
from bough.inference.torch_model import MultiTaskModel
from bough.runs.run_dir import Run
from tests.inference.texts import TEXTS, close


@pytest.fixture(scope="module")
def onnx_folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_onnx(run.folder, tmp_path_factory.mktemp("onnx") / "folder")


def test_all_that_can_be_opened(run: Run, onnx_folder: Path) -> None:
    answers = load(run).predict(TEXTS)
    for source in (run.folder, str(run.folder), run.model, str(run.model)):
        assert isinstance(load(source), MultiTaskModel)
        assert load(source).predict(TEXTS) == answers
    for source in (onnx_folder, str(onnx_folder)):
        model = load(source, threads=1)
        assert isinstance(model, OnnxModel)
        assert all(close(a, b) for a, b in zip(model.predict(TEXTS), answers, strict=True))


def test_an_onnx_folder_has_no_weights_for_torch(onnx_folder: Path) -> None:
    with pytest.raises(UserError, match="torch cannot read; name the run it came from"):
        load_torch(onnx_folder)
    with pytest.raises(UserError, match="an ONNX export is run on the cpu, not on cuda"):
        load(onnx_folder, device="cuda")
    assert load(onnx_folder, device="auto").tasks


@pytest.mark.parametrize("threads", [0, -1])
def test_a_pass_has_a_thread(threads: int, run: Run, onnx_folder: Path) -> None:
    for source in (run.folder, onnx_folder):
        with pytest.raises(UserError, match=f"threads is {threads}; expected 1 or more"):
            load(source, threads=threads)


def test_without_onnxruntime(onnx_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(
        UserError, match=r"the ONNX runtime is not installed; pip install .*onnxruntime"
    ):
        load(onnx_folder)


def test_a_new_process_gives_the_same_bits(run: Run, model: MultiTaskModel) -> None:
    code = (
        "import json, sys, torch, bough; torch.set_num_threads(1)\n"
        "texts = [tuple(t) if isinstance(t, list) else t for t in json.load(sys.stdin)]\n"
        "found = bough.load(sys.argv[1]).predict(texts)\n"
        "print(json.dumps([{k: a.plain() for k, a in f.items()} for f in found]))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(run.folder)], input=json.dumps(TEXTS), text=True,
        capture_output=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    here = [{k: a.plain() for k, a in found.items()} for found in model.predict(TEXTS)]
    assert json.loads(told.stdout) == here, "floats are written so that they come back the same"


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.json", "{", r"config.json: not a bough model's config \(JSONDecodeError"),
        ("config.json", "{}", r"not a bough model's config: plan is missing"),
        ("config.json", "[]", r"not a bough model's config: the config is \[\]; expected keys"),
        ("config.json", None, "no model there; expected a run or a folder with model.safetensors"),
        ("model.safetensors", None, "no model there"),
        ("model.safetensors", "cut", r"model.safetensors: cannot be read"),
        ("tokenizer.json", None, "tokenizer.json"),
        ("tokenizer.json", "{", "tokenizer.json"),
    ],
)
def test_broken_folders(
    file: str, content: str | None, said: str, model: MultiTaskModel, tmp_path: Path
) -> None:
    folder = model.save(tmp_path / "model")
    if content is None:
        (folder / file).unlink()
    elif content == "cut":
        (folder / file).write_bytes((folder / file).read_bytes()[:5000])
    else:
        (folder / file).write_text(content)
    with pytest.raises(UserError, match=said) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_weights_of_another_plan(model: MultiTaskModel, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["plan"] = "separate"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"model.safetensors: does not fit .*config.json") as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_a_model_is_its_own_whatever_becomes_of_the_file(
    model: MultiTaskModel, tmp_path: Path
) -> None:
    """The file overwritten in place, as `cp` does it; a mapped one would change with it."""
    folder = model.save(tmp_path / "model")
    file = folder / "model.safetensors"
    opened = load(folder)
    before = opened.predict(TEXTS)
    size = file.stat().st_size
    with open(file, "r+b") as raw:
        raw.seek(size // 2)
        raw.write(b"\x01" * (size - size // 2))
    assert opened.predict(TEXTS) == before
    assert opened.facts["sha256"] != hashlib.sha256(file.read_bytes()).hexdigest()
