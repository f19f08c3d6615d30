"""bough eval: a trained model held against labelled rows."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bough.cli.arguments import (
    AsJson,
    ModelPath,
    PrecisionName,
    SkipBad,
    TaskNames,
    TextColumns,
    Threads,
    settle_threads,
)
from bough.errors import UserError, shorten
from bough.safe_text import shown


def evaluate(
    run: ModelPath,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE...]",
            help="Labelled rows: .csv, .tsv, .jsonl, .parquet, .conll; else the run's.",
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Without a file: dev, test or train.  [default: dev]")
    ] = None,
    task: TaskNames = None,
    text: TextColumns = None,
    label: Annotated[
        str, typer.Option(metavar="COLUMN", help="A file's label, if not by its name.")
    ] = "",
    skip: SkipBad = False,
    threads: Threads = None,
    precision: PrecisionName = "auto",
    as_json: AsJson = False,
) -> None:
    """Score a model on a run's rows or on labelled files: class by class, with its mistakes."""
    if files and split is not None:
        raise UserError("--split is for the run's own rows; leave it out where files are named")
    if not files and (text or label or skip):
        raise UserError("--text, --label and --skip are for files; name one")
    for file in files or ():
        if not file.exists():
            raise UserError(f"{shorten(str(file))}: no such file")
    number = settle_threads(threads)
    from bough.inference.evaluation import evaluate as judge
    from bough.inference.folder import unfinished
    from bough.inference.load import load
    from bough.runs.console import plain_console

    def say(sentence: str) -> None:
        print(shown(sentence), file=sys.stderr)

    for sentence in unfinished(run):
        say(sentence)
    if files:
        model = load(run, threads=number, precision=precision)
        found = {
            str(file): judge(
                model, file, tasks=task or (), text=text or (), label=label, skip=skip, say=say
            )
            for file in files
        }
    else:
        split = split or "dev"
        found = {split: judge(run, split=split, tasks=task or (), precision=precision, say=say)}
    if as_json:
        print(json.dumps({name: each.as_dict() for name, each in found.items()}, indent=1))
        return
    for name, each in found.items():
        plain_console().print(replace(each, title=f"{run}: {name}"))
