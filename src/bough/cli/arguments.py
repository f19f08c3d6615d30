"""What several verbs take on the command line, and how a verb ends that did not do as asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from bough.safe_text import shown

ModelPath = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="A run directory, a model folder, an ONNX folder or a hub id."
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


def fail(sentence: str, code: int) -> NoReturn:
    """End with one sentence and this exit code."""
    print(f"bough: {shown(sentence)}", file=sys.stderr)
    raise SystemExit(code) from None
