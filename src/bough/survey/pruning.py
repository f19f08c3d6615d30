"""Pruning: whether a run falls so far behind others that it is not worth going on with.

The rule is that of Optuna's `MedianPruner`, which cannot be had: Optuna prunes only where there is
one objective, and knows nothing of costs, of several seeds to a trial, or of runs that go on in
other processes and after a restart. Here all is read off the run directories.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bough.runs.run_dir import Run
from bough.scoring.metrics import AGGREGATES
from bough.survey.spec import COSTS

PEERS = 4  # finished runs to be judged by, before a run can be pruned
ABOUT = 1.05  # costs this close are the same

Evaluation = tuple[int, Mapping[str, Any]]  # step, dev scores


def evaluations(run: Run) -> list[Evaluation]:
    """All but that of step 0, where nothing has been learned yet."""
    judged = (entry for entry in run.metrics() if "dev" in entry and entry["step"])
    return [(int(entry["step"]), entry["dev"]) for entry in judged]


def score(scores: Mapping[str, Any], name: str) -> float:
    """An objective among the scores of a split: an aggregate, or a task's."""
    if name in AGGREGATES:
        return float(scores[name])
    task = scores["tasks"][name]
    return float(task[task["metric"]])


def is_behind(
    run: Run, judged: Sequence[Evaluation], peers: Iterable[Run], objectives: Sequence[str]
) -> bool:
    """Whether its dev scores are all below the median of finished runs that cost no more.

    Scores are compared at the same step, each at its best until then.
    """
    wanted, step = [name for name in objectives if name in COSTS], judged[-1][0]
    costs = _costs_so_far(run)
    if any(name not in costs for name in wanted):
        return False
    fair = [
        evaluations(peer)
        for peer in peers
        if all(peer.cost[name] <= ABOUT * costs[name] for name in wanted)
    ]
    scores = [name for name in objectives if name not in COSTS]
    for name in scores:
        bests = [best for peer in fair if (best := _best(peer, name, step)) is not None]
        own = _best(judged, name, step)
        if own is None or len(bests) < PEERS or own >= statistics.median(bests):
            return False
    return bool(scores)


def _best(judged: Sequence[Evaluation], name: str, until: int) -> float | None:
    return max((score(scores, name) for step, scores in judged if step <= until), default=None)


def _costs_so_far(run: Run) -> dict[str, float]:
    """What is known of a run's costs before its end: neither its whole time nor its memory."""
    costs: dict[str, float] = {}
    weights = run.model / "model.safetensors"
    if weights.is_file():
        costs["bytes_to_serve"] = weights.stat().st_size
    paces = _paces(run)
    if paces:
        # As a finished run's: warming up, or another's load for a while, is not its pace.
        costs["step_seconds"] = statistics.median(paces)
    return costs


def _paces(run: Run) -> list[float]:
    """Seconds per step from each line of the log to the next."""
    lines = [(0, 0.0), *((e["step"], e["seconds"]) for e in run.metrics() if "seconds" in e)]
    return [
        (seconds - before) / (step - earlier)
        for (earlier, before), (step, seconds) in itertools.pairwise(lines)
        if step > earlier
    ]
