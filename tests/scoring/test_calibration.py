"""Calibration: the textbook's ECE, and the temperature that made the probabilities wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from bough.scoring.calibration import calibration_error, fit_temperature


def drawn(rows: int, classes: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Logits whose softmax is right, and classes drawn from it."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (rows, classes))
    truth = [rng.choice(classes, p=shares) for shares in special.softmax(logits, 1)]
    return logits, np.array(truth)


def plain_ece(probabilities: NDArray[Any], truth: NDArray[Any], bins: int = 15) -> float:
    """As Guo et al. write it, bin by bin."""
    sure, right = probabilities.max(1), probabilities.argmax(1) == truth
    total = 0.0
    for low in np.arange(bins) / bins:
        inside = (sure > low) & (sure <= low + 1 / bins)
        if inside.any():
            total += inside.mean() * abs(sure[inside].mean() - right[inside].mean())
    return total


@pytest.mark.parametrize("classes", [2, 5])
def test_ece_is_the_papers(classes: int) -> None:
    logits, truth = drawn(3000, classes, 1)
    for temperature in (0.4, 1.0, 3.0):
        shares = special.softmax(logits / temperature, 1)
        expected = plain_ece(shares, truth)
        assert calibration_error(shares.astype(np.float32), truth) == pytest.approx(
            expected, abs=1e-5
        )
    assert calibration_error(np.eye(classes)[truth], truth) == 0
    wrong = np.eye(classes)[(truth + 1) % classes]
    assert calibration_error(wrong, truth) == 1


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("too_sure", [0.25, 1.0, 3.0])
def test_the_temperature_is_found_again(classes: int, too_sure: float) -> None:
    logits, truth = drawn(4000, classes, 2)
    shares = special.softmax(logits * too_sure, 1)
    found = fit_temperature(shares.astype(np.float32), truth)
    assert found == pytest.approx(too_sure, rel=0.1)
    mended = special.softmax(np.log(shares) / found, 1)
    assert calibration_error(mended, truth) < 0.03
    if too_sure != 1:
        assert calibration_error(mended, truth) < calibration_error(shares, truth) / 2


def test_few_rows_that_are_all_right_say_little() -> None:
    """The likeliest temperature would be 0, and every answer certain."""
    shares = np.full((8, 2), [0.9, 0.1])
    assert 0.3 < fit_temperature(shares, np.zeros(8, int)) < 1


def test_a_probability_of_nothing_is_survived() -> None:
    shares = np.array([[1.0, 0.0]] * 20)
    found = fit_temperature(shares, np.array([0] * 19 + [1]))
    assert 1 < found <= 20.001
