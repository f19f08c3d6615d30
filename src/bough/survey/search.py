"""Search: a survey whose cells optuna chooses from what the earlier ones gave.

Several aims at once are allowed, high scores and low costs; what comes out is their Pareto front.
The trials lie in `search.db` (SQLite) of the survey's directory, what they gave in their runs.
Optuna ends a trial once and for all, so one that is tried again is a new trial of the same cell:
it has the same runs, and only the last trial of a cell counts.
"""

from __future__ import annotations

import json
import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bough.errors import UserError, listed, nearest
from bough.recipe.recipe import Recipe
from bough.runs.run_dir import Run
from bough.survey.launcher import Folder, Outcome
from bough.survey.spec import COSTS, SCORES, Overrides, RunSpec, Search, Span, Survey

PEERS = 4  # finished runs to be judged by, before a run can be called hopeless
ABOUT = 1.05  # costs this close are the same
AGAIN = "again"  # of a trial that is tried again: the number that its cell is named by


@dataclass
class Trial:
    """A cell that is being tried, once per seed."""

    number: int
    orders: list[RunSpec]
    done: set[str] = field(default_factory=set)  # runs
    told: bool = False  # optuna knows how it ended; runs that are left are in vain


class Trials:
    """Orders that come from a search, as `fleet.Work`."""

    def __init__(self, survey: Survey, folder: Folder, retry: bool = False):
        assert survey.search is not None
        self.survey = survey
        self.search = survey.search
        self.base = survey.base
        self.folder = folder
        check(self.search, self.base)
        self.optuna = _optuna()
        self.study = self._open()
        self.trials: dict[str, Trial] = {}  # by the runs' names
        self.queue: deque[RunSpec] = deque()
        self.seen: dict[str, int] = {}  # how often a run was judged when we last looked
        self._go_on()
        if retry:
            self._retry()

    @property
    def total(self) -> int:
        return self.search.trials * len(self.survey.seeds)

    def known(self) -> Iterator[tuple[RunSpec, Outcome]]:
        """Runs of the trials that ended before."""
        for trial in self._latest():
            if not trial.state.is_finished() or "same_as" in trial.user_attrs:
                continue
            for order in self._orders(trial):
                state = self.folder.state(order.name)
                # The other seeds of a trial that failed were stopped, or never begun.
                yield order, state if state in ("done", "failed") else "pruned"

    def take(self) -> RunSpec | None:
        states = self.optuna.trial.TrialState
        while not self.queue:
            latest = self._latest()
            waiting = any(trial.state == states.WAITING for trial in latest)
            if not waiting and len(latest) >= self.search.trials:
                return None
            trial = self.study.ask(self._distributions())
            same = next(
                (
                    t
                    for t in self.study.get_trials(deepcopy=False, states=[states.COMPLETE])
                    if t.params == trial.params
                ),
                None,
            )
            if same is not None:  # the same recipe and seeds would give the same again
                trial.set_user_attr("same_as", same.number)
                self.study.tell(trial.number, same.values)
                continue
            self._enter(trial.number, self._orders(trial))
        return self.queue.popleft()

    def tell(self, order: RunSpec, outcome: Outcome) -> Sequence[RunSpec]:
        trial = self.trials[order.name]
        states = self.optuna.trial.TrialState
        dropped: list[RunSpec] = []
        if trial.told or outcome == "stopped":
            return dropped
        if outcome == "done":
            trial.done.add(order.name)
            if len(trial.done) < len(trial.orders):
                return dropped
            each = zip(*(self._values(self.folder.run(name)) for name in trial.done), strict=True)
            self.study.tell(trial.number, [statistics.fmean(values) for values in each])
        else:  # then its other seeds would tell nothing more
            dropped = [o for o in self.queue if o in trial.orders]
            self.queue = deque(o for o in self.queue if o not in dropped)
            state = states.FAIL if outcome == "failed" else states.PRUNED
            self.study.tell(trial.number, state=state)
        trial.told = True
        return dropped

    def hopeless(self, order: RunSpec) -> bool:
        """Whether the dev scores so far are below the median of finished runs that cost no more.

        Scores are compared at the same step, each at its best until then. A run is also hopeless
        when its trial has ended by another seed.
        """
        if order.name in self.trials and self.trials[order.name].told:
            return True
        if not self.search.prune:
            return False
        run = self.folder.run(order.name)
        try:
            judged = [entry for entry in run.metrics() if "dev" in entry]
        except (UserError, OSError):
            return False
        if len(judged) <= self.seen.get(order.name, 0):
            return False
        self.seen[order.name] = len(judged)
        step = int(judged[-1]["step"])
        costs = _running_costs(run)
        names = [name for name in self.search.objectives if name in COSTS]
        if any(name not in costs for name in names):
            return False
        scores = [name for name in self.search.objectives if name not in COSTS]
        behind = []
        for name in scores:
            peers = [
                best
                for peer in self._finished()
                if all(peer.cost[n] <= ABOUT * costs[n] for n in names)
                and (best := _best(peer, name, step)) is not None
            ]
            own = _best(run, name, step)
            if len(peers) < PEERS or own is None:
                return False
            behind.append(own < statistics.median(peers))
        return bool(behind) and all(behind)

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
        url = f"sqlite:///{(self.folder.path / 'search.db').resolve()}"
        storage = self.optuna.storages.RDBStorage(url)
        directions = ["minimize" if n in COSTS else "maximize" for n in self.search.objectives]
        study = self.optuna.create_study(
            study_name="survey", storage=storage, directions=directions, load_if_exists=True
        )
        # A search that goes on must not draw the same numbers again.
        seed = self.search.seed * 100_003 + len(study.get_trials(deepcopy=False))
        samplers = self.optuna.samplers
        study.sampler = (
            samplers.TPESampler(seed=seed)
            if self.search.sampler == "tpe"
            else samplers.RandomSampler(seed=seed)
        )
        return study

    def _go_on(self) -> None:
        """Trials that were begun when the survey ended: their runs are resumed, or just counted."""
        states = self.optuna.trial.TrialState
        for trial in self.study.get_trials(deepcopy=False, states=[states.RUNNING]):
            if not self._whole(trial):  # killed while it was being asked for
                self.study.tell(trial.number, state=states.FAIL)
                continue
            self._enter(trial.number, self._orders(trial))

    def _retry(self) -> None:
        """Queue the failed trials again; a run of theirs that is done is only counted."""
        for trial in self._latest():
            if trial.state == self.optuna.trial.TrialState.FAIL:
                for order in self._orders(trial):
                    self.folder.failure(order.name).unlink(missing_ok=True)
                self.study.enqueue_trial(trial.params, user_attrs={AGAIN: _number(trial)})

    def _latest(self) -> list[Any]:
        """Of every cell its last trial; those that never came to be are left out."""
        fail = self.optuna.trial.TrialState.FAIL
        every = self.study.get_trials(deepcopy=False)
        return [*{_number(t): t for t in every if t.state != fail or self._whole(t)}.values()]

    def _whole(self, trial: Any) -> bool:
        return set(trial.params) == set(self.search.space)

    def _enter(self, number: int, orders: list[RunSpec]) -> None:
        trial = Trial(number, orders)
        self.trials |= {order.name: trial for order in orders}
        self.queue.extend(orders)  # one that is done already is only counted

    def _distributions(self) -> dict[str, Any]:
        kinds = self.optuna.distributions
        found: dict[str, Any] = {}
        for key, values in self.search.space.items():
            if not isinstance(values, Span):
                found[key] = kinds.CategoricalDistribution([json.dumps(v) for v in values])
                continue
            whole = all(isinstance(end, int) for end in (values.low, values.high))
            if whole and (values.step is None or isinstance(values.step, int)):
                found[key] = kinds.IntDistribution(
                    values.low, values.high, log=values.log, step=values.step or 1
                )
            else:
                found[key] = kinds.FloatDistribution(
                    values.low, values.high, log=values.log, step=values.step
                )
        return found

    def _overrides(self, trial: Any) -> Overrides:
        lists = {key for key, own in self.search.space.items() if not isinstance(own, Span)}
        return {
            key: json.loads(value) if key in lists else value for key, value in trial.params.items()
        }

    def _orders(self, trial: Any) -> list[RunSpec]:
        cell, overrides = _cell(trial), self._overrides(trial)
        return [self.survey.order(self.base, cell, overrides, seed) for seed in self.survey.seeds]

    def _values(self, run: Run) -> list[float]:
        scores, cost = run.scores["dev"], run.cost
        return [
            float(cost[name]) if name in COSTS else _score(scores, name)
            for name in self.search.objectives
        ]

    def _finished(self) -> list[Run]:
        runs = self.folder.path / "runs"
        return [run for path in sorted(runs.iterdir()) if (run := Run(path)).finished]


