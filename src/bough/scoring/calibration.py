"""Whether probabilities mean what they say, and the temperature that makes them.

A temperature T turns probabilities p into p^(1/T), scaled to sum to 1: the order of the classes,
and so every answer and every score, stays as it is (Guo et al., On calibration of modern neural
networks, ICML 2017).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 15
WIDEST = math.log(20)  # no temperature is above 20, or below 1/20


def calibration_error(probabilities: NDArray[Any], truth: NDArray[Any]) -> float:
    """ECE: how far the answers' probabilities are from how often they are right, in the mean.

    Answers are put into 15 bins of equal width by their probability; in each the mean probability
    is held against the share of right answers.
    """
    best = probabilities.argmax(1)
    return distance_from_right(probabilities[np.arange(len(best)), best], best == truth)


def distance_from_right(sure: NDArray[Any], right: NDArray[Any]) -> float:
    """The same of answers with these probabilities, of which these are right."""
    # Of a model whose weights are broken they are no numbers, and worth nothing.
    sure = np.nan_to_num(sure.astype(np.float64))
    bins = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, sure - right, BINS)
    return float(np.abs(gaps).sum() / max(len(right), 1))


def fit_temperature(probabilities: NDArray[Any], truth: NDArray[Any]) -> float:
    """The temperature under which the true classes are likeliest.

    A normal prior on its logarithm, with mean 0 and deviation 1, keeps it near 1 where a few rows,
    or rows that are all answered right, say nothing.
    """
    return _fitted(probabilities, truth)[0]


def log_likelihood(probabilities: NDArray[Any], truth: NDArray[Any]) -> float:
    """Of the true classes under that temperature, in the mean over the rows."""
    return _fitted(probabilities, truth)[1]


def _fitted(probabilities: NDArray[Any], truth: NDArray[Any]) -> tuple[float, float]:
    """The temperature, and the mean logarithm of what the true classes are given under it."""
    from scipy import optimize, special

    from bough.model.losses import SMALLEST

    logs = np.log(np.maximum(np.nan_to_num(probabilities.astype(np.float64)), SMALLEST))
    rows = np.arange(len(truth))

    def likelihood(log_temperature: float) -> float:
        scaled = special.log_softmax(logs * math.exp(-log_temperature), 1)
        return float(scaled[rows, truth].sum())

    found = optimize.minimize_scalar(
        lambda log_temperature: log_temperature**2 / 2 - likelihood(log_temperature),
        bounds=(-WIDEST, WIDEST),
        method="bounded",
    )
    return float(np.exp(found.x)), likelihood(found.x) / max(len(truth), 1)
