"""What a person sees while a run goes on: a live panel, a notebook's line, or a log's lines."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
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
from rich.text import Text

from bough.formatting import duration
from bough.safe_text import shown

T = TypeVar("T")
PREPARING = 10.0  # seconds between lines about what is being read
BAR = 24  # characters of a notebook's progress bar
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

    @property
    def known_losses(self) -> str:
        """Of the tasks whose turn has come."""
        return "  ".join(f"{n} {x:.3f}" for n, x in self.losses.items() if x == x)


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


class HandingOn:
    """A display that hands everything on to another; what is more is for those who extend it."""

    def __init__(self, display: Display):
        self.display = display

    def say(self, text: str) -> None:
        self.display.say(text)

    def step(self, moment: Moment) -> None:
        self.display.step(moment)

    def log(self, entry: Mapping[str, Any]) -> None:
        self.display.log(entry)

    def scored(self, step: int, scores: Mapping[str, Any], best: bool) -> None:
        self.display.scored(step, scores, best)

    def close(self) -> None:
        self.display.close()


class Announcing(HandingOn):
    """A display that is given something to say once computing has begun: then all that was asked
    for has been checked, and an error is not lost behind it."""

    def __init__(self, display: Display):
        super().__init__(display)
        self.waiting: list[str] = []

    def announce(self, text: str) -> None:
        self.waiting.append(text)

    def step(self, moment: Moment) -> None:
        while self.waiting:
            self.display.say(self.waiting.pop(0))
        self.display.step(moment)


def by_metric(scores: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Each task's score by task and metric, then the aggregates, as far as they are there."""
    by_task = {
        (name, str(score["metric"])): score[score["metric"]]
        for name, score in scores.get("tasks", {}).items()
        if score.get("metric") in score
    }
    return by_task | {(name, "mean"): value for name, value in means(scores).items()}


def means(scores: Mapping[str, Any]) -> dict[str, float]:
    """Both aggregates; where no metric runs from -1 to 1 they are the same, and told once."""
    found = {name: scores[name] for name in ("raw", "normalised") if name in scores}
    return {"mean": scores["raw"]} if len({*found.values()}) < len(found) else found


def one_line(scores: Mapping[str, Any]) -> str:
    """Each task's first metric, and the aggregates."""
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
        self.began = 0.0, 0  # when the phase's first step was seen, and which
        self.latest: int | None = None  # the step before

    def say(self, text: str) -> None:
        print(shown(text), file=sys.stderr, flush=True)

    def step(self, moment: Moment) -> None:
        now = time.monotonic()
        if self.latest is None or moment.step <= self.latest:  # a phase counts from 1
            self.began = now, moment.step
        self.latest = moment.step
        if now < self.next and moment.step < moment.steps:
            return
        self.next = now + self.every
        self.tell(moment, self._left(now, moment))

    def tell(self, moment: Moment, left: str) -> None:
        self.say(
            f"step {moment.step}/{moment.steps}  epoch {moment.epoch:.2f}{moment.phase}  "
            f"loss {moment.known_losses}  {moment.tokens_per_second:,.0f} tokens/s{left}"
        )

    def _left(self, now: float, moment: Moment) -> str:
        """How long the other steps will take, at the pace so far."""
        began, first = self.began
        done, steps = moment.step - first, moment.steps - moment.step
        return f"  {duration((now - began) / done * steps)} left" if done and steps else ""


class Notebook(Lines):
    """The same lines below a notebook's cell, the latest in place of the one before."""

    def __init__(self, every: float = 0.5):
        super().__init__(every)
        self.shown: Any = None  # IPython's handle of what is replaced

    def say(self, text: str) -> None:
        print(shown(text), flush=True)

    def tell(self, moment: Moment, left: str) -> None:
        from IPython.display import display

        done = round(BAR * moment.step / moment.steps)
        line = (
            f"{'█' * done}{'░' * (BAR - done)} {moment.step}/{moment.steps}  "
            f"epoch {moment.epoch:.2f}{moment.phase}  loss {moment.known_losses}{left}"
        )
        content = {"text/plain": shown(line)}
        if self.shown is None:
            self.shown = display(content, raw=True, display_id=True)
        else:
            self.shown.update(content, raw=True)


