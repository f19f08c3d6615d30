"""The verbs of the command line: each parses its words, calls a room and prints what came of it.

All are loaded for every `--help`; what takes time to load is imported by the verb that needs it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

RunPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run directory, a model folder or a hub id.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def fail(sentence: str, code: int) -> NoReturn:
    """End with one sentence and this exit code."""
    print(f"bough: {sentence}", file=sys.stderr)
    raise SystemExit(code) from None
