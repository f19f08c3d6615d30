"""What a person sees while a run goes on: a live panel in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    track,
)
from rich.table import Column, Table

T = TypeVar("T")
NO_METRICS = ("metric", "loss", "rows", "interval")


@dataclass(frozen=True)
class Moment:
    """Where a run stands after a step."""

    step: int
    steps: int
    epoch: float
    phase: str  # "" when there is one only
    losses: Mapping[str, float]  # mean since the last log
    passes: Mapping[str, float]  # over each task's training set
    lr: float
    tokens_per_second: float


class Display(Protocol):
    """Told about a run as it goes; a tracker has the same form."""

    def say(self, text: str) -> None: ...
    def step(self, moment: Moment) -> None: ...
    def log(self, entry: Mapping[str, Any]) -> None: ...
    def scored(self, step: int, scores: Mapping[str, Any], best: bool) -> None: ...
    def close(self) -> None: ...


class Silent:
    """Nobody looks."""

    def say(self, text: str) -> None: ...
    def step(self, moment: Moment) -> None: ...
    def log(self, entry: Mapping[str, Any]) -> None: ...
    def scored(self, step: int, scores: Mapping[str, Any], best: bool) -> None: ...
    def close(self) -> None: ...


def by_metric(scores: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Each task's score by task and metric, then both aggregates, as far as they are there."""
    by_task = {
        (name, str(score["metric"])): score[score["metric"]]
        for name, score in scores.get("tasks", {}).items()
        if score.get("metric") in score
    }
    return by_task | {(n, "mean"): scores[n] for n in ("raw", "normalised") if n in scores}


def one_line(scores: Mapping[str, Any]) -> str:
    """Each task's first metric, and both aggregates."""
    return "  ".join(f"{name} {value:.3f}" for (name, _), value in by_metric(scores).items())


class _Speaking(Silent):
    """Scores in a line, however it says it."""

    def scored(self, step: int, scores: Mapping[str, Any], best: bool) -> None:
        self.say(f"step {step}: {one_line(scores)}{'  (best so far)' if best else ''}")


class Lines(_Speaking):
    """A line now and then, for logs and pipes."""

    def __init__(self, every: float = 10.0):
        self.every = every
        self.next = 0.0

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def step(self, moment: Moment) -> None:
        now = time.monotonic()
        if now < self.next and moment.step < moment.steps:
            return
        self.next = now + self.every
        losses = "  ".join(f"{n} {x:.3f}" for n, x in moment.losses.items() if x == x)
        self.say(
            f"step {moment.step}/{moment.steps}  epoch {moment.epoch:.2f}{moment.phase}  "
            f"loss {losses}  {moment.tokens_per_second:,.0f} tokens/s"
        )


class Panel(_Speaking):
    """Progress, losses and scores, redrawn in place."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=self.console,
        )
        self.bar = self.progress.add_task("training", total=None)
        self.live: Live | None = None

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False)

    def step(self, moment: Moment) -> None:
        if self.live is None:
            self.live = Live(console=self.console, refresh_per_second=4, transient=True)
            self.live.start()
        headings: list[str | Column] = [
            "",
            Column("loss", justify="right"),
            Column("passes", justify="right"),
        ]
        table = Table(*headings, box=None, padding=(0, 2), show_edge=False)
        for task, loss in moment.losses.items():
            table.add_row(task, f"{loss:.3f}", f"{moment.passes[task]:.2f}")
        self.progress.update(
            self.bar,
            total=moment.steps,
            completed=moment.step,
            description=f"epoch {moment.epoch:.2f}{moment.phase}  "
            f"{moment.tokens_per_second:,.0f} tokens/s",
        )
        self.live.update(Group(table, self.progress))

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None


def print_scores(scores: Mapping[str, Any], title: str) -> None:
    """A table of every split's scores, on standard output."""
    console = Console()
    for split, judged in scores.items():
        right = [Column(heading, justify="right") for heading in ("score", "rows")]
        headings: list[str | Column] = [
            "task",
            "metric",
            right[0],
            "95 % interval",
            right[1],
            "other metrics",
        ]
        table = Table(*headings, title=f"{title}: {split}", title_justify="left", box=SIMPLE_HEAD)
        for name, score in judged["tasks"].items():
            metric = score["metric"]
            rest = {k: v for k, v in score.items() if k not in (*NO_METRICS, metric)}
            others = "  ".join(f"{k} {v:.3f}" for k, v in rest.items())
            between = " - ".join(f"{end:.3f}" for end in score.get("interval", ()))
            value, number = f"{score[metric]:.3f}", f"{score['rows']:,}"
            table.add_row(name, metric, value, between, number, others)
        means = f"raw {judged['raw']:.3f}   normalised {judged['normalised']:.3f}"
        console.print(table)
        console.print(means, highlight=False)


def progress(items: Iterable[T], total: int | None, what: str) -> Iterable[T]:
    """The same items with a bar on standard error, where someone watches."""
    if not sys.stderr.isatty():
        return items
    return track(items, what, total, console=Console(stderr=True), transient=True)


def for_terminal() -> Display:
    """A panel where someone watches, lines where a file does."""
    return Panel() if sys.stderr.isatty() else Lines()