class Panel(_Speaking):
    """Progress, losses and scores, redrawn in place."""

    def __init__(self, console: Console | None = None):
        self.console = console or plain_console(stderr=True)
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
        self.console.print(shown(text), highlight=False, markup=False)

    def step(self, moment: Moment) -> None:
        if self.live is None:
            self.live = Live(console=self.console, refresh_per_second=4, transient=True)
            self.live.start()
        loss_column, passes = (Column(name, justify="right") for name in ("loss", "passes"))
        table = Table("", loss_column, passes, box=None, padding=(0, 2), show_edge=False)
        for task, loss in moment.losses.items():
            seen = f"{loss:.3f}" if loss == loss else "-"  # its turn has not come yet
            table.add_row(shown(task), seen, f"{moment.passes[task]:.2f}")
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


def plain_console(**options: Any) -> Console:
    """A console to which brackets and colons in a text are signs like others."""
    return Console(markup=False, emoji=False, **options)


def in_plain_text(content: RenderableType) -> str:
    """What a console would print, without its colours."""
    text = io.StringIO()
    plain_console(file=text, force_terminal=False, force_jupyter=False).print(content)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def titled_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Group:
    """A table below its title; columns of numbers stand at the right."""
    table = Table(box=SIMPLE_HEAD)
    for number, heading in enumerate(headings):
        numeric = all(row[number][:1].isdigit() for row in rows)
        table.add_column(shown(heading), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*map(shown, row))
    return Group(Text(shown(title), style="italic"), table)


def score_table(title: str, judged: Mapping[str, Any]) -> Group:
    """Each task's metrics, and the means."""
    table = Table(box=SIMPLE_HEAD)
    for heading in ("task", "metric", "score", "95 % interval", "rows", "other metrics"):
        table.add_column(heading, justify="right" if heading in ("score", "rows") else "left")
    for name, score in judged["tasks"].items():
        metric = score["metric"]
        rest = {k: v for k, v in score.items() if k not in (*NO_METRICS, metric)}
        others = "  ".join(f"{k} {v:.3f}" for k, v in rest.items())
        between = " - ".join(f"{end:.3f}" for end in score.get("interval", ()))
        value, number = f"{score[metric]:.3f}", f"{score['rows']:,}"
        table.add_row(shown(name), metric, value, between, number, others)
    told = "   ".join(f"{name} {value:.3f}" for name, value in means(judged).items())
    return Group(Text(shown(title), style="italic"), table, Text(told))


def print_scores(scores: Mapping[str, Any], title: str) -> None:
    """A table of every split's scores, on standard output."""
    for split, judged in scores.items():
        plain_console().print(score_table(f"{title}: {split}", judged))


@contextmanager
def preparing(display: Display) -> Iterator[Callable[[str, float, int], None]]:
    """What is told of tables that are being read: a bar where someone watches, else lines."""
    while isinstance(display, HandingOn):
        display = display.display
    if isinstance(display, Panel):
        columns = TextColumn("{task.description}"), BarColumn(bar_width=None), TimeRemainingColumn()
        with Progress(*columns, console=display.console, transient=True) as bars:
            bar = bars.add_task("", total=1.0)
            yield lambda source, share, rows: bars.update(
                bar, completed=share, description=shown(_prepared(source, rows))
            )
        return
    last = time.monotonic()

    def tell(source: str, share: float, rows: int) -> None:
        nonlocal last
        if time.monotonic() - last >= PREPARING:
            last = time.monotonic()
            display.say(f"{_prepared(source, rows)}, {share:.0%}")

    yield tell


def _prepared(source: str, rows: int) -> str:
    return f"preparing {source}: {rows:,} rows"


def progress(items: Iterable[T], total: int | None, what: str) -> Iterable[T]:
    """The same items with a bar on standard error, where someone watches."""
    if not sys.stderr.isatty():
        return items
    return track(items, what, total, console=plain_console(stderr=True), transient=True)


def for_terminal() -> Display:
    """A panel or a notebook's line where someone watches, lines where a file does."""
    if _in_notebook():
        return Notebook()
    return Panel() if sys.stderr.isatty() else Lines()


def _in_notebook() -> bool:
    """Whether this process is the kernel of one."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config
