"""bough export: a trained model in other forms."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bough.cli.arguments import Threads, TrainedPath, settle_threads
from bough.errors import UserError


def export(
    run: TrainedPath,
    onnx: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write all tasks as one ONNX graph.")
    ] = None,
    transformers: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a checkpoint for transformers.")
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Weights in int8, if the dev scores allow it.")
    ] = False,
    tolerance: Annotated[
        float, typer.Option(min=0, help="How much of a dev score int8 may cost a task.")
    ] = 0.01,
    task: Annotated[
        str | None, typer.Option(metavar="T", help="For transformers: this task, or its trunk.")
    ] = None,
    trunk: Annotated[
        bool, typer.Option("--trunk", help="For transformers: only the trunk of --task.")
    ] = False,
    threads: Threads = None,
) -> None:
    """Write a model for other runtimes."""
    if (onnx is None) == (transformers is None):
        raise UserError("give either --onnx DIR or --transformers DIR")
    if onnx is not None:
        if task is not None or trunk:
            raise UserError("--task and --trunk are for --transformers; ONNX has all tasks at once")
        from bough.export.onnx_export import write_onnx

        settle_threads(threads)
        folder = write_onnx(run, onnx, int8=int8, tolerance=tolerance)
        print(f"{folder}: serve it with: bough serve {folder}")
        return
    assert transformers is not None
    if int8:
        raise UserError("--int8 is for --onnx; a checkpoint for transformers is in fp32")
    from bough.export.transformers_export import write_transformers

    settle_threads(threads)
    print(write_transformers(run, transformers, task, trunk))
