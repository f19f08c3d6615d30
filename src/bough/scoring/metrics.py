"""Answers to metrics to the two aggregates.

Two aggregates of the same scores exist and are often confused: *raw* is the plain mean of the
tasks' metrics, *normalised* first moves correlations from [-1, 1] to [0, 1]. Both are always given.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bough.recipe.kinds import SIGNED
from bough.recipe.tasks import Task
from bough.scoring import entities, statistics
from bough.scoring.pseudo_values import pseudo_values

AGGREGATES = ("raw", "normalised")


@dataclass(frozen=True)
class Predictions:
    """One task's answers on one split, in the order of its rows."""

    values: NDArray[Any]  # class indices, numbers in the range, 0 and 1 for each label, or spans
    probabilities: NDArray[np.float32] | None  # of classes; of spans, of each word's tags
    loss: float | None  # mean over the rows, where there are labels
    scores: NDArray[Any] | None = None  # of each row's spans, where the answers are spans


@dataclass(frozen=True)
class Judged:
    """One task's answers on one split, beside the truth."""

    predicted: NDArray[Any]
    truth: NDArray[Any]
    classes: int = 0  # none where the answers are numbers
    probabilities: NDArray[Any] | None = None

    @property
    def flat(self) -> bool:
        """A constant has no correlation; it knows nothing of the order, which is what 0 says."""
        few = len(self.truth) < 2
        return few or bool(np.ptp(self.predicted) == 0 or np.ptp(self.truth) == 0)

    @property
    def numbers(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """In single precision a correlation is right to four or five digits only."""
        return self.predicted.astype(np.float64), self.truth.astype(np.float64)


def _accuracy(judged: Judged) -> float:
    """Of labels: the share of rows in which all of them are right."""
    right = judged.predicted == judged.truth
    return float(np.mean(right if right.ndim == 1 else right.all(1)))


def _f1(judged: Judged, average: str) -> float:
    from sklearn.metrics import f1_score

    classes = list(range(judged.classes))
    found = f1_score(
        judged.truth, judged.predicted, labels=classes, average=average, zero_division=0
    )
    return float(found)


def _mcc(judged: Judged) -> float:
    from sklearn.metrics import matthews_corrcoef

    return 0.0 if judged.flat else float(matthews_corrcoef(judged.truth, judged.predicted))


def _kappa(judged: Judged) -> float:
    """Cohen's, with the squared distance between the two classes as what a mistake weighs."""
    if judged.flat:
        return 0.0
    from sklearn.metrics import cohen_kappa_score

    classes = list(range(judged.classes))
    found = cohen_kappa_score(judged.truth, judged.predicted, labels=classes, weights="quadratic")
    return float(found)


def _auroc(judged: Judged) -> float:
    """The mean over classes of each against the rest; 1/2 for one that is always or never there."""
    return pseudo_values(
        "auroc", judged.predicted, judged.truth, judged.classes, judged.probabilities
    )[0]


def _pearson(judged: Judged) -> float:
    if judged.flat:
        return 0.0
    from scipy import stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        pearson = stats.pearsonr(*judged.numbers).statistic
    return float(np.nan_to_num(pearson))  # nearly constant answers may still give none


def _spearman(judged: Judged) -> float:
    if judged.flat:
        return 0.0
    from scipy import stats

    return float(np.nan_to_num(stats.spearmanr(*judged.numbers).statistic))


def _rmse(judged: Judged) -> float:
    """With a minus: more is better, as of every other."""
    predicted, truth = judged.numbers
    return -float(np.sqrt(np.mean((predicted - truth) ** 2)))


def _of_spans(metric: str) -> Callable[[Judged], float]:
    return lambda judged: entities.score(metric, entities.counts(judged.predicted, judged.truth))


METRICS: Mapping[str, Callable[[Judged], float]] = {
    "accuracy": _accuracy,
    "f1": partial(_f1, average="macro"),
    "f1-micro": partial(_f1, average="micro"),
    "f1-weighted": partial(_f1, average="weighted"),
    "mcc": _mcc,
    "kappa": _kappa,
    "auroc": _auroc,
    "pearson": _pearson,
    "spearman": _spearman,
    "rmse": _rmse,
    "entity_f1": _of_spans("entity_f1"),
    "precision": _of_spans("precision"),
    "recall": _of_spans("recall"),
}


def metrics(
    task: Task,
    predicted: NDArray[Any],
    truth: NDArray[Any],
    probabilities: NDArray[Any] | None = None,
) -> dict[str, float]:
    """The metrics of a task's kind, and the one that counts, over the whole set (never a mean over
    batches)."""
    judged = Judged(predicted, truth, len(task.labels or ()), probabilities)
    names = dict.fromkeys((*task.rules.metrics, task.metric_name))
    return {name: METRICS[name](judged) for name in names}


def interval(
    task: Task,
    predicted: NDArray[Any],
    truth: NDArray[Any],
    probabilities: NDArray[Any] | None = None,
) -> tuple[float, float]:
    """Where the task's metric would lie on other examples of the same kind, at 95 %."""
    metric = task.metric_name
    _, values = pseudo_values(metric, predicted, truth, len(task.labels or ()), probabilities)
    return statistics.mean([values[None]]).interval(metric)


def judged(
    task: Task,
    predicted: NDArray[Any],
    truth: NDArray[Any],
    intervals: bool = False,
    probabilities: NDArray[Any] | None = None,
) -> dict[str, Any]:
    """One task's scores on one split."""
    answers = (predicted, truth, probabilities)
    scores = {"metric": task.metric_name, **metrics(task, *answers), "rows": len(truth)}
    return scores | ({"interval": list(interval(task, *answers))} if intervals else {})


def aggregate_weights(metrics: Sequence[str]) -> dict[str, tuple[list[float], float]]:
    """Each aggregate of tasks with these metrics: a weight for each score, and a constant."""
    n, signed = len(metrics), [metric in SIGNED for metric in metrics]
    halved = [(0.5 if s else 1) / n for s in signed]
    return {"raw": ([1 / n] * n, 0.0), "normalised": (halved, sum(signed) * 0.5 / n)}


def aggregates(
    tasks: Mapping[str, Task], per_task: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    if not per_task:  # no rows had labels
        return dict.fromkeys(AGGREGATES, math.nan)
    metrics = {name: tasks[name].metric_name for name in per_task}
    raw = [per_task[name][metric] for name, metric in metrics.items()]
    between = [normalised(tasks[name], score) for name, score in zip(metrics, raw, strict=True)]
    return {"raw": float(np.mean(raw)), "normalised": float(np.mean(between))}


def normalised(task: Task, score: float) -> float:
    """A correlation moved from -1...1 to 0...1; other metrics lie there."""
    return (score + 1) / 2 if task.metric_name in SIGNED else score
