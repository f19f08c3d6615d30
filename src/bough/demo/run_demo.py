"""The demo: three plans on the embedded tasks, compared; a report; some answers."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from bough import demo
from bough.comparison import tables
from bough.comparison.compare import compare
from bough.inference.answers import Answer
from bough.inference.load import load
from bough.inference.model import Model, Text
from bough.machine_limits import cores
from bough.reports.page import report
from bough.survey import survey
from bough.survey.survey import Result
from bough.survey.survey_dir import SurveyDir

SHOWN = 3  # samples of each task
SERVED = "split@3"  # the plan whose first model answers at the end


def show(out: Path, threads: int | None = None) -> Result:
    """Train, compare, write the report, answer a few sentences, say what to do next."""
    console = Console(highlight=False)
    began = time.monotonic()
    console.print(
        "[bold]bough[/]: three tasks, one encoder (all-MiniLM-L6-v2, 22.7 M parameters) that the\n"
        "tasks share in full, half, or not at all; each plan trained twice.\n"
    )
    result = survey.conduct(demo.survey(), out=out, workers=min(2, cores()), threads=threads)
    if result.done < result.total:
        return result
    comparison = compare([result.folder])
    tables.show(comparison)
    page = report(result.folder, result.folder / "report.html")
    run = SurveyDir(result.folder).run(f"{SERVED}-s0").folder
    model = load(run)
    _answers(console, model)
    console.print(f"\n{model.plan}\n")
    console.print(f"[bold]The report: {page}[/]", soft_wrap=True)
    console.print(f"[dim]{time.monotonic() - began:.0f} seconds. Next:[/]")
    for line in (
        f"bough serve {run}",
        f"echo 'Not bad at all.' | bough predict {run}",
        f"bough train {demo.recipe()} --set 'plan=split@3, pal:64' -o runs/pal",
        "bough init YOUR.csv",
    ):
        console.print(f"  {line}", soft_wrap=True)
    return result


def _answers(console: Console, model: Model) -> None:
    """Fresh sentences; a pair is answered by both tasks on pairs, from one pass of the encoder."""
    texts = [text for samples in demo.SAMPLES.values() for text in samples[:SHOWN]]
    asked: list[Text] = [text[0] if len(text) == 1 else (text[0], text[1]) for text in texts]
    console.print(
        f"what the model of `{SERVED}` says about new sentences; after so little training not all "
        "of it is right\n"
    )
    for text, answers in zip(texts, model.predict(asked), strict=True):
        shown = "   ".join(f"{task}: [bold]{_shown(answer)}[/]" for task, answer in answers.items())
        console.print("  " + escape("\n  ".join(text)))
        console.print(f"    {shown}")


def _shown(answer: Answer) -> str:
    if answer.value is not None:
        return f"{answer.value:.1f}"
    return f"{escape(str(answer.label))} ({answer.score:.0%})"
