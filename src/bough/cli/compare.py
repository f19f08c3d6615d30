"""What runs show: bough compare and report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bough.cli.arguments import AsJson

Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Run directories, surveys, folders of runs.")
]
Baseline = Annotated[
    str | None, typer.Option(metavar="LABEL", help="The variant that the others are held against.")
]
Split = Annotated[str, typer.Option(help="Which rows: dev or test.")]
Tasks = Annotated[
    str | None, typer.Option("--tasks", metavar="A,B", help="Only these tasks, where runs differ.")
]


def compare(
    runs: Runs,
    baseline: Baseline = None,
    split: Split = "dev",
    tasks: Tasks = None,
    as_json: AsJson = False,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the tables as Markdown, too.")
    ] = None,
) -> None:
    """Say what runs score, what they cost, and which differences are real."""
    from bough.comparison import tables
    from bough.comparison.compare import compare as make
    from bough.files import write_atomically
    from bough.reports.page import check_target

    target = None if markdown is None else check_target(markdown)
    found = make(runs, baseline=baseline, split=split, tasks=tasks.split(",") if tasks else None)
    if as_json:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        tables.show(found)
    if target is not None:
        write_atomically(target, tables.markdown(found))


def report(
    runs: Runs,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="FILE", help="An .html file, or .md.")
    ] = Path("report.html"),
    baseline: Baseline = None,
    split: Split = "dev",
    tasks: Tasks = None,
) -> None:
    """Write the comparison of runs as one page that opens offline."""
    from bough.reports.page import report as write

    asked = tasks.split(",") if tasks else None
    print(write(runs, out, baseline=baseline, split=split, tasks=asked))
