"""Studies: published multi-task studies as surveys, with what they printed and what we found.

Each is a survey file in `recipes/studies`; its keys `asks`, `printed` and `found` are for people.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bough.errors import UserError
from bough.survey.spec import Survey


def folder() -> Path:
    """Where the studies are: beside the package when installed, in the checkout else."""
    here = Path(__file__).parents[1]
    for place in (here / "recipes", here.parents[1] / "recipes"):
        if (place / "studies").is_dir():
            return place / "studies"
    raise UserError("the studies are not here; get them with bough's sources, in recipes/studies")


def every() -> dict[Path, Survey]:
    """All studies by their files."""
    return {file: Survey.read(file) for file in sorted(folder().glob("*.yaml"))}


def show() -> None:
    """Print what each asks, what was printed, what we found, and the command."""
    # Where there is no terminal to fit, lines are as long as a page is wide.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    for file, survey in every().items():
        resolved = survey.resolved()
        search, seeds = resolved.search, len(resolved.seeds)
        size = f"{len(resolved.cells)} cells" if search is None else f"{search.trials} trials"
        console.print(f"[bold]{file.stem}[/]  [dim]{size}, {seeds} seed{'s' * (seeds > 1)}[/]")
        words = Table.grid(padding=(0, 1))
        for head, text in (
            ("asks", survey.asks),
            ("printed", survey.printed),
            ("found", survey.found or "not run yet"),
        ):
            words.add_row(f"  {head}:", Text(" ".join(text.split())))
        console.print(words)
        console.print(f"  [green]bough survey {_short(file)}[/]\n", soft_wrap=True)
    console.print(
        "Sizes: --budget small (MiniLM on a CPU to its end, ten minutes a run and core; the usual\n"
        "one), tiny (some minutes), medium (three times small), full (BERT-base, as printed),\n"
        "smoke (a few steps). BOUGH_DATA names the data's folder.",
        soft_wrap=True,
    )


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