def check(search: Search, base: Recipe) -> None:
    """Refuse aims that no run has, and a space that no recipe takes."""
    known = (*SCORES, *COSTS, *base.tasks)
    for name in search.objectives:
        if name not in known:
            said = f"{name!r} is nothing to search for; there is {listed(known, 20)}"
            raise UserError(f"search.objectives: {said}{nearest(name, known)}")
    if len(set(search.objectives)) < len(search.objectives):
        raise UserError("search.objectives: one is named twice; name each once")


def corners(search: Search) -> Iterator[Overrides]:
    """Cells that between them have every listed value and both ends of every span."""
    ends: dict[str, Sequence[Any]] = {
        key: [own.low, own.high] if isinstance(own, Span) else own
        for key, own in search.space.items()
    }
    for i in range(max(map(len, ends.values()))):
        yield {key: values[min(i, len(values) - 1)] for key, values in ends.items()}


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError("a search needs optuna: pip install 'bough[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _number(trial: Any) -> int:
    return int(trial.user_attrs.get(AGAIN, trial.number))


def _cell(trial: Any) -> str:
    return f"t{_number(trial)}"


def _score(scores: Mapping[str, Any], name: str) -> float:
    if name in SCORES:
        return float(scores[name])
    own = scores["tasks"][name]
    return float(own[own["metric"]])


def _best(run: Run, name: str, step: int) -> float | None:
    """The best dev score that a run had until this step."""
    found = [
        _score(entry["dev"], name)
        for entry in run.metrics()
        if "dev" in entry and entry["step"] <= step
    ]
    return max(found, default=None)


def _running_costs(run: Run) -> dict[str, float]:
    """What is known of a run's costs before its end: neither its whole time nor its memory."""
    costs: dict[str, float] = {}
    weights = run.model / "model.safetensors"
    if weights.is_file():
        costs["bytes_to_serve"] = weights.stat().st_size
    last = next((e for e in reversed(list(run.metrics())) if "seconds" in e), None)
    if last is not None and last["step"]:
        costs["step_seconds"] = last["seconds"] / last["step"]
    return costs
