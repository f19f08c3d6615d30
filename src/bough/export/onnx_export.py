"""A model as an ONNX folder: all tasks in one graph, the tokenizer, a config and a card.

An export is complete or not there: it is written aside and renamed when a text has been answered
from it. An int8 model has first to show on the run's own dev rows that it answers nearly as well.
"""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import bough
from bough.data.tokens import Text
from bough.errors import UserError
from bough.export.folder import check_leaves, new_folder
from bough.extras import install_line
from bough.inference.folder import save_metadata
from bough.inference.load import load_torch
from bough.inference.onnx_model import graphs_digest
from bough.inference.onnx_model import load as load_onnx
from bough.inference.onnx_names import PAIRS_FILE, TEXTS_FILE
from bough.inference.torch_model import MultiTaskModel

if TYPE_CHECKING:
    from onnx import ModelProto

    from bough.export.int8 import Tell

PROBE: dict[bool, Text] = {False: "A text.", True: ("A text.", "Another text.")}  # a pair?
LARGEST = 1_900_000_000  # bytes in one file; protobuf ends at 2 GB


def write_onnx(
    source: str | Path,
    folder: str | Path,
    *,
    int8: bool = False,
    tolerance: float = 0.01,
    tell: Tell = print,
) -> Path:
    """The model of a run or folder as ONNX; with `int8` only if no task's dev score drops more."""
    _check_installed()
    from bough.export.int8 import check, dev_rows

    model = load_torch(source)
    check_leaves(model.network.shape, "ONNX")
    rows = dev_rows(source) if int8 else {}
    with new_folder(folder) as part:
        write_files(model, part, int8)
        written = load_onnx(part)
        written.predict([PROBE[pair] for pair in {task.paired for task in model.tasks.values()}])
        if int8:
            scores = check(model, written, rows, tolerance, tell)
            written.facts["scores"] = {"dev": {"tasks": scores}}
            save_metadata(written, part)
    return Path(folder)


def write_files(model: MultiTaskModel, folder: Path, int8: bool = False) -> None:
    """The folder's files: graphs, tokenizer, config, card."""
    _check_installed()
    from bough.export.int8 import rounded
    from bough.export.onnx_graph import pairs_graph, texts_graph

    weights = "int8" if int8 else "fp32"
    metadata = {
        "bough": bough.__version__,
        "plan": model.plan.text,
        "tasks": ",".join(model.tasks),
        "weights": weights,
    }
    _save(texts_graph(model.network, metadata, rounded if int8 else None), folder / TEXTS_FILE)
    pairs = pairs_graph(model.network, metadata)
    if pairs is not None:
        _save(pairs, folder / PAIRS_FILE)
    facts = {**model.facts, "runtime": "onnx", "weights": weights, "sha256": graphs_digest(folder)}
    if facts.get("cost"):
        size = sum(file.stat().st_size for file in folder.glob("*.onnx*"))
        facts["cost"] = {**facts["cost"], "bytes_to_serve": size}
    if int8:
        for key in ("scores", "calibration"):  # those of fp32
            facts.pop(key, None)
    save_metadata(replace(model, facts=facts), folder)


def _check_installed() -> None:
    for name in ("onnx", "onnxruntime", "onnxscript"):
        if find_spec(name) is None:
            raise UserError(f"{name} is not installed; {install_line('export')}")


def _save(graph: ModelProto, file: Path) -> None:
    import onnx

    if sum(4 * math.prod(weight.dims) for weight in graph.graph.initializer) < LARGEST:
        onnx.save_model(graph, file)
    else:
        onnx.save_model(graph, file, save_as_external_data=True, location=f"{file.name}.data")
