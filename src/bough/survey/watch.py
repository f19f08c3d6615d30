"""A survey seen from another terminal, or another machine: read off its directory, never written.

A run that is under way is known by its files, one of which it wrote a moment ago; its lock is left
alone, for a look that holds it would turn the run's own process away.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bough.errors import UserError
from bough.formatting import duration, size
from bough.runs.console import plain_console
from bough.runs.run_dir import Run
from bough.survey.cells import RunSpec
from bough.survey.progress import Progress, way
from bough.survey.spec import Survey
from bough.survey.survey_dir import SurveyDir

PAUSE = 2.0  # seconds between two looks
QUIET = 300.0  # seconds without a sign after which a run is said to stand still
SIZED = 30.0  # seconds between two countings of the bytes on disk
WIDTH = 140  # where no terminal tells its own


@dataclass
class Board:
    """What is known of a survey, look by look."""

    folder: SurveyDir
    survey: Survey
    done: dict[str, RunSpec] = field(default_factory=dict)
    bytes: int = 0
    sized: float = -SIZED

    def look(self) -> Group:
        """The survey as it stands now."""
        self.survey = self.folder.survey or self.survey  # which may have grown
        progress = Progress(self.folder.path.name, self._total(), 1, self.folder.run)
        running: list[RunSpec] = []
        still: list[RunSpec] = []
        for spec in self._specs():
            state = "done" if spec.name in self.done else self.folder.state(spec.name)
            if state == "done":
                self.done[spec.name] = spec
            if state in ("done", "failed"):
                progress.count(spec, state)
            elif state == "begun":
                (running if self._silence(spec.name) < QUIET else still).append(spec)
        progress.workers = max(1, len(running))
        progress.running = {spec.name: spec for spec in running}
        now = Table(box=None, padding=(0, 2), show_header=False)
        for spec in running:
            now.add_row(f"  {spec.name}", str(way(self.folder.run(spec.name), spec)))
        for spec in still if self.survey.search is None else ():  # a search has ended most of them
            quiet = f"no sign for {duration(self._silence(spec.name))}"
            now.add_row(f"  {spec.name}", f"{way(self.folder.run(spec.name), spec)}  ({quiet})")
        head = f"{progress.head(len(running))}; {self._disk()}"
        return progress.drawn(Text(head), now)

    @property
    def complete(self) -> bool:
        """Of a search, who only looks on does not know."""
        return self.survey.search is None and len(self.done) >= self._total()

    def _total(self) -> int:
        search = self.survey.search
        runs = search.trials if search is not None else len(self.survey.cells)
        return runs * len(self.survey.seeds)

    def _specs(self) -> Sequence[RunSpec]:
        """Of a search those that its trials have come to, a cell each."""
        if self.survey.search is None:
            return self.survey.run_specs()
        runs = sorted((self.folder.path / "runs").glob("*/recipe.yaml"))
        return [self.done.get(file.parent.name) or _found(Run(file.parent)) for file in runs]

    def _silence(self, name: str) -> float:
        """Seconds since the run last wrote something."""
        run, log = self.folder.run(name), self.folder.log(name)
        files = (run.folder / "metrics.jsonl", run.checkpoint, run.recipe_file, log)
        return time.time() - max(_written(file) for file in files)

    def _disk(self) -> str:
        if time.monotonic() - self.sized >= SIZED:
            self.bytes, self.sized = _bytes(self.folder.path), time.monotonic()
        free = shutil.disk_usage(self.folder.path).free
        return f"{size(self.bytes)} on disk, {size(free)} free"


def look_on(path: Path) -> None:
    """Show a survey until all its runs are done, or Ctrl-C; once where no terminal is there."""
    folder = SurveyDir(path.expanduser())
    survey = folder.survey if folder.path.is_dir() else None
    if survey is None:
        raise UserError(f"{path}: not a survey's directory; --watch wants one that was begun")
    console = plain_console(width=None if sys.stdout.isatty() else WIDTH)
    board = Board(folder, survey)
    if not console.is_terminal:
        console.print(board.look())
        return
    # Who looks on ends by Ctrl-C nothing but the look.
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        live.update(board.look(), refresh=True)
        while not board.complete:
            time.sleep(PAUSE)
            live.update(board.look(), refresh=True)


def _found(run: Run) -> RunSpec:
    recipe = run.recipe(unset="keep")
    cell, _, _ = run.name.rpartition("-s")
    return RunSpec(cell, recipe.training.seed, recipe)


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _bytes(folder: Path) -> int:
    """Of all files in it; one that vanishes meanwhile takes nothing."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.lstat().st_size if file.is_file() else 0
        except OSError:
            continue
    return total
