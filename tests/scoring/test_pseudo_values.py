"""Pseudo-values: their mean is the score, their scatter what the jackknife and bootstrap say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from bough.scoring.pseudo_values import pseudo_values
from bough.scoring.statistics import Floats, mean

METRICS = ("accuracy", "f1", "mcc", "pearson", "spearman")


def score(metric: str, predicted: Floats, truth: Floats) -> float:
    match metric:
        case "accuracy":
            return float(np.mean(predicted == truth))
        case "f1":
            return float(
                f1_score(truth, predicted, labels=[0, 1, 2], average="macro", zero_division=0)
            )
        case "mcc":
            return float(matthews_corrcoef(truth, predicted))
        case "pearson":
            return float(stats.pearsonr(predicted, truth).statistic)
    return float(stats.spearmanr(predicted, truth).statistic)


def answers(metric: str, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    if metric in ("pearson", "spearman"):
        truth = np.round(rng.uniform(0, 5, n), 1)  # graded labels have ties
        return truth + rng.normal(size=n) * (0.5 + truth / 5), truth
    truth = rng.integers(0, 3, n).astype(float)
    return np.where(rng.random(n) < 0.7, truth, rng.integers(0, 3, n)), truth


@pytest.mark.parametrize("metric", METRICS)
def test_pseudo_values_have_the_score_as_their_mean(metric: str) -> None:
    predicted, truth = answers(metric, 80, np.random.default_rng(0))
    value, values = pseudo_values(metric, predicted, truth, 3)
    assert value == pytest.approx(score(metric, predicted, truth), abs=1e-12)
    assert values.mean() == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("metric", ["accuracy", "f1", "mcc", "pearson"])
def test_pseudo_values_are_the_jackknife(metric: str) -> None:
    predicted, truth = answers(metric, 60, np.random.default_rng(1))
    _, values = pseudo_values(metric, predicted, truth, 3)
    without = np.array(
        [score(metric, np.delete(predicted, i), np.delete(truth, i)) for i in range(60)]
    )
    known = 59 * (without.mean() - without)
    np.testing.assert_allclose(values - values.mean(), known, atol=1e-9)


@pytest.mark.parametrize("metric", METRICS)
def test_pseudo_values_have_the_bootstraps_error(metric: str) -> None:
    """The bootstrap over examples is an independent judge of how far a score varies."""
    rng = np.random.default_rng(2)
    predicted, truth = answers(metric, 400, rng)
    _, values = pseudo_values(metric, predicted, truth, 3)
    draws = rng.integers(0, 400, (200, 400))
    spread = np.std([score(metric, predicted[d], truth[d]) for d in draws])
    assert mean([values[None]]).error == pytest.approx(spread, rel=0.2)


def test_constant_answers_have_no_correlation() -> None:
    for metric in ("pearson", "spearman"):
        value, values = pseudo_values(metric, np.ones(5), np.arange(5.0))
        assert value == 0
        assert not values.any()
