"""Leaving bough as users do: `bough export`, `bough serve` of an ONNX folder, transformers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bough.cli import main
from bough.export import int8
from bough.inference.load import load
from bough.inference.model import Text
from bough.runs.run_dir import Run
from tests import folders
from tests.serving import Client, served

QUIET = os.environ | {"OMP_NUM_THREADS": "1"}
PLAN = "split@1, pal:8, feed:sentiment>similarity"
TEXTS: list[Text] = [
    "A warm and clever film.",
    ("How old is he?", "What is his age, if one may ask?"),
    "Bad.",
    ("A man is slicing bread.", "A dog runs along the beach."),
]
CLOSE = 1e-4


@pytest.fixture(scope="module")
def branched_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from bough.training.train import train

    folder = tmp_path_factory.mktemp("run")
    made = folders.encoder(folder / "encoder", width=128)
    rows = folders.data(folder / "data")
    recipe = folders.recipe(made, rows=rows, steps=6, plan=PLAN, evaluate_rows=8)
    trained: Run = train(recipe, folder / "run")
    return trained.folder


class Told(NamedTuple):
    code: int
    out: str
    err: str


Bough = Callable[..., Told]


@pytest.fixture
def bough(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bough:
    """The command in this process."""

    def call(*words: str | Path) -> Told:
        monkeypatch.setattr(sys, "argv", ["bough", *map(str, words)])
        code = 0
        try:
            main.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Told(code, *capsys.readouterr())

    return call


def closely(a: Any, b: Any) -> bool:
    """The same words, and numbers within what exports may differ by."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(closely(a[key], b[key]) for key in a)
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) < CLOSE
    return bool(a == b)


@pytest.fixture(scope="module")
def graph(branched_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out") / "onnx"
    words = [sys.executable, "-m", "bough", "export", str(branched_run), "--onnx", str(folder)]
    told = subprocess.run(words, capture_output=True, text=True, env=QUIET, check=True)
    assert told.stdout == f"{folder}: serve it with: bough serve {folder}\n"
    return folder


def test_both_runtimes_serve_the_same_answers(branched_run: Path, graph: Path) -> None:
    offline = [
        {t: a.plain() for t, a in each.items()} for each in load(branched_run).predict(TEXTS)
    ]
    for folder in (branched_run, graph):
        with served(folder) as server:
            client = Client(server.url)
            together = client.ask(TEXTS)
            assert together.status == 200
            assert all(map(closely, together.json["answers"], offline))
            alone = client.ask(TEXTS[1:2], tasks=["similarity"])
            assert closely(alone.json["answers"][0]["similarity"], offline[1]["similarity"])
            assert client.get("/tasks").json["plan"] == load(branched_run).plan.text
            client.close()


def test_an_onnx_folder_is_served_on_the_cpu_only(graph: Path, bough: Bough) -> None:
    told = bough("serve", graph, "--device", "mps", "--port", "0")
    assert told.code == 2, told.err
    assert "set it to cpu" in told.err
    assert told.err.count("\n") == 1


def test_int8_is_reported_and_accepted(run: Path, tmp_path: Path, bough: Bough) -> None:
    told = bough("export", run, "--onnx", tmp_path / "int8", "--int8", "--tolerance", "2")
    assert told.code == 0, told.err
    *changes, last = told.out.splitlines()
    assert last.startswith(f"{tmp_path / 'int8'}: serve it with: ")
    form = r"(\w+): (accuracy|pearson) fp32 -?\d\.\d{4}  int8 -?\d\.\d{4}  change [+-]\d\.\d{4}"
    assert [re.fullmatch(form, line)[1] for line in changes] == list(folders.TASKS)  # type: ignore[index]


def test_int8_that_costs_too_much_is_refused(
    run: Path, tmp_path: Path, bough: Bough, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real scores of fp32 first, then those of an int8 model that has lost a fifth of one task."""
    real, calls = int8.dev_scores, []

    def scores(*asked: Any) -> int8.Scores:
        calls.append(real(*asked))
        kept = calls[0]["questions"]
        lost = {**kept, "accuracy": kept["accuracy"] - 0.2}
        return calls[0] if len(calls) == 1 else calls[0] | {"questions": lost}

    monkeypatch.setattr(int8, "dev_scores", scores)
    told = bough("export", run, "--onnx", tmp_path / "int8", "--int8")
    assert told.code == 2
    assert "change -0.2000" in told.out  # said before it is refused
    assert "int8 costs task 'questions' 0.2000 of its dev accuracy" in told.err
    assert told.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_transformers_loads_what_was_written(
    branched_run: Path, tmp_path: Path, bough: Bough
) -> None:
    """In a process of its own, that has never heard of bough."""
    model = load(branched_run)
    for task, text in (("sentiment", TEXTS[0]), ("similarity", TEXTS[1])):
        folder = tmp_path / task
        told = bough("export", branched_run, "--transformers", folder, "--task", task)
        assert told.code == 0, told.err
        assert "trust_remote_code=True" in told.out
        page = (folder / "README.md").read_text(encoding="utf-8")
        (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        words = text if isinstance(text, tuple) else (text,)
        code = re.sub(r"tokenizer\(.*, truncation", f"tokenizer(*{words!r}, truncation", code)
        code = f"import json, sys; sys.modules['bough'] = None\n{code}\nprint(json.dumps(answer))"
        environment = QUIET | {"HF_MODULES_CACHE": str(tmp_path / "modules")}
        found = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True,
            env=environment, check=True,
        )  # fmt: skip
        answer = json.loads(found.stdout)  # and nothing else, such as a question
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
def test_mistakes(
    words: list[str], said: str, branched_run: Path, tmp_path: Path, bough: Bough
) -> None:
    made = [str(tmp_path / word) if word in ("a", "b") else word for word in words]
    told = bough("export", branched_run, *made)
    assert told.code == 2
    assert said in told.err
    assert told.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_full_folder_is_left_alone(branched_run: Path, graph: Path, bough: Bough) -> None:
    before = {file.name: file.stat().st_mtime_ns for file in graph.iterdir()}
    told = bough("export", branched_run, "--onnx", graph)
    assert told.code == 2
    assert "already there" in told.err
    assert {file.name: file.stat().st_mtime_ns for file in graph.iterdir()} == before
