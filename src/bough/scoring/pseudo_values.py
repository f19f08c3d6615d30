"""A score taken apart into one number per example: the jackknife's pseudo-values.

Their mean is the score and their scatter its noise, so that a score can be treated like any mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bough.scoring import entities
from bough.scoring.statistics import Floats


def pseudo_values(
    metric: str, predicted: NDArray[Any], truth: NDArray[Any], classes: int = 0
) -> tuple[float, Floats]:
    """The score, and one number per example with that mean: how the score hangs on each.

    Accuracy is such a mean already. The other pseudo-values are moved to have the score itself as
    their mean; Spearman's are the infinitesimal jackknife's.
    """
    match metric:
        case "accuracy":
            right = (predicted == truth).astype(np.float64)
            return float(right.mean()), right
        case "f1" | "mcc":
            return _from_counts(_f1 if metric == "f1" else _mcc, predicted, truth, classes)
        case "pearson":
            return _pearson(predicted.astype(np.float64), truth.astype(np.float64))
        case "spearman":
            return _spearman(predicted.astype(np.float64), truth.astype(np.float64))
        case "entity_f1" | "precision" | "recall":
            found = entities.counts(predicted, truth)
            return jackknife(entities.score(metric, found), entities.without_each(metric, found))
    raise ValueError(f"unknown metric {metric!r}")


def jackknife(score: float, without: Floats) -> tuple[float, Floats]:
    """From the scores without each example to the pseudo-values."""
    return score, score + (len(without) - 1) * (without.mean() - without)


def _constant(x: Floats, y: Floats) -> bool:
    return len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0


def _pearson(x: Floats, y: Floats) -> tuple[float, Floats]:
    if _constant(x, y):  # as in `metrics`: no order is known, which is what 0 says
        return 0.0, np.zeros(len(x))
    n = len(x)
    x, y = x - x.mean(), y - y.mean()

    def less_one(a: Floats, b: Floats) -> Floats:
        """Sum of products about the mean, without each example in turn."""
        return np.asarray(a @ b - a * b * n / (n - 1))

    below = np.sqrt(np.maximum(less_one(x, x), 0) * np.maximum(less_one(y, y), 0))
    without = np.divide(less_one(x, y), below, out=np.zeros(n), where=below > 0)
    return jackknife(float(x @ y / math.sqrt((x @ x) * (y @ y))), np.clip(without, -1, 1))


def _spearman(x: Floats, y: Floats) -> tuple[float, Floats]:
    """Pearson's r of F(x) and G(y), the middle ranks; an example moves the others' ranks, too."""
    if _constant(x, y):
        return 0.0, np.zeros(len(x))
    f, below_x = _ranks(x)
    g, below_y = _ranks(y)
    cov, var_f, var_g = (float(np.mean((a - 0.5) * (b - 0.5))) for a, b in ((f, g), (f, f), (g, g)))
    rho = cov / math.sqrt(var_f * var_g)
    # E[F] is 1/2 whatever the data, so only the mean products move.
    of_cov = f * g + below_x(g) + below_y(f) - 3 * (cov + 0.25)
    of_f = f * f + 2 * below_x(f) - 3 * (var_f + 0.25)
    of_g = g * g + 2 * below_y(g) - 3 * (var_g + 0.25)
    influence = of_cov / math.sqrt(var_f * var_g) - rho / 2 * (of_f / var_f + of_g / var_g)
    return rho, rho + influence - influence.mean()


def _ranks(x: Floats) -> tuple[Floats, Callable[[Floats], Floats]]:
    """Middle ranks from 0 to 1, and a function: mean of v over those above x[i], ties by half."""
    n = len(x)
    _, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2) / n

    def above(v: Floats) -> Floats:
        total = np.bincount(place, v)
        return np.asarray(((total.sum() - np.cumsum(total) + total / 2) / n)[place])

    return ranks[place], above


def _f1(counts: Floats) -> float:
    both = counts.sum(0) + counts.sum(1)
    return float(np.mean(2 * np.diag(counts) / np.where(both > 0, both, 1)))


def _mcc(counts: Floats) -> float:
    predicted, true, n = counts.sum(0), counts.sum(1), counts.sum()
    below = (n * n - predicted @ predicted) * (n * n - true @ true)
    return float((np.trace(counts) * n - predicted @ true) / math.sqrt(below)) if below > 0 else 0.0


def _from_counts(
    score: Callable[[Floats], float], predicted: NDArray[Any], truth: NDArray[Any], classes: int
) -> tuple[float, Floats]:
    """Examples of one true and one predicted class are alike, so each kind is left out once."""
    cell = truth.astype(np.int64) * classes + predicted.astype(np.int64)
    counts = np.bincount(cell, minlength=classes * classes).astype(np.float64)
    without = np.zeros(classes * classes)
    for kind in np.flatnonzero(counts):
        counts[kind] -= 1
        without[kind] = score(counts.reshape(classes, classes))
        counts[kind] += 1
    return jackknife(score(counts.reshape(classes, classes)), without[cell])
