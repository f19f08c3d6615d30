"""The examples run: the notebook from its first cell to its last, and every script."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from bough.model.pretrained import Encoder
from tests import serving

EXAMPLES = Path(__file__).parent.parent / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.name)
def test_the_notebook_runs(file: Path, minilm: Encoder, tmp_path: Path) -> None:
    notebook = nbformat.read(file, as_version=4)
    printed = [cell for cell in notebook.cells if cell.get("outputs")]
    assert not printed, "outputs are not kept: they would be old before long"
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=900, resources=where).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = ["".join(out.get("text", "") for out in cell.outputs) for cell in cells]
    assert "recipe.yaml" in shown[1]
    assert "sentiment" in shown[2]
    assert "Answer(" in shown[3]
    assert "separate" in shown[4]


SCRIPTS = ("two_tasks", "one_table", "entities", "frames", "other_language")
# What each prints, with an encoder that knows nothing: the form, not the answers.
PRINTED = {
    "two_tasks": ["mood: ", "same: ", "mood: accuracy "],
    "one_table": ["topic: ", "stars: ", "tags: (", "hours: "],
    "entities": ["names: [", "topic: ", "mood: "],
    "frames": ["mood.score", "minutes", "I fell asleep."],
    "other_language": ["Wunderschön! ", "ひどい。 "],
}


def test_every_script_is_run() -> None:
    there = {file.stem for file in EXAMPLES.iterdir() if file.suffix in (".py", ".mjs")}
    assert there == {*SCRIPTS, "ask_server"}
    assert set(PRINTED) == set(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_runs(name: str, tiny_folder: Path, tmp_path: Path) -> None:
    said = run([sys.executable, EXAMPLES / f"{name}.py", tiny_folder], tmp_path)
    for words in PRINTED[name]:
        assert words in said


def test_a_server_is_asked_alike_from_python_and_from_javascript(tmp_path: Path) -> None:
    serving.model().save(tmp_path / "model")
    with serving.served(tmp_path / "model") as server:
        asked = [
            run([sys.executable, EXAMPLES / "ask_server.py", server.url], tmp_path),
            run(["node", EXAMPLES / "ask_server.mjs", server.url], tmp_path),
        ]
    one, other = ([line.split(" ", 1) for line in said.splitlines()] for said in asked)
    assert len(one) == len(other) == 2 * len(serving.TASKS)
    assert [name for name, _ in one] == [name for name, _ in other]
    for (_, mine), (_, theirs) in zip(one, other, strict=True):
        assert values(mine) == values(theirs)


def values(said: str) -> list[Any]:
    """The JSON values of a line; the two languages write 5.0 differently."""
    decoder, found = json.JSONDecoder(), []
    while said := said.strip():
        value, end = decoder.raw_decode(said)
        found.append(value)
        said = said[end:]
    return found


def run(command: Sequence[str | Path], folder: Path) -> str:
    """What a command prints; what it says of its progress goes elsewhere."""
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
