"""Survey: many runs, each a process and a run directory of its own, taken to the end together.

What was decided about a survey lies in `survey.yaml` of its directory; how far it has come is read
off the run directories alone. It can be stopped, or killed, and asked for again at any moment.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from rich.box import SIMPLE_HEAD
from rich.table import Table

from bough.comparison.cell_names import find_cell
from bough.comparison.groups import labels_to_be
from bough.data.source_check import check_files
from bough.errors import UserError, listed, nearest
from bough.machine_limits import cores
from bough.recipe.recipe import Recipe
from bough.runs.console import plain_console
from bough.safe_text import shown
from bough.survey import cells, ray_cluster, slurm
from bough.survey.cells import RunSpec
from bough.survey.launcher import GridScheduler, Keep, Launcher, LocalProcess, Start
from bough.survey.progress import LiveProgress, Progress
from bough.survey.search import OLD, SearchScheduler, check_search, corners
from bough.survey.spec import Survey
from bough.survey.survey_dir import SurveyDir

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Result:
    """How a survey stands."""

    folder: Path
    done: int
    failed: int
    pruned: int
    total: int
    stopped: bool  # it was told to stop, and can go on
    mended: str  # the command for when the recipe or the survey file is mended

    def __str__(self) -> str:
        """What was done, and what to type next."""
        place = shlex.quote(str(self.folder))
        lines = [f"{self.done} of {self.total} runs are done in {self.folder}"]
        if self.pruned:
            lines[0] += f", {self.pruned} were stopped as hopeless"
        if self.failed:
            lines.append(f"{self.failed} failed: see {self.folder / 'failures'}")
            lines.append(f"  to run the same recipes again: bough survey {place} --retry")
            lines.append(f"  after fixing your recipe or survey file: {self.mended}")
        if self.done:
            page = shlex.quote(str(self.folder / "report.html"))
            lines.append(f"Next: bough compare {place}")
            lines.append(f"      bough report {place} -o {page}")
        return "\n".join(lines)


def conduct(
    source: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    budget: str | None = None,
    workers: int | None = None,
    only: Sequence[str] = (),
    keep: str = "models",
    retry: bool = False,
    ray: str | None = None,
    threads: int | None = None,
) -> Result:
    """Run a survey file, or go on with a survey's directory, until all its runs have ended.

    `ray` is the address of a Ray cluster that does the runs, or `local`.
    """
    folder, survey = prepare(source, out, budget, workers, keep, threads)
    check_left(folder, survey, only)
    with ExitStack() as around:
        if survey.search is None or (folder.path / OLD).is_file():
            around.enter_context(folder.locked())
        folder.settle(survey)
        start: Start = LocalProcess
        if ray is not None:
            start = cluster = around.enter_context(ray_cluster.connected(ray))
            workers = workers or cluster.room(survey.base.threads or 1)
        workers = workers or 1
        scheduler: GridScheduler | SearchScheduler
        known: list[tuple[RunSpec, str]]
        if survey.search is not None:
            scheduler = SearchScheduler(survey, folder, retry)
            around.callback(scheduler.close)
            total, known = scheduler.total, [*scheduler.ended_before()]
        else:
            specs = chosen(survey, only)
            for spec in specs if retry else ():
                folder.failure(spec.name).unlink(missing_ok=True)
            scheduler = GridScheduler(specs, folder)
            total, known = len(specs), [(s, folder.state(s.name)) for s in specs]
        kind = LiveProgress if sys.stderr.isatty() else Progress  # whether someone watches
        shown = kind(folder.path.name, total, workers, folder.run)
        launcher = Launcher(scheduler, folder, workers, shown, cast(Keep, keep), start)
        try:
            for spec, state in known:
                if state in ("done", "failed", "pruned"):
                    shown.count(spec, state)
                if state == "done":
                    launcher.tidy(spec)
            complete = launcher.run()
        finally:
            shown.close()
    console = _console()
    if shown.cells:
        console.print(shown.table())
    if isinstance(scheduler, SearchScheduler):
        _print_best(scheduler, console)
    done, failed, pruned = (shown.counts[outcome] for outcome in ("done", "failed", "pruned"))
    asked = {"-o": out, "--budget": budget, "--threads": threads}
    mended = _anew(folder, Path(source), asked)
    return Result(folder.path, done, failed, pruned, total, not complete, mended)


def _anew(folder: SurveyDir, source: Path, asked: Mapping[str, object]) -> str:
    """The command that does a survey when its file or recipe is changed: in the same place, or
    beside it where runs have begun, which stay what they are."""
    if source.is_dir():
        source, asked = Path("FILE"), {"-o": folder.path}
    if folder.begun:
        beside = (folder.path.with_name(f"{folder.path.name}-{n}") for n in count(2))
        asked = {**asked, "-o": next(path for path in beside if not path.exists())}
    options = [(name, str(value)) for name, value in asked.items() if value is not None]
    return shlex.join(["bough", "survey", str(source), *chain(*options)])


def submit(
    folder: SurveyDir,
    survey: Survey,
    workers: int | None = None,
    only: Sequence[str] = (),
    keep: str = "models",
    retry: bool = False,
) -> str:
    """Hand what is left of a prepared survey to Slurm; a sentence that says what was done."""
    check_left(folder, survey, only)
    with folder.locked():
        folder.settle(survey)
        specs = [] if survey.search is not None else chosen(survey, only)
        for spec in specs if retry else ():
            folder.failure(spec.name).unlink(missing_ok=True)
        left = [s for s in specs if folder.state(s.name) not in ("done", "failed")]
        if survey.search is None and not left:
            return f"all {len(specs)} runs in {folder.path} have ended; nothing is left to submit"
        job = slurm.submit(folder, survey, left, workers, cast(Keep, keep), retry)
    what = f"{len(left)} runs" if left else f"a search by {workers or 1} processes"
    place = shlex.quote(str(folder.path))
    return (
        f"{what} submitted as job {job}\n"
        f"Next: squeue -j {job}   or   bough survey {place} --watch\n"
        f"      bough survey {place} --slurm   submits what is left when the job has ended"
    )


def show(folder: SurveyDir, survey: Survey, only: Sequence[str] = ()) -> None:
    """Print the runs of a prepared survey and how they stand, without running any."""
    check_left(folder, survey, only)
    console = _console()
    if survey.search is not None:
        console.print(f"a search of {survey.search.trials} trials over:")
        for key, values in survey.search.space.items():
            console.print(shown(f"  {key}: {values}"))
        return
    table = Table(box=SIMPLE_HEAD, title=shown(str(folder.path)), title_justify="left")
    for heading in ("run", "state", "what sets it apart"):
        table.add_column(heading)
    for spec in chosen(survey, only):
        keys = ", ".join(f"{key}: {value}" for key, value in survey.cells[spec.cell].items())
        table.add_row(*map(shown, (spec.name, folder.state(spec.name), keys)))
    console.print(table)
    console.print(f"{len(survey.cells)} cells x {len(survey.seeds)} seeds")


def prepare(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    budget: str | None = None,
    workers: int | None = None,
    keep: str = "models",
    threads: int | None = None,
) -> tuple[SurveyDir, Survey]:
    """The directory, and what is to be run in it; refused if a part of it cannot work."""
    if keep not in get_args(Keep):
        raise UserError(f"--keep {keep!r}: expected {', '.join(get_args(Keep))}")
    path = Path(source).expanduser()
    if path.is_dir():
        folder = SurveyDir(path)
        survey = folder.survey
        if survey is None:
            raise UserError(
                f"{path}: not a survey's directory (no survey.yaml); give a survey file"
            )
        if (out, budget, threads) != (None, None, None):
            raise UserError(
                f"{path}: goes on as it was begun; leave -o, --budget and --threads out"
            )
        return folder, survey
    asked = Survey.read(path)
    chosen = budget or next(iter(asked.budgets), None)
    usual = Path("runs") / "-".join(filter(None, (path.stem, chosen)))
    folder = SurveyDir(Path(usual if out is None else out).expanduser())
    old = folder.survey
    # A survey keeps its number of threads: step times of its runs are to be compared.
    kept = old.base.threads if old is not None else threads or max(1, cores() // (workers or 1))
    survey = asked.resolved(budget, kept)
    if threads not in (None, survey.base.threads):
        raise UserError(
            f"--threads {threads}: the runs of {folder.path} have {survey.base.threads}, by their "
            "recipe or as they were begun; leave it out"
        )
    if old != survey:
        check(survey)
    if budget is None and len(asked.budgets) > 1:
        others = [name for name in asked.budgets if name != chosen]
        print(f"budget: {chosen} (there is also {listed(others)})", file=sys.stderr)
    return folder, survey


def check(survey: Survey) -> None:
    """Refuse what would fail a run of a resolved survey, or the comparison at its end."""
    found = recipes(survey)
    plans = cells.checked_plans(found)
    if survey.search is not None:
        check_search(survey.search, survey.base)
    known = [plan for plan in plans if plan is not None]
    # What a search comes to, or an encoder that is not here, nobody can tell yet.
    if survey.baseline is None or survey.search is not None or len(known) < len(plans):
        return
    labels = labels_to_be([recipe for recipe, _ in found], known)
    named = find_cell(survey.baseline, survey.cells)
    if named is None and survey.baseline not in (*labels, *known):
        expected = listed([repr(name) for name in survey.cells], 12)
        raise UserError(
            f"{survey.origin(('baseline',))}baseline is {survey.baseline!r}; expected the name of "
            f"a cell ({expected}), or its label in a comparison"
            + nearest(survey.baseline, [*survey.cells, *labels])
        )


def recipes(survey: Survey) -> list[tuple[Recipe, cells.Where]]:
    """The recipes of a resolved survey, and who sets their keys; of a search, some that have all
    of its values."""
    if survey.search is None:
        return [(spec.recipe, partial(survey.where, spec.cell)) for spec in survey.run_specs()]
    base = survey.base

    def where(key: str) -> str:
        return f"{survey.origin(('search', 'space', key), ('search', 'space'))}search.space"

    spaces = corners(survey.search)
    return [(cells.with_overrides(base, keys, where), where) for keys in spaces]


def chosen(survey: Survey, only: Sequence[str]) -> list[RunSpec]:
    """The runs of the cells asked for, or all."""
    named = {name: find_cell(name, survey.cells) for name in only}
    for name, cell in named.items():
        if cell is None:
            known = listed(list(survey.cells), 30)
            raise UserError(f"no cell {name!r}; there is {known}{nearest(name, survey.cells)}")
    return [spec for spec in survey.run_specs() if not only or spec.cell in named.values()]


def check_left(folder: SurveyDir, survey: Survey, only: Sequence[str] = ()) -> None:
    """Refuse runs that are not done and cannot be: their files are not there, or lack a column."""
    if survey.search is None:
        left = [s.recipe for s in chosen(survey, only) if not folder.run(s.name).finished]
    elif only:
        raise UserError("--only names cells, and a search finds its own; leave it out")
    else:
        left = [] if folder.begun else [recipe for recipe, _ in recipes(survey)]
    check_files(left)


def _console() -> Console:
    """As wide as the terminal; wide enough for the tables where there is none."""
    return plain_console(highlight=False, width=None if sys.stdout.isatty() else 140)


def _print_best(scheduler: SearchScheduler, console: Console) -> None:
    aims = scheduler.search.objectives
    console.print("No other trial is better in every aim:" if len(aims) > 1 else "Best trial:")
    for name, values, keys in scheduler.best():
        reached = "  ".join(f"{aim} {value:.4g}" for aim, value in zip(aims, values, strict=True))
        settings = "  ".join(f"{key}={value}" for key, value in keys.items())
        console.print(shown(f"  {name}  {reached}  ({settings})"))
