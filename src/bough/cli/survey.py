"""Many runs: bough survey, studies and demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bough.cli.arguments import fail
from bough.errors import UserError
from bough.safe_text import shown

if TYPE_CHECKING:
    from bough.survey.survey import Result


RunThreads = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="CPU threads of a run; else its share of the cores."),
]


def survey(
    source: Annotated[
        Path,
        typer.Argument(metavar="FILE|SURVEY", help="A survey file, or the directory of one begun."),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="Where the runs are written.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="NAME", help="How large: a budget of the file.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Runs at a time; else 1 here, on a cluster as many as fit."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="CELL", help="Only this cell (repeatable).")
    ] = None,
    threads: RunThreads = None,
    keep: Annotated[
        str, typer.Option(help="Of finished runs: scores, models, or all (checkpoints too).")
    ] = "models",
    retry: Annotated[bool, typer.Option("--retry", help="Try failed runs as they were.")] = False,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Submit the runs to Slurm as an array, and end.")
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run on a Ray cluster: its address, auto or local."),
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="Check it and list its runs, and do not run them.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Only look on, from any terminal, while it runs.")
    ] = False,
) -> None:
    """Run many recipes: a grid or a search, times seeds. Ctrl-C is safe: ask again to go on."""
    from bough.survey import survey as surveys

    if slurm and ray is not None:
        raise UserError("--slurm and --ray are two ways of doing the same; choose one")
    if watch:
        others = out or budget or workers or only or threads or retry or slurm or ray or listing
        _look_on(source, bool(others))
        return
    if listing or slurm:
        prepared = surveys.prepare(source, out, budget, workers, keep, threads)
        if listing:
            surveys.show(*prepared, only or ())
        else:
            print(surveys.submit(*prepared, workers, only or (), keep, retry))
        return
    result = surveys.conduct(
        source, out=out, budget=budget, workers=workers, only=only or (), keep=keep, retry=retry,
        ray=ray, threads=threads,
    )  # fmt: skip
    _conclude(result, f"bough survey {result.folder}")
    print(f"\n{result}")


def _look_on(source: Path, others: bool) -> None:
    from bough.survey.watch import look_on

    if others:
        raise UserError("--watch only looks on; leave the other options out")
    look_on(source)


def _conclude(result: Result, again: str) -> None:
    """A survey that did not come to its end says so by its exit code."""
    if result.stopped:
        fail(f"stopped; go on with: {again}", 130)
    if result.failed:
        fail(str(result), 1)


def studies() -> None:
    """List the published studies that come as surveys: what was asked, printed and found."""
    from bough.survey.published_studies import show

    show()


def demo(
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Where the runs are written.")
    ] = Path("runs/demo"),
    files: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Only copy the demo's CSV files there, to try bough on."),
    ] = None,
    threads: RunThreads = None,
) -> None:
    """Train three tasks under three plans on data that comes with bough, compare, and report."""
    if files is not None:
        from bough import demo as embedded

        print(shown(f"Written: {', '.join(map(str, embedded.copy_files(files.expanduser())))}"))
        return
    from bough.demo.run_demo import show

    _conclude(show(out, threads), f"bough demo -o {out}")
