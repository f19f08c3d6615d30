"""Leaving bough as its users do: `bough export`, then `bough serve --runtime onnx` and transformers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bough.asking import Text
from bough.model import load
from bough.runs import Run

from . import folders
from .serving import Client, served

BOUGH = Path(sys.executable).parent / "bough"
PLAN = "split@1, pal:8, feed:sentiment>similarity"
TEXTS: list[Text] = [
    "A warm and clever film.",
    ("How old is he?", "What is his age, if one may ask?"),
    "Bad.",
    ("A man is slicing bread.", "A dog runs along the beach."),
]
CLOSE = 1e-4


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from bough.training import train

    folder = tmp_path_factory.mktemp("run")
    made = folders.encoder(folder / "encoder", width=128)
    rows = folders.data(folder / "data")
    recipe = folders.recipe(made, rows=rows, steps=6, plan=PLAN, evaluate_rows=8)
    trained: Run = train(recipe, folder / "run")
    return trained.folder


def bough(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BOUGH, *words], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )


def closely(a: Any, b: Any) -> bool:
    """The same words, and numbers within what exports may differ by."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(closely(a[key], b[key]) for key in a)
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) < CLOSE
    return bool(a == b)


@pytest.fixture(scope="module")
def graph(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out") / "onnx"
    told = bough("export", run, "--onnx", folder)
    assert told.returncode == 0, told.stderr
    assert told.stdout == f"{folder}\n"
    return folder


def test_both_runtimes_serve_the_same_answers(run: Path, graph: Path) -> None:
    offline = [{t: a.plain() for t, a in each.items()} for each in load(run).predict(TEXTS)]
    for folder, runtime in ((run, "torch"), (graph, "onnx")):
        with served(folder, "--runtime", runtime) as server:
            client = Client(server.url)
            together = client.ask(TEXTS)
            assert together.status == 200
            assert all(map(closely, together.json["answers"], offline))
            alone = client.ask(TEXTS[1:2], tasks=["similarity"])
            assert closely(alone.json["answers"][0]["similarity"], offline[1]["similarity"])
            assert client.get("/tasks").json["plan"] == load(run).plan.text
            client.close()


def test_what_the_onnx_runtime_does_not_serve(run: Path, graph: Path) -> None:
    for words, said in (
        ([run, "--runtime", "onnx"], "bough export RUN --onnx"),
        ([graph], "--runtime onnx"),
        ([graph, "--runtime", "onnx", "--device", "cuda"], "onnx on the cpu"),
        ([graph, "--runtime", "tensorrt"], "expected torch, or onnx"),
    ):
        told = bough("serve", *words, "--port", "0")
        assert told.returncode == 2, told.stderr
        assert said in told.stderr
        assert told.stderr.count("\n") == 1


def test_int8_is_reported_and_then_accepted_or_not(run: Path, tmp_path: Path) -> None:
    told = bough("export", run, "--onnx", tmp_path / "int8", "--int8", "--tolerance", "2")
    assert told.returncode == 0, told.stderr
    *changes, last = told.stdout.splitlines()
    assert last == str(tmp_path / "int8")
    form = r"(\w+): (accuracy|pearson) fp32 -?\d\.\d{4}  int8 -?\d\.\d{4}  change [+-]\d\.\d{4}"
    assert [re.fullmatch(form, line)[1] for line in changes] == list(folders.TASKS)  # type: ignore[index]
    # The least drop that rounding can cause is more than this.
    told = bough("export", run, "--onnx", tmp_path / "strict", "--int8", "--tolerance", "-3")
    assert told.returncode == 2
    drops = [float(line.split()[-1]) for line in changes]
    if min(drops) < 0:
        told = bough("export", run, "--onnx", tmp_path / "strict", "--int8", "--tolerance", "0")
        assert told.returncode == 2
        assert told.stdout.splitlines() == changes  # said before it is refused
        assert "nothing was written" in told.stderr
    assert {file.name for file in tmp_path.iterdir()} == {"int8"}


def test_transformers_loads_what_was_written(run: Path, tmp_path: Path) -> None:
    """In a process of its own, that has never heard of bough."""
    model = load(run)
    for task, text in (("sentiment", TEXTS[0]), ("similarity", TEXTS[1])):
        folder = tmp_path / task
        told = bough("export", run, "--transformers", folder, "--task", task)
        assert told.returncode == 0, told.stderr
        assert "trust_remote_code=True" in told.stdout
        page = (folder / "README.md").read_text(encoding="utf-8")
        (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        words = text if isinstance(text, tuple) else (text,)
        code = re.sub(r"tokenizer\(.*, truncation", f"tokenizer(*{words!r}, truncation", code)
        code = f"import sys; sys.modules['bough'] = None\n{code}\nimport json; print(json.dumps(answer))"
        environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules")}
        found = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True,
            env=environment | {"OMP_NUM_THREADS": "1"}, check=True,
        )  # fmt: skip
        answer = json.loads(found.stdout.splitlines()[-1])
        truth = model.predict(text, task)[task]
        if truth.probabilities is None:
            assert truth.value == pytest.approx(min(max(answer, 0), 5), abs=CLOSE)
        else:
            assert answer == pytest.approx(truth.probabilities, abs=CLOSE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "either --onnx DIR or --transformers DIR"),
        (["--onnx", "a", "--transformers", "b"], "either --onnx DIR or --transformers DIR"),
        (["--onnx", "a", "--task", "sentiment"], "ONNX has all tasks at once"),
        (["--transformers", "a", "--int8"], "--int8 is for --onnx"),
        (["--transformers", "a"], "different trunks; choose one with --task"),
        (["--transformers", "a", "--task", "sentimant"], "did you mean 'sentiment'"),
        (["--transformers", "a", "--trunk"], "name it with --task"),
    ],
)
def test_mistakes(words: list[str], said: str, run: Path, tmp_path: Path) -> None:
    made = [str(tmp_path / word) if word in ("a", "b") else word for word in words]
    told = bough("export", run, *made)
    assert told.returncode == 2
    assert said in told.stderr
    assert told.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_full_folder_is_left_alone(run: Path, graph: Path) -> None:
    before = {file.name: file.stat().st_mtime_ns for file in graph.iterdir()}
    told = bough("export", run, "--onnx", graph)
    assert told.returncode == 2
    assert "already there" in told.stderr
    assert {file.name: file.stat().st_mtime_ns for file in graph.iterdir()} == before
