"""The notebook runs from its first cell to its last, and is kept without what it printed."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from bough.model.pretrained import Encoder

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))


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
