"""Leaving bough: a run's model as ONNX with all tasks in one graph, or in transformers' form.

An export is complete or not there: it is written aside and renamed at the end. An int8 model has
first to show on the run's own dev rows that it answers nearly as well.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bough
from bough.data.dataset import Data
from bough.data.rows import Rows
from bough.data.tokens import Text, text_of
from bough.errors import UserError
from bough.inference.folder import save_metadata
from bough.inference.load import load_torch
from bough.inference.model import Model
from bough.inference.onnx_model import load as load_onnx
from bough.inference.onnx_names import PAIRS_FILE, TEXTS_FILE
from bough.inference.torch_model import MultiTaskModel
from bough.model.losses import answers
from bough.recipe.recipe import Recipe
from bough.runs.run_dir import Run
from bough.scoring.metrics import judged

if TYPE_CHECKING:
    from onnx import ModelProto

PROBE: dict[bool, Text] = {False: "A text.", True: ("A text.", "Another text.")}  # a pair?
LARGEST = 1_900_000_000  # bytes in one file; protobuf ends at 2 GB
Tell = Callable[[str], None]
Scores = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Change:
    """A task's score before and after rounding to int8."""

    task: str
    metric: str
    before: float
    after: float

    @property
    def drop(self) -> float:
        return self.before - self.after

    def __str__(self) -> str:
        scores = f"{self.metric} fp32 {self.before:.4f}  int8 {self.after:.4f}"
        return f"{self.task}: {scores}  change {self.after - self.before:+.4f}"


def write_onnx(
    source: str | Path,
    folder: str | Path,
    *,
    int8: bool = False,
    tolerance: float = 0.01,
    tell: Tell = print,
) -> Path:
    """The model of a run or folder as ONNX; with `int8` only if no task's dev score drops more."""
    model = load_torch(source)
    rows = _dev_rows(source) if int8 else {}
    with new_folder(folder) as part:
        export_model(model, part, int8)
        written = load_onnx(part)
        written.predict([PROBE[form] for form in {task.paired for task in model.tasks.values()}])
        if int8:
            scores = _check(model, written, rows, tolerance, tell)
            written.facts["scores"] = {"dev": {"tasks": scores}}
            save_metadata(written, part)
    return Path(folder)


def export_model(model: MultiTaskModel, folder: Path, int8: bool = False) -> None:
    """The folder's files: graphs, tokenizer, config, card."""
    try:
        from bough.export.onnx_graph import write_pairs, write_texts
    except ImportError:
        raise UserError("onnx is not installed; pip install 'bough[export]'") from None
    told = {
        "bough": bough.__version__,
        "plan": model.plan.text,
        "tasks": ",".join(model.tasks),
        "weights": "int8" if int8 else "fp32",
    }
    _save(write_texts(model.network, told, int8), folder / TEXTS_FILE)
    pairs = write_pairs(model.network, told)
    if pairs is not None:
        _save(pairs, folder / PAIRS_FILE)
    facts = {**model.facts, "runtime": "onnx", "weights": told["weights"]}
    if facts.get("cost"):
        size = sum(file.stat().st_size for file in folder.glob("*.onnx*"))
        facts["cost"] = {**facts["cost"], "bytes_to_serve": size}
    if int8:
        facts.pop("scores", None)  # those of fp32
    save_metadata(replace(model, facts=facts), folder)


def _save(graph: ModelProto, file: Path) -> None:
    import onnx

    if sum(4 * math.prod(weight.dims) for weight in graph.graph.initializer) < LARGEST:
        onnx.save_model(graph, file)
    else:
        onnx.save_model(graph, file, save_as_external_data=True, location=f"{file.name}.data")


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """A folder to fill that takes its name only when all went well."""
    folder = Path(folder).expanduser().absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(
            f"{folder}: already there and not an empty folder; choose another, or remove it"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        yield part
        part.chmod(0o777 & ~_umask())
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _umask() -> int:
    """What new folders are kept from; asking the system means setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


# Is int8 good enough?


def _dev_rows(source: str | Path) -> dict[str, Rows]:
    try:
        run = Run.open(source)
    except UserError:
        raise UserError(
            f"{source}: int8 is held against the dev rows of a run, and this is no run directory; "
            "export the run itself, or leave --int8 out"
        ) from None
    data = Data.gather(Recipe.read(run.recipe_file), ["dev"])
    rows = {name: own["dev"] for name, own in data.rows.items() if "dev" in own}
    missing = [name for name in data.tasks if name not in rows or rows[name].labels is None]
    if missing:
        raise UserError(
            f"{run.folder}: task {missing[0]!r} has no labelled dev rows to hold int8 against; "
            "give it some, or leave --int8 out"
        )
    return rows


def _check(
    model: Model, written: Model, rows: Mapping[str, Rows], tolerance: float, tell: Tell
) -> Scores:
    """The dev scores of what was written; a Mistake if a task lost more than it may."""
    before, after = dev_scores(model, rows), dev_scores(written, rows)
    changes = [
        Change(name, metric, before[name][metric], after[name][metric])
        for name, metric in ((name, model.tasks[name].metric_name) for name in rows)
    ]
    for change in changes:
        tell(str(change))
    # A score that is no number is never better than another: it must not slip through.
    worse = [change for change in changes if not change.drop <= tolerance]
    if worse:
        worst = max(worse, key=lambda change: change.drop)
        raise UserError(
            f"int8 costs task {worst.task!r} {worst.drop:.4f} of its dev {worst.metric} on "
            f"{len(rows[worst.task]):,} rows, and --tolerance is {tolerance:g}; nothing was "
            f"written: allow more of it, or leave --int8 out"
        )
    return after


def dev_scores(model: Model, rows: Mapping[str, Rows]) -> Scores:
    """Each task's scores on its rows, whatever runs the model."""
    out = {}
    for name, own in rows.items():
        task = model.tasks[name]
        texts = [text_of(parts) for parts in own.texts]
        asked = [(name,)] * len(texts)
        numbers, outputs = model.outputs(*model.forms(texts, asked), asked)[name]
        found: dict[int, Any] = dict(zip(numbers, answers(task, outputs)[0].tolist(), strict=True))
        predicted = np.array([found[number] for number in range(len(texts))])
        out[name] = judged(task, predicted, np.array(own.labels), intervals=True)
    return out
