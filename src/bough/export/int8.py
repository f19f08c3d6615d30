"""Weights in int8, and whether they answer nearly as well: held against the run's own dev rows.

Matrices are rounded channel by channel and tables as a whole by onnxruntime, inputs as they come
(dynamic quantisation).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import quantize_dynamic

from bough.data.checked_rows import Rows
from bough.data.dataset import Data
from bough.errors import UserError
from bough.inference.evaluation import evaluated
from bough.inference.model import Model
from bough.inference.precision.int8_scores import changes
from bough.runs.run_dir import Run
from bough.scoring.tolerance import within

Tell = Callable[[str], None]
Scores = dict[str, dict[str, Any]]


def rounded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with its large weights in int8."""
    # The exporter has done what onnxruntime would otherwise ask for, and warn of.
    onnx.helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        quantize_dynamic(
            model,
            file,
            op_types_to_quantize=["MatMul", "Gather"],
            per_channel=True,
            reduce_range=True,  # 7 of 8 bits: processors without VNNI overflow on all 8
        )
        return onnx.load(file)


def dev_rows(source: str | Path) -> dict[str, Rows]:
    """The labelled dev rows of every task of a run."""
    try:
        run = Run.open(source)
    except UserError:
        raise UserError(
            f"{source}: int8 is held against the dev rows of a run, and this is no run directory; "
            "export the run itself, or leave --int8 out"
        ) from None
    data = Data.gather(run.recipe(), ["dev"])
    rows = {name: splits["dev"] for name, splits in data.rows.items() if "dev" in splits}
    missing = [name for name in data.tasks if name not in rows or rows[name].labels is None]
    if missing:
        raise UserError(
            f"{run.folder}: task {missing[0]!r} has no labelled dev rows to hold int8 against; "
            "give it some, or leave --int8 out"
        )
    return rows


def check(
    fp32: Model, int8: Model, rows: Mapping[str, Rows], tolerance: float, tell: Tell
) -> Scores:
    """The dev scores in int8; a UserError if a task lost more than it may."""
    before, after = dev_scores(fp32, rows), dev_scores(int8, rows)
    found = changes(fp32, before, after)
    for change in found:
        tell(str(change))
    worse = [change for change in found if not within(change.drop, tolerance)]
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
    scores: Scores = evaluated(model, rows).scores["tasks"]
    return scores
