"""bough predict: a trained model answers files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bough.cli.arguments import ModelPath, Threads, settle_threads
from bough.errors import UserError, shorten


def predict(
    run: ModelPath,
    file: Annotated[
        str,
        typer.Argument(
            metavar="[FILE|-]", help="Texts: .txt, .csv, .tsv, .jsonl, .parquet; - for stdin."
        ),
    ] = "-",
    task: Annotated[
        list[str] | None, typer.Option("--task", metavar="T", help="Only this task (repeatable).")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            "--text", metavar="COLUMN", help="A table's text, if not by its name (twice: a pair)."
        ),
    ] = None,
    skip: Annotated[
        bool, typer.Option("--skip", help="Leave out rows that cannot be read, and name them.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="A .csv or .jsonl file.")
    ] = None,
    threads: Threads = None,
) -> None:
    """Answer texts: one line each (a tab between the texts of a pair), or a table's columns."""
    if file != "-" and not Path(file).exists():  # said before anything is loaded
        raise UserError(
            f"{shorten(file)}: no such file; to answer a text itself: echo TEXT | bough predict RUN"
        )
    from bough.inference.input_files import Choice
    from bough.inference.predict_file import answer_file

    choice = Choice(tuple(task or ()), tuple(text or ()), skip)
    answer_file(run, file, out, choice, settle_threads(threads))
