"""A score taken apart into one number per example: the jackknife's pseudo-values.

Their mean is the score and their scatter its noise, so that a score can be treated like any mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bough.scoring import entities
from bough.scoring.statistics import Floats


def pseudo_values(
    metric: str,
    predicted: NDArray[Any],
    truth: NDArray[Any],
    classes: int = 0,
    probabilities: NDArray[Any] | None = None,
) -> tuple[float, Floats]:
    """The score, and one number per example with that mean: how the score hangs on each.

    Accuracy is such a mean already. The other pseudo-values are moved to have the score itself as
    their mean; Spearman's are the infinitesimal jackknife's.
    """
    labels = predicted.ndim == 2  # 0 or 1 for each
    match metric:
        case "accuracy" | "f1-micro" if not labels:  # of one class each, these are the same
            return _mean((predicted == truth).astype(np.float64))
        case "accuracy":
            return _mean((predicted == truth).all(1).astype(np.float64))
        case "f1" | "f1-micro" | "f1-weighted" if labels:
            return _f1_of_labels(metric, predicted.astype(bool), truth.astype(bool))
        case "f1" | "f1-weighted" | "mcc" | "kappa":
            return _from_counts(_OF_COUNTS[metric], predicted, truth, classes)
        case "auroc":
            assert probabilities is not None
            return _auroc(probabilities, truth if labels else np.eye(classes)[truth])
        case "pearson":
            return _pearson(predicted.astype(np.float64), truth.astype(np.float64))
        case "spearman":
            return _spearman(predicted.astype(np.float64), truth.astype(np.float64))
        case "rmse":
            return _rmse((predicted.astype(np.float64) - truth) ** 2)
        case "entity_f1" | "precision" | "recall":
            found = entities.counts(predicted, truth)
            return jackknife(entities.score(metric, found), entities.without_each(metric, found))
    raise ValueError(f"unknown metric {metric!r}")


def _mean(values: Floats) -> tuple[float, Floats]:
    return float(values.mean()), values


def jackknife(score: float, without: Floats) -> tuple[float, Floats]:
    """From the scores without each example to the pseudo-values."""
    return score, score + (len(without) - 1) * (without.mean() - without)


def _constant(x: Floats, y: Floats) -> bool:
    return len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0


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


def _weighted_f1(counts: Floats) -> float:
    true, both = counts.sum(1), counts.sum(0) + counts.sum(1)
    each = 2 * np.diag(counts) / np.where(both > 0, both, 1)
    return float(each @ true / max(true.sum(), 1))


def _kappa(counts: Floats) -> float:
    """Cohen's, where a mistake weighs the squared distance of the two classes."""
    places = np.arange(len(counts))
    weights = (places[:, None] - places[None, :]) ** 2
    by_chance = np.outer(counts.sum(1), counts.sum(0)) / max(counts.sum(), 1)
    expected = float((weights * by_chance).sum())
    return 1 - float((weights * counts).sum()) / expected if expected > 0 else 0.0


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


_OF_COUNTS: Mapping[str, Callable[[Floats], float]] = {
    "f1": _f1, "f1-weighted": _weighted_f1, "mcc": _mcc, "kappa": _kappa
}  # fmt: skip


def _f1_of_labels(
    metric: str, predicted: NDArray[np.bool_], truth: NDArray[np.bool_]
) -> tuple[float, Floats]:
    """F1 of rows with any number of labels, [n, labels], and without each row in turn."""
    right = (predicted & truth).astype(np.float64)
    both = predicted.astype(np.float64) + truth
    there = truth.astype(np.float64)

    def score(right: Floats, both: Floats, there: Floats) -> Floats:
        """Of totals over the rows, [..., labels]."""
        if metric == "f1-micro":
            right, both = right.sum(-1, keepdims=True), both.sum(-1, keepdims=True)
        each = np.divide(2 * right, both, out=np.zeros_like(both), where=both > 0)
        if metric == "f1-weighted":
            return np.asarray((each * there).sum(-1) / np.maximum(there.sum(-1), 1))
        return np.asarray(each.mean(-1))

    parts = (right, both, there)
    without = score(*(part.sum(0) - part for part in parts))
    return jackknife(float(score(*(part.sum(0) for part in parts))), without)


def _auroc(probabilities: NDArray[Any], truth: NDArray[Any]) -> tuple[float, Floats]:
    """Each class against the rest, [n, classes]: how often one that is of it is held likelier than
    one that is not. Without an example of either side nothing is known, which is what 1/2 says."""
    whole, without = [], []
    for shares, of_class in zip(probabilities.T.astype(np.float64), truth.T > 0, strict=True):
        sides = [np.sort(shares[of_class]), np.sort(shares[~of_class])]
        below = [  # of each example, the share of each side that is below it, ties by half
            (np.searchsorted(side, shares, "left") + np.searchsorted(side, shares, "right"))
            / (2 * max(len(side), 1))
            for side in sides
        ]
        wins = np.where(of_class, below[1], 1 - below[0])
        own = np.where(of_class, len(sides[0]), len(sides[1]))
        known = bool(len(sides[0]) and len(sides[1]))
        value = float(wins[of_class].mean()) if known else 0.5
        left = np.divide(value * own - wins, own - 1, out=np.full(len(own), 0.5), where=own > 1)
        whole.append(value)
        without.append(left if known else np.full(len(own), 0.5))
    return jackknife(float(np.mean(whole)), np.mean(without, 0))


def _rmse(squares: Floats) -> tuple[float, Floats]:
    n = len(squares)
    rest = np.maximum(squares.sum() - squares, 0) / max(n - 1, 1)
    return jackknife(-float(np.sqrt(squares.mean())), -np.sqrt(rest))
