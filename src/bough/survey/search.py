"""Search: a survey whose cells optuna chooses from what the earlier ones gave.

Several aims at once are allowed, high scores and low costs; what comes out is their Pareto front.
The trials lie in `search.journal` of the survey's directory, what they gave in their runs. Optuna
ends a trial once and for all, so one that is tried again is a new trial of the same cell: it has
the same runs, and only the last trial of a cell counts.

Several processes may search in one directory, on one machine or on many that see the folder: a
trial is asked for under one lock, and whoever tries it holds a lock of its own, which goes with the
process. A trial that is running and whose lock nobody holds was left by a process that died, and is
taken over. Searches from before lie in `search.db` (SQLite), and go on there, by one process.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bough.comparison.cell_names import Overrides
from bough.errors import UserError, listed, nearest
from bough.extras import install_line
from bough.recipe.recipe import Recipe
from bough.runs.lock import LockedError, locked
from bough.runs.run_dir import Run
from bough.safe_text import shown
from bough.scoring.metrics import AGGREGATES
from bough.survey.cells import RunSpec, with_overrides
from bough.survey.launcher import Outcome
from bough.survey.pruning import evaluations, is_behind, score
from bough.survey.spec import COSTS, Search, Span, Survey
from bough.survey.survey_dir import JOURNALS, SurveyDir

JOURNAL, OLD = JOURNALS
AGAIN = "again"  # of a trial that is tried again: the number that its cell is named by


@dataclass
class Trial:
    """A cell that is being tried, once per seed."""

    number: int
    specs: list[RunSpec] = field(default_factory=list)
    done: set[str] = field(default_factory=set)  # runs
    ended: bool = False  # optuna knows how; runs that are left are in vain
    lock: ExitStack = field(default_factory=ExitStack)  # while it is ours to try


class JournalLock:
    """Of optuna's journal, in place of its own: that is a file, and stays when a process is killed.

    Others then wait for half a minute, two of them may take it at once, and where the journal's
    path is relative it is never found to be old.
    """

    def __init__(self, path: Path):
        self.path = path
        self.held = ExitStack()

    def acquire(self) -> bool:
        self.held.enter_context(locked(self.path, "search", wait=True))
        return True

    def release(self) -> None:
        self.held.close()


class SearchScheduler:
    """Runs that come from a search, as a launcher asks for them."""

    def __init__(self, survey: Survey, folder: SurveyDir, retry: bool = False):
        assert survey.search is not None
        self.survey = survey
        self.search = survey.search
        self.base = survey.base
        self.folder = folder
        check_search(self.search, self.base)
        self.optuna = _optuna()
        self.study = self._open()
        self.trials: dict[str, Trial] = {}  # by the runs' names
        self.queue: deque[RunSpec] = deque()
        self.seen: dict[str, int] = {}  # how often a run was judged when we last looked
        with self._deciding():
            self._take_over()
            if retry:
                self._retry()

    def close(self) -> None:
        """Let go of the trials that have not ended."""
        for trial in self.trials.values():
            trial.lock.close()

    @property
    def total(self) -> int:
        return self.search.trials * len(self.survey.seeds)

    def ended_before(self) -> Iterator[tuple[RunSpec, Outcome]]:
        """Runs of the trials that ended before."""
        for trial in self._latest():
            if not trial.state.is_finished() or "same_as" in trial.user_attrs:
                continue
            for spec in self._accepted(trial):
                state = self.folder.state(spec.name)
                # The other seeds of a trial that failed were stopped, or never begun.
                yield spec, state if state in ("done", "failed") else "pruned"

    def ask(self) -> RunSpec | None:
        if not self.queue:
            with self._deciding():
                self._ask()
        return self.queue.popleft() if self.queue else None

    def _ask(self) -> None:
        """One more trial, if there is one to be had; its runs are queued."""
        states = self.optuna.trial.TrialState
        while not self.queue:
            latest = self._latest()
            waiting = any(trial.state == states.WAITING for trial in latest)
            if not waiting and len(latest) >= self.search.trials:
                self._take_over()
                return
            self.study.sampler = self._sampler(len(latest))
            trial = self.study.ask(self._distributions())
            complete = self.study.get_trials(deepcopy=False, states=[states.COMPLETE])
            same = next((t for t in complete if t.params == trial.params), None)
            if same is not None:  # the same recipe and seeds would give the same again
                trial.set_user_attr("same_as", same.number)
                self.study.tell(trial.number, same.values)
                continue
            self._enter(trial)

    def tell(self, spec: RunSpec, outcome: Outcome) -> Sequence[RunSpec]:
        trial = self.trials[spec.name]
        states = self.optuna.trial.TrialState
        dropped: list[RunSpec] = []
        if trial.ended or outcome == "stopped":
            return ()
        if outcome == "done":
            trial.done.add(spec.name)
            if len(trial.done) < len(trial.specs):
                return ()
            each = zip(*(self._values(self.folder.run(name)) for name in trial.done), strict=True)
            self.study.tell(trial.number, [statistics.fmean(values) for values in each])
        else:  # then its other seeds would tell nothing more
            dropped = [s for s in self.queue if s in trial.specs]
            self.queue = deque(s for s in self.queue if s not in dropped)
            state = states.FAIL if outcome == "failed" else states.PRUNED
            self.study.tell(trial.number, state=state)
        trial.ended = True
        trial.lock.close()
        return dropped

    def should_prune(self, spec: RunSpec) -> bool:
        """Whether it is behind, or its trial has ended by another seed; asked when judged anew."""
        if spec.name in self.trials and self.trials[spec.name].ended:
            return True
        if not self.search.prune:
            return False
        run = self.folder.run(spec.name)
        try:
            judged = evaluations(run)
        except (UserError, OSError):
            return False
        if len(judged) <= self.seen.get(spec.name, 0):
            return False
        self.seen[spec.name] = len(judged)
        runs = map(Run, sorted((self.folder.path / "runs").iterdir()))
        return is_behind(run, judged, (r for r in runs if r.finished), self.search.objectives)

    def best(self) -> list[tuple[str, list[float], Overrides]]:
        """The trials that no other beats in all aims: name, values, keys."""
        return [
            (_cell(trial), list(trial.values), self._overrides(trial))
            for trial in self.study.best_trials
            if "same_as" not in trial.user_attrs
        ]

    # Trials and optuna's.

    def _open(self) -> Any:
        self.folder.path.mkdir(parents=True, exist_ok=True)
        storages, before = self.optuna.storages, self.folder.path / OLD
        if before.is_file():
            storage = storages.RDBStorage(f"sqlite:///{before.resolve()}")
        else:
            lock = JournalLock(self.folder.path / "searching" / "journal.lock")
            backend = storages.journal.JournalFileBackend(str(self.folder.path / JOURNAL), lock)
            storage = storages.JournalStorage(backend)
        directions = ["minimize" if n in COSTS else "maximize" for n in self.search.objectives]
        return self.optuna.create_study(
            study_name="survey", storage=storage, directions=directions, load_if_exists=True
        )

    def _sampler(self, asked: int) -> Any:
        """For the next trial: whoever asks, and however often the search was stopped before."""
        samplers = self.optuna.samplers
        kinds = {"tpe": samplers.TPESampler, "random": samplers.RandomSampler}
        return kinds[self.search.sampler](seed=self.search.seed * 100_003 + asked)

    def _deciding(self) -> AbstractContextManager[None]:
        """Within, no other process asks for a trial or takes one over."""
        return locked(self.folder.path / "searching" / ".lock", "search", wait=True)

    def _take_over(self) -> None:
        """Trials begun by a process that is gone: their runs are resumed, or just counted."""
        states = self.optuna.trial.TrialState
        ours = {trial.number for trial in self.trials.values()}
        for trial in self.study.get_trials(deepcopy=False, states=[states.RUNNING]):
            if trial.number in ours:
                continue
            if self._complete(trial):
                self._enter(trial)
            else:  # killed while it was being asked for
                self.study.tell(trial.number, state=states.FAIL)

    def _retry(self) -> None:
        """Queue the failed trials again; a run of theirs that is done is only counted."""
        for trial in self._latest():
            if trial.state == self.optuna.trial.TrialState.FAIL and (
                specs := self._accepted(trial)
            ):
                for spec in specs:
                    self.folder.failure(spec.name).unlink(missing_ok=True)
                self.study.enqueue_trial(trial.params, user_attrs={AGAIN: _number(trial)})

    def _latest(self) -> list[Any]:
        """Of every cell its last trial; those that never came to be are left out."""
        fail = self.optuna.trial.TrialState.FAIL
        every = self.study.get_trials(deepcopy=False)
        return [*{_number(t): t for t in every if t.state != fail or self._complete(t)}.values()]

    def _complete(self, trial: Any) -> bool:
        return set(trial.params) == set(self.search.space)

    def _enter(self, trial: Any) -> None:
        entered = Trial(trial.number)
        try:
            place = self.folder.path / "searching" / f"{trial.number}.lock"
            entered.lock.enter_context(locked(place, "trial"))
        except LockedError:
            return  # another process is at it
        # Whoever had it told how it ended before letting go of it: what we read before may be old.
        if self.study.get_trials(deepcopy=False)[trial.number].state.is_finished():
            entered.lock.close()
            return
        try:
            entered.specs = specs = self._specs(trial)
        except UserError as error:  # values that are each right, and not together
            print(shown(f"{error}; it is not run"), file=sys.stderr, flush=True)
            self.study.tell(trial.number, state=self.optuna.trial.TrialState.FAIL)
            entered.lock.close()
            return
        self.trials |= dict.fromkeys((spec.name for spec in specs), entered)
        self.queue.extend(specs)  # one that is done already is only counted

    def _distributions(self) -> dict[str, Any]:
        kinds = self.optuna.distributions
        distributions: dict[str, Any] = {}
        for key, values in self.search.space.items():
            if not isinstance(values, Span):
                distributions[key] = kinds.CategoricalDistribution([json.dumps(v) for v in values])
                continue
            low, high, log, step = values.low, values.high, values.log, values.step
            if all(isinstance(number, int) for number in (low, high, step or 1)):
                distributions[key] = kinds.IntDistribution(low, high, log=log, step=step or 1)
            else:
                distributions[key] = kinds.FloatDistribution(low, high, log=log, step=step)
        return distributions

    def _overrides(self, trial: Any) -> Overrides:
        space = self.search.space
        return {
            key: value if isinstance(space[key], Span) else json.loads(value)
            for key, value in trial.params.items()
        }

    def _specs(self, trial: Any) -> list[RunSpec]:
        cell, overrides = _cell(trial), self._overrides(trial)
        return [RunSpec.of(self.base, cell, overrides, seed) for seed in self.survey.seeds]

    def _accepted(self, trial: Any) -> list[RunSpec]:
        """Its runs; none where the recipe refuses the cell, which then counts as tried."""
        try:
            return self._specs(trial)
        except UserError:
            return []

    def _values(self, run: Run) -> list[float]:
        scores, cost = run.scores["dev"], run.cost
        return [
            float(cost[name]) if name in COSTS else score(scores, name)
            for name in self.search.objectives
        ]


def check_search(search: Search, base: Recipe) -> None:
    """Refuse aims that not every run has, and a space that no recipe takes."""
    cells = [with_overrides(base, keys, lambda key: "search.space") for keys in corners(search)]
    everywhere = [name for name in base.tasks if all(name in cell.tasks for cell in cells)]
    known = (*AGGREGATES, *COSTS, *everywhere)
    for name in search.objectives:
        if name in base.tasks and name not in everywhere:
            raise UserError(
                f"search.objectives: {name!r} is a task that search.space leaves out of some "
                f"cells; there is {listed(known, 20)}"
            )
        if name not in known:
            raise UserError(
                f"search.objectives: {name!r} is nothing to search for; there is "
                f"{listed(known, 20)}{nearest(name, known)}"
            )
    if len(set(search.objectives)) < len(search.objectives):
        raise UserError("search.objectives: one is named twice; name each once")


def corners(search: Search) -> Iterator[Overrides]:
    """Cells that between them have every listed value and both ends of every span."""
    ends: dict[str, Sequence[Any]] = {
        key: [values.low, values.high] if isinstance(values, Span) else values
        for key, values in search.space.items()
    }
    for i in range(max(map(len, ends.values()))):
        yield {key: values[min(i, len(values) - 1)] for key, values in ends.items()}


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError(f"a search needs optuna: {install_line('search')}") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _number(trial: Any) -> int:
    return int(trial.user_attrs.get(AGAIN, trial.number))


def _cell(trial: Any) -> str:
    return f"t{_number(trial)}"
