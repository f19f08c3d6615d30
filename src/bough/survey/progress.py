"""What a person sees of a survey while it runs: a live table, or plain lines in a file."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bough.errors import UserError
from bough.formatting import duration, number
from bough.runs.console import by_metric, one_line, plain_console
from bough.runs.run_dir import Run
from bough.safe_text import shown
from bough.survey.cells import RunSpec

OUTCOMES = ("done", "failed", "pruned", "stopped")
OFTEN = 1.0  # seconds between two looks into the runs' logs


@dataclass
class Progress:
    """Keeps count, and prints a line for every run that ends."""

    title: str
    total: int
    workers: int
    find: Callable[[str], Run]
    cells: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)  # runs' dev scores
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    began: dict[str, float] = field(default_factory=dict)
    running: dict[str, RunSpec] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)  # of finished runs, by their own clocks
    looked: float = 0.0

    def count(self, spec: RunSpec, outcome: str) -> Mapping[str, Any]:
        """Count a run that ended, and keep its dev scores as far as it has any."""
        self.counts[outcome] += 1
        scores: Mapping[str, Any] = {}
        if outcome == "done":
            run = self.find(spec.name)
            with suppress(UserError):
                scores = run.scores.get("dev") or {}
            with suppress(UserError, OSError):
                self.seconds.append(seconds_taken(run))
            self.cells.setdefault(spec.cell, []).append(scores)
        return scores

    def started(self, spec: RunSpec) -> None:
        again = self.find(spec.name).recipe_file.is_file()
        self.began[spec.name], self.running[spec.name] = time.monotonic(), spec
        self.say(f"{spec.name}: {'goes on' if again else 'begins'}")

    def ended(self, spec: RunSpec, outcome: str, why: str = "") -> None:
        began = self.began.pop(spec.name, None)
        self.running.pop(spec.name, None)
        scores = self.count(spec, outcome)
        took = ""
        if began is not None and outcome == "done":
            took = f" in {duration(time.monotonic() - began)}"
        line = f"{spec.name}: {outcome}{took} ({self.ended_runs} of {self.total})"
        if outcome == "done":
            line += f"  {one_line(scores)}"
        elif why:
            line += f": {why}"
        left = self.left()
        self.say(line + (f"; {left}" if left else ""))

    def look(self, running: Sequence[RunSpec]) -> None:
        """Called often; looks into the running runs now and then."""
        if time.monotonic() - self.looked >= OFTEN:
            self.looked = time.monotonic()
            self.show(running)

    def say(self, text: str) -> None:
        print(shown(text), file=sys.stderr, flush=True)

    def show(self, running: Sequence[RunSpec]) -> None:
        pass

    def close(self) -> None:
        pass

    @property
    def ended_runs(self) -> int:
        return self.counts["done"] + self.counts["failed"] + self.counts["pruned"]

    def left(self) -> str:
        """How long the rest may take, once a run, or a part of one, has shown it."""
        remaining = self.total - self.ended_runs
        found = (way(self.find(name), spec) for name, spec in self.running.items())
        ways = [each for each in found if each.share > 0]
        whole = self.seconds or [each.seconds / each.share for each in ways]
        if not whole or remaining <= 0:
            return ""
        begun = sum(each.seconds / each.share - each.seconds for each in ways)
        ahead = statistics.mean(whole) * max(0, remaining - len(ways)) + begun
        return f"about {duration(ahead / min(self.workers, remaining))} left"

    def head(self, running: int) -> str:
        """The counts, and how long it may take."""
        counts = ", ".join(f"{n} {what}" for what, n in self.counts.items() if n)
        left = self.left()
        return f"{counts or '0 done'} of {self.total}; {running} running{left and f'; {left}'}"

    def drawn(self, *above: RenderableType) -> Group:
        """The table below what fits on any screen, for it is cut off there; once it has a line."""
        return Group(*above, *([self.table()] if self.cells else []))

    def table(self) -> Table:
        """A line per cell: how many runs, and the means of their dev scores."""
        table = Table(box=SIMPLE_HEAD, title=shown(self.title), title_justify="left")
        if any(len(runs) > 1 for runs in self.cells.values()):
            table.caption = "Means; in brackets the lowest and the highest run."
            table.caption_justify = "left"
        table.add_column("cell", no_wrap=True)
        table.add_column("runs", justify="right")
        cells = {cell: [by_metric(scores) for scores in runs] for cell, runs in self.cells.items()}
        # A task that cells judge differently has a column for each of its metrics.
        judged = [key for runs in cells.values() for scores in runs for key in scores]
        columns = sorted(dict.fromkeys(judged), key=lambda key: key[1] == "mean")  # these last
        for name, metric in columns:
            table.add_column(f"{name}\n{metric}", justify="right")
        for cell, runs in cells.items():
            values = ([scores[key] for scores in runs if key in scores] for key in columns)
            table.add_row(cell, str(len(runs)), *map(_spread, values))
        return table


@dataclass
class LiveProgress(Progress):
    """The same as a table that is redrawn in place."""

    console: Console = field(default_factory=lambda: plain_console(stderr=True))

    def __post_init__(self) -> None:
        self.live = Live(console=self.console, refresh_per_second=2, transient=True)
        self.live.start()

    def say(self, text: str) -> None:
        self.console.print(shown(text), highlight=False, markup=False)

    def show(self, running: Sequence[RunSpec]) -> None:
        now = Table(box=None, padding=(0, 2), show_header=False)
        for spec in running:
            now.add_row(f"  {spec.name}", str(way(self.find(spec.name), spec)))
        self.live.update(self.drawn(Text(self.head(len(running))), now))

    def close(self) -> None:
        self.live.stop()


@dataclass(frozen=True)
class Way:
    """How far a run has come, by its log."""

    step: int = 0
    steps: int | None = None  # of the whole run, where that is known
    seconds: float = 0.0  # by its own clock, which stands while it is stopped
    scores: str = ""

    @property
    def share(self) -> float:
        """Of the whole run; 0 while nobody knows."""
        known = self.steps and self.seconds > 0
        return min(1.0, self.step / self.steps) if known and self.steps else 0.0

    def __str__(self) -> str:
        return f"step {self.step}{f' of {self.steps}' if self.steps else ''}  {self.scores}"


def way(run: Run, spec: RunSpec) -> Way:
    training = spec.recipe.training
    far = Way(steps=training.steps)
    with suppress(UserError, OSError):
        for entry in run.metrics():
            # Of several phases a line knows its own only.
            steps = far.steps if training.phases else entry.get("steps") or far.steps
            seconds = entry.get("seconds") or far.seconds
            scores = one_line(entry["dev"]) if "dev" in entry else far.scores
            far = Way(entry["step"], steps, seconds, scores)
    return far


def seconds_taken(run: Run) -> float:
    """By a finished run's own clock; else between its files."""
    with suppress(UserError, KeyError):
        return float(run.cost["training_seconds"])
    return (run.folder / "scores.json").stat().st_mtime - run.recipe_file.stat().st_mtime


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else ""
    return f"{number(statistics.mean(values))}{spread}"
