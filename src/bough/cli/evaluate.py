"""bough eval: a trained model held against labelled rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from bough.inference.evaluation import Evaluation
    from bough.recipe.tasks import Task

WIDEST = 12  # classes of a confusion table; of more, only the commonest mistakes are shown


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
    from bough.inference import config
    from bough.inference.evaluation import evaluate as judge
    from bough.inference.folder import find, unfinished
    from bough.inference.load import load

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
    known = config.read(find(run))
    for name, each in found.items():
        show_scores({name: each.scores}, str(run), known.tasks, known.facts.model_dump())
        _show_classes(each)


def show_scores(
    scores: Mapping[str, Any], title: str, tasks: Mapping[str, Task], facts: Mapping[str, Any]
) -> None:
    """A table per split, and a word on tasks whose data the encoder has seen before."""
    from bough.recipe.quora_caveat import contaminated
    from bough.runs.console import print_scores

    print_scores(scores, title)
    for task in contaminated(tasks, facts):
        print(
            f"The score of {task} is not clean: the encoder saw Quora's duplicate questions "
            "when it was pretrained."
        )


def _show_classes(found: Evaluation) -> None:
    """Of each classify task: every class, and what was taken for what; of a tag task each label."""
    for task, spans in found.spans.items():
        rows = [
            [name, *(f"{own[k]:.3f}" for k in ("precision", "recall", "f1")), f"{own['spans']:,}"]
            for name, own in spans.items()
        ]
        _print(task, ["label", "precision", "recall", "f1", "spans"], rows)
    for task, classes in found.classes.items():
        rows = [
            [name, *(f"{own[k]:.3f}" for k in ("precision", "recall", "f1")), f"{own['rows']:,}"]
            for name, own in classes.items()
        ]
        _print(task, ["class", "precision", "recall", "f1", "rows"], rows)
        labels = found.labels.get(task, ())
        if not labels:  # any number of them: none is taken for another
            continue
        if len(labels) <= WIDEST:
            table = zip(labels, found.confusion[task].tolist(), strict=True)
            counts = [[label, *(f"{count:,}" for count in row)] for label, row in table]
            _print(f"{task}: true class (down), answer (across)", ["", *labels], counts)
        elif mistakes := found.most_confused(task):
            most = [[truth, said, f"{count:,}"] for truth, said, count in mistakes]
            _print(f"{task}: the commonest mistakes", ["true class", "answer", "rows"], most)


def _print(title: str, headings: list[str], rows: list[list[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from bough.runs.console import plain_console

    table = Table(title=shown(title), title_justify="left", box=SIMPLE_HEAD)
    for heading in headings:
        number = all(row[headings.index(heading)][:1].isdigit() for row in rows)
        table.add_column(shown(heading), justify="right" if number else "left")
    for row in rows:
        table.add_row(*map(shown, row))
    plain_console().print(table)
