"""The number that picks the model of a run that is kept.

With few dev rows a share of right answers says little: of ten models that are equally good, the
luckiest would be kept. How likely a model finds the right classes hangs less on single rows. So by
default (`select: auto`) that stands in for the metric of a task with few dev rows, after the
temperature that the model would be given at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bough.data.examples import Examples
from bough.errors import listed
from bough.recipe.tasks import Task
from bough.scoring.calibration import log_likelihood
from bough.scoring.metrics import AGGREGATES, Predictions, normalised

FEW_ROWS = 1000  # dev rows, below which a metric hangs on single ones


def by_likelihood(task: Task, dev: Examples) -> bool:
    """Whether this task has a part in `auto` by its likelihood, not by its metric."""
    return task.kind == "classify" and len(dev) < FEW_ROWS


def explained(probabilities: NDArray[Any], truth: NDArray[Any]) -> float:
    """How much of what is unknown about the classes these probabilities take away, once they are
    calibrated: 0 as much as how often each class occurs, 1 all of it (McFadden's R squared)."""
    shares = np.bincount(truth) / len(truth)
    unknown = -float((shares[shares > 0] * np.log(shares[shares > 0])).sum())
    return 1 + log_likelihood(probabilities, truth) / max(unknown, 1e-9)


def said(select: str, tasks: Mapping[str, Task], examples: Mapping[str, Examples]) -> Iterator[str]:
    """What there is to say about it before training."""
    few = [name for name, task in tasks.items() if by_likelihood(task, examples[name])]
    if select == "auto" and few:
        rows = listed([f"{name} has {len(examples[name]):,} dev rows" for name in few])
        metrics = listed([*dict.fromkeys(tasks[name].metric_name for name in few)])
        yield (
            f"{rows}: the step that finds their labels likeliest will be kept, which hangs less on "
            f"single rows than {metrics}"
        )


def value(
    select: str,
    tasks: Mapping[str, Task],
    scores: Mapping[str, Any],
    examples: Mapping[str, Examples],
    answers: Mapping[str, Predictions],
) -> float | None:
    """The number that picks the best model of these answers on dev rows; none if the last is
    kept."""
    if select == "last":
        return None
    if select != "auto":
        return selected(scores, tasks, select)
    each = []
    for name, task in tasks.items():
        shares, targets = answers[name].probabilities, examples[name].targets
        if by_likelihood(task, examples[name]) and shares is not None and targets is not None:
            each.append(explained(shares, targets.numpy()))
        else:
            each.append(normalised(task, scores["tasks"][name][task.metric_name]))
    return float(np.mean(each))


def selected(scores: Mapping[str, Any], tasks: Mapping[str, Task], select: str) -> float:
    """The dev score of these tasks, or of the one named, that picks a model; higher is better."""
    if select in AGGREGATES:
        return float(scores[select])
    if select == "sum":
        return float(sum(scores["tasks"][n][t.metric_name] for n, t in tasks.items()))
    one = scores["tasks"][select]
    return float(one[one["metric"]])
