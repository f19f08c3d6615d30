"""What several verbs take on the command line, and how a verb ends that did not do as asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from bough.processes import speaks
from bough.safe_text import shown

ModelPath = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="A run directory, a model folder, an ONNX folder or a hub id."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def fail(sentence: str, code: int) -> NoReturn:
    """End with one sentence and this exit code; of processes started together, one says it."""
    if speaks():
        print(f"bough: {shown(sentence)}", file=sys.stderr)
    raise SystemExit(code) from None
