"""bough predict: a trained model answers files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bough.cli.arguments import (
    ModelPath,
    PrecisionName,
    SkipBad,
    TaskNames,
    TextColumns,
    Threads,
    settle_threads,
)
from bough.errors import UserError, shorten


def predict(
    run: ModelPath,
    file: Annotated[
        str,
        typer.Argument(
            metavar="[FILE|-]",
            help="Texts: .txt, .csv, .tsv, .jsonl, .parquet, .conll; - for stdin.",
        ),
    ] = "-",
    task: TaskNames = None,
    text: TextColumns = None,
    skip: SkipBad = False,
    abstain: Annotated[
        float,
        typer.Option(
            metavar="P", min=0, max=1, help="Leave out labels whose probability is below P."
        ),
    ] = 0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Carry a table's other columns along.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="A .csv or .jsonl file.")
    ] = None,
    threads: Threads = None,
    precision: PrecisionName = "auto",
) -> None:
    """Answer texts: one line each (a tab between the texts of a pair), or a table's columns."""
    if file != "-" and not Path(file).exists():  # said before anything is loaded
        raise UserError(
            f"{shorten(file)}: no such file; to answer a text itself: echo TEXT | bough predict RUN"
        )
    from bough.inference.input_files import Choice
    from bough.inference.predict_file import answer_file

    choice = Choice(tuple(task or ()), tuple(text or ()), skip, abstain=abstain, keep=keep)
    answer_file(run, file, out, choice, settle_threads(threads), precision)
