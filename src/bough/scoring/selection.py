"""The number that picks the model of a run that is kept.

With few dev rows a share of right answers says little: of ten models that are equally good, the
luckiest would be kept. How likely a model finds the right classes hangs less on single rows. So by
default (`select: auto`) that stands in for the accuracy of a task with few rows to judge by, after
the temperature that the model would be given at its end. Who names a metric, or gives rare classes
more weight, wants another model than the likeliest, and gets it.
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

FEW_ROWS = 1000  # rows to judge by, below which a metric hangs on single ones


def by_likelihood(task: Task, judged: Examples) -> bool:
    """Whether this task has a part in `auto` by its likelihood, not by its metric."""
    plain = task.metric_name == "accuracy" and task.class_weights is None
    return task.kind == "classify" and plain and len(judged) < FEW_ROWS


def likelihood(probabilities: NDArray[Any], truth: NDArray[Any]) -> float:
    """The probability of a true class, in the geometric mean over rows, once it is calibrated: from
    0 to 1 as an accuracy is, so that it has no more weight among other tasks' scores than that."""
    return float(np.exp(log_likelihood(probabilities, truth)))


def said(select: str, tasks: Mapping[str, Task], examples: Mapping[str, Examples]) -> Iterator[str]:
    """What there is to say about it before training."""
    few = [name for name, task in tasks.items() if by_likelihood(task, examples[name])]
    if select == "auto" and few:
        rows = listed([f"{name} is judged by {len(examples[name]):,} dev rows" for name in few])
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
            each.append(likelihood(shares, targets.numpy()))
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
