"""Several models become one: bough graft and soup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bough.cli.arguments import Threads, fail, settle_threads
from bough.cli.train import Set
from bough.errors import UserError
from bough.safe_text import shown


def graft(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Runs, model folders, or folders of sequence classifiers of transformers.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Where its runs are written.")
    ] = Path("graft"),
    texts: Annotated[
        list[str] | None,
        typer.Option(
            "--texts", metavar="[TASK=]FILE", help="Texts for tasks without rows (repeatable)."
        ),
    ] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option(
            "--held-out",
            metavar="TASK=FILE",
            help="Texts to judge by; else a tenth of --texts (repeatable).",
        ),
    ] = None,
    tolerance: Annotated[float, typer.Option(min=0, help="What a task may lose of its score.")] = (
        0.01
    ),
    budget: Annotated[
        float | None,
        typer.Option(min=0, metavar="MINUTES", help="Of training, all plans together."),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(metavar="E", help="The trunk; else that of the first run.")
    ] = None,
    overrides: Set = None,
    threads: Threads = None,
) -> None:
    """Make one model of several that loses no more than it may."""
    from bough.graft.grafting import graft as make
    from bough.runs.console import Announcing, for_terminal
    from bough.training.loop import Failed, Stopped

    display = Announcing(for_terminal())
    settle_threads(threads, announce=display.announce)
    files, judged = _named("--texts", texts), _named("--held-out", held_out)
    try:
        done = make(
            models, out, texts=files, held_out=judged, tolerance=tolerance, budget=budget,
            encoder=encoder, overrides=overrides or (), display=display,
            say=lambda text: print(shown(text)),
        )  # fmt: skip
    except (Stopped, KeyboardInterrupt):
        fail(f"stopped; the same command goes on with {out}", 130)
    except Failed as failure:
        fail(str(failure), 1)
    print(shown(done.sentence()))
    if not done.fits:
        raise typer.Exit(1)
    print(shown(f"Next: bough predict {done.chosen.run} FILE   or   bough serve {done.chosen.run}"))


def _named(option: str, given: list[str] | None) -> dict[str, str]:
    """Files by task; a file of texts alone is for all."""
    files = {}
    for text in given or ():
        task, sign, file = text.partition("=")
        for_all = option == "--texts"
        if not (task and file if sign else for_all):
            more = ", or FILE for every task without rows" if for_all else ""
            raise UserError(f"{option} {text}: expected TASK=FILE{more}")
        files[task if sign else ""] = file if sign else text
    return files


def soup(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Runs of one recipe and several seeds.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="The model's folder.")],
    threads: Threads = None,
) -> None:
    """Average runs that differ by their seed, as far as the dev rows agree."""
    settle_threads(threads)
    from bough.graft.soup import soup as make

    for line in make(runs, out).lines():
        print(shown(line))
