"""What several verbs take on the command line, and how a verb ends that did not do as asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from bough.distributed import speaks
from bough.machine_limits import cores, free_cores
from bough.safe_text import shown

ModelPath = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="A run directory, a model folder, an ONNX folder or a hub id."
    ),
]
TrainedPath = Annotated[  # whose weights torch reads
    Path, typer.Argument(metavar="RUN", help="A run directory, a model folder or a hub id.")
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="CPU threads; else as many as others leave free."),
]
PrecisionName = Annotated[
    str,
    typer.Option(
        metavar="P", help="Of the trunk's products: fp32, bf16, int8, or auto, the faster of two."
    ),
]
TaskNames = Annotated[
    list[str] | None, typer.Option("--task", metavar="T", help="Only this task (repeatable).")
]
TextColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--text", metavar="COLUMN", help="A table's text, if not by its name (twice: a pair)."
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip", help="Leave out rows that cannot be read, and name them.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def settle_threads(
    asked: int | None, usual: int | None = None, announce: Callable[[str], None] | None = None
) -> int | None:
    """Torch's threads in this process: as asked, as OMP_NUM_THREADS says, as usual or as is free.

    Returns their number, or None where it is the environment's. What computes for long is to
    `announce` that others leave it a part of the machine only.
    """
    if asked is None and "OMP_NUM_THREADS" in os.environ:
        return None
    number = asked or usual
    if number is None:
        number, every = free_cores(), cores()
        if announce is not None and number < every:
            announce(
                f"other work keeps this machine busy: {number} of {every} cores used here; "
                f"--threads {every} takes its share of all"
            )
    import torch

    torch.set_num_threads(number)
    return number


def fail(sentence: str, code: int) -> NoReturn:
    """End with one sentence and this exit code; of processes started together, one says it."""
    if speaks():
        print(f"bough: {shown(sentence)}", file=sys.stderr)
    raise SystemExit(code) from None
