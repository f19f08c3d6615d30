"""Metrics equal scikit-learn's and scipy's; their intervals and aggregates the textbook's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import (
    accuracy_score,
    cohen_kappa_score,
    f1_score,
    matthews_corrcoef,
    roc_auc_score,
    root_mean_squared_error,
)
from statsmodels.stats.proportion import proportion_confint

from bough.recipe.tasks import Task
from bough.scoring.metrics import aggregates, interval, metrics
from bough.scoring.pseudo_values import pseudo_values

THREE = Task(kind="classify", text="a", labels=("x", "y", "z"))
TWO = Task(kind="classify", text=("a", "b"), labels=("0", "1"))
NUMBER = Task(kind="regress", text=("a", "b"), range=(0, 5))


def drawn(classes: int, n: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, n)
    return np.where(rng.random(n) < 0.6, truth, rng.integers(0, classes, n)), truth


@pytest.mark.parametrize(("task", "classes"), [(THREE, 3), (TWO, 2)])
@pytest.mark.parametrize("seed", range(5))
def test_classes(task: Task, classes: int, seed: int) -> None:
    predicted, truth = drawn(classes, 101, seed)
    found = metrics(task, predicted, truth)
    assert found["accuracy"] == np.mean(predicted == truth)
    assert found["f1"] == f1_score(truth, predicted, average="macro")
    assert found["mcc"] == matthews_corrcoef(truth, predicted)


@pytest.mark.parametrize("seed", range(5))
def test_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.uniform(0, 5, 863)
    predicted = np.clip(truth + rng.normal(0, 2, 863), 0, 5)
    found = metrics(NUMBER, predicted.astype(np.float32), truth.astype(np.float32))
    assert found["pearson"] == pytest.approx(stats.pearsonr(predicted, truth).statistic, abs=1e-7)
    assert found["spearman"] == pytest.approx(stats.spearmanr(predicted, truth).statistic, abs=1e-7)


def test_a_correlation_is_computed_in_double() -> None:
    truth = np.linspace(0, 5, 50, dtype=np.float32)
    predicted = (4 + 1e-4 * np.sin(np.arange(50))).astype(np.float32)
    exact = np.corrcoef(predicted.astype(float), truth.astype(float))[0, 1]
    assert metrics(NUMBER, predicted, truth)["pearson"] == pytest.approx(exact, abs=1e-12)


def test_constants_give_zero() -> None:
    truth = np.array([0.0, 1.0, 2.0, 5.0])
    for one, other in ((np.full(4, 2.0), truth), (truth, np.full(4, 2.0)), (truth[:1], truth[:1])):
        assert metrics(NUMBER, one, other) == {"pearson": 0.0, "spearman": 0.0}
    same = np.zeros(4, int)
    assert metrics(TWO, same, np.array([0, 1, 1, 0])) == {
        "accuracy": 0.5, "f1": pytest.approx(1 / 3), "mcc": 0.0
    }  # fmt: skip
    assert metrics(TWO, same, same)["mcc"] == 0.0
    assert metrics(TWO, same, same)["accuracy"] == 1.0


def test_nearly_constant_answers_are_no_warning() -> None:
    predicted = np.full(6, 1e9)
    predicted[0] += 1e-6
    found = metrics(NUMBER, predicted, np.arange(6.0))
    assert math.isfinite(found["pearson"])


def test_intervals_are_those_of_the_textbook() -> None:
    """Wilson's and Fisher's, but for what 500 examples leave open of the variance."""
    predicted, truth = drawn(3, 500, 1)
    right = int(np.sum(predicted == truth))
    assert interval(THREE, predicted, truth) == pytest.approx(
        proportion_confint(right, 500, method="wilson"), abs=5e-4
    )
    true = np.random.default_rng(1).normal(0, 1, 500)
    values = true + np.random.default_rng(0).normal(0, 1, 500)
    low, high = stats.pearsonr(values, true).confidence_interval()
    assert interval(NUMBER, values, true) == pytest.approx((low, high), abs=0.15 * (high - low))


@pytest.mark.parametrize("metric", ["accuracy", "f1", "mcc", "pearson", "spearman"])
def test_intervals_are_as_wide_as_the_bootstrap(metric: str) -> None:
    rng = np.random.default_rng(5)
    if metric in ("pearson", "spearman"):
        truth = rng.normal(size=300)
        predicted = truth + rng.normal(size=300)
        task = NUMBER.model_copy(update={"metric": metric})
    else:
        predicted, truth = drawn(3, 300, 7)
        task = THREE.model_copy(update={"metric": metric})
    low, high = interval(task, predicted, truth)
    value = metrics(task, predicted, truth)[metric]
    assert low < value < high
    draws = rng.integers(0, 300, (200, 300))
    spread = np.std([metrics(task, predicted[d], truth[d])[metric] for d in draws])
    assert (high - low) / (2 * 1.96) == pytest.approx(spread, rel=0.2)


def test_what_shows_no_variance_is_not_certain() -> None:
    truth = np.array([0.0, 1.0, 2.0, 5.0])
    low, high = interval(NUMBER, np.full(4, 2.0), truth)
    assert low == -high
    assert high > 0.9
    assert interval(NUMBER, truth[:1], truth[:1]) == (-1.0, 1.0)
    assert interval(TWO, np.ones(1, int), np.ones(1, int)) == (0.0, 1.0)
    low, high = interval(TWO, np.ones(9, int), np.ones(9, int))
    assert 0.5 < low < 0.7
    assert high == 1


def test_the_two_aggregates() -> None:
    """The figures of a printed table: accuracies .510 and .871, r .869, normalised .772."""
    tasks = {"sst": THREE, "para": TWO, "sts": NUMBER}
    found = {"sst": {"accuracy": 0.510}, "para": {"accuracy": 0.871}, "sts": {"pearson": 0.869}}
    both = aggregates(tasks, found)
    assert both["raw"] == pytest.approx((0.510 + 0.871 + 0.869) / 3)
    assert round(both["normalised"], 3) == 0.772
    negative = aggregates({"sts": NUMBER}, {"sts": {"pearson": -0.009}})
    assert negative == {"raw": -0.009, "normalised": pytest.approx(0.4955)}
    mcc = TWO.model_copy(update={"metric": "mcc"})
    assert aggregates({"cola": mcc}, {"cola": {"mcc": 0.5}})["normalised"] == 0.75
    assert all(map(math.isnan, aggregates(tasks, {}).values())), "nothing was judged"


# --- metrics that a recipe may name ---------------------------------------------------------------

Made = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]


def of_labels(seed: int, rows: int = 90, labels: int = 4) -> Made:
    """Answers, truth and probabilities of rows with any number of labels; the last is rare."""
    rng = np.random.default_rng(seed)
    truth = (rng.random((rows, labels)) < [0.5, 0.3, 0.2, 0.05]).astype(int)
    shares = np.clip(truth * 0.4 + rng.random((rows, labels)) * 0.6, 0, 1).round(2)  # with ties
    return (shares > 0.5).astype(int), truth, shares


def of_classes(seed: int, rows: int = 90, classes: int = 4) -> Made:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, rows)
    shares = rng.dirichlet(np.ones(classes), rows) + 0.4 * np.eye(classes)[truth]
    shares = (shares / shares.sum(1, keepdims=True)).round(2)
    shares[:, 0] += 1 - shares.sum(1)
    return shares.argmax(1), truth, shares


def of_numbers(seed: int, rows: int = 90) -> Made:
    rng = np.random.default_rng(seed)
    truth = rng.normal(40, 100, rows)
    return truth + rng.normal(0, 50, rows), truth, np.zeros((rows, 0))


KNOWN: dict[tuple[str, str], Any] = {
    ("classify", "f1-micro"): lambda p, t, s: f1_score(t, p, average="micro"),
    ("classify", "f1-weighted"): lambda p, t, s: f1_score(t, p, average="weighted"),
    ("classify", "auroc"): lambda p, t, s: roc_auc_score(t, s, multi_class="ovr"),
    ("ordinal", "kappa"): lambda p, t, s: cohen_kappa_score(t, p, weights="quadratic"),
    ("ordinal", "spearman"): lambda p, t, s: stats.spearmanr(p, t).statistic,
    ("multilabel", "accuracy"): lambda p, t, s: accuracy_score(t, p),
    ("multilabel", "f1"): lambda p, t, s: f1_score(t, p, average="macro"),
    ("multilabel", "f1-micro"): lambda p, t, s: f1_score(t, p, average="micro"),
    ("multilabel", "f1-weighted"): lambda p, t, s: f1_score(t, p, average="weighted"),
    ("multilabel", "auroc"): lambda p, t, s: roc_auc_score(t, s, average="macro"),
    ("regress", "rmse"): lambda p, t, s: -root_mean_squared_error(t, p),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("kind", "metric"), KNOWN)
def test_every_metric_is_scikit_learns(kind: Any, metric: Any, seed: int) -> None:
    """And so are its pseudo-values: the jackknife of scikit-learn's."""
    draw = {"multilabel": of_labels, "regress": of_numbers}.get(kind, of_classes)
    predicted, truth, shares = draw(seed)
    known = KNOWN[kind, metric]
    labels = None if kind == "regress" else ("a", "b", "c", "d")
    task = Task(kind=kind, text="x", labels=labels, metric=metric)
    found = metrics(task, predicted, truth, shares)
    assert found[metric] == pytest.approx(known(predicted, truth, shares), abs=1e-9)
    assert set(task.rules.metrics) <= found.keys()
    value, values = pseudo_values(metric, predicted, truth, len(labels or ()), shares)
    assert value == pytest.approx(found[metric], abs=1e-9)
    low, high = interval(task, predicted, truth, shares)
    assert low <= value <= high
    if metric == "spearman":
        return
    rows = np.arange(len(truth))
    without = np.array(
        [known(predicted[rows != i], truth[rows != i], shares[rows != i]) for i in rows]
    )
    jackknifed = (len(rows) - 1) * (without.mean() - without)
    np.testing.assert_allclose(values - values.mean(), jackknifed, atol=1e-7)


def test_a_class_that_is_never_there_says_nothing() -> None:
    task = Task(kind="multilabel", text="x", labels=("a", "b"), metric="auroc")
    truth = np.array([[1, 0], [0, 0], [1, 0], [0, 0]])
    shares = np.array([[0.9, 0.1], [0.2, 0.3], [0.8, 0.1], [0.1, 0.2]])
    assert metrics(task, (shares > 0.5).astype(int), truth, shares)["auroc"] == 0.75
    assert interval(task, (shares > 0.5).astype(int), truth, shares)[1] <= 1
