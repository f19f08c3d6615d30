"""Which model of a run is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss

from bough.data.examples import Examples
from bough.data.tokens import Sequences
from bough.recipe.tasks import Task
from bough.scoring import selection
from bough.scoring.metrics import Predictions, aggregates
from bough.scoring.selection import FEW_ROWS, likelihood, selected

THREE = Task(kind="classify", text="a", labels=("x", "y", "z"))
NUMBER = Task(kind="regress", text=("a", "b"), range=(0, 5))


def test_what_selects() -> None:
    tasks = {"sst": THREE, "sts": NUMBER}
    found: dict[str, Any] = {
        "sst": {"metric": "accuracy", "accuracy": 0.5, "f1": 0.9},
        "sts": {"metric": "pearson", "pearson": 0.2, "spearman": 0.8},
    }
    scores = {"tasks": found, **aggregates(tasks, found)}
    assert selected(scores, tasks, "raw") == pytest.approx(0.35)
    assert selected(scores, tasks, "normalised") == pytest.approx(0.55)
    assert selected(scores, tasks, "sum") == pytest.approx(0.7)
    assert selected(scores, tasks, "sst") == 0.5
    assert selected(scores, {"sst": THREE}, "sts") == 0.2  # which only helps, and may be named


def drawn(rows: int, sure: float, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Probabilities of three classes that lean to the truth, and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, rows)
    logits = rng.normal(size=(rows, 3)) + sure * np.eye(3)[truth]
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return shares, truth


def test_likelihood() -> None:
    shares, truth = drawn(5000, 1.0, 0)
    # These are calibrated as they are: the temperature is 1, more or less.
    assert likelihood(shares, truth) == pytest.approx(np.exp(-log_loss(truth, shares)), abs=0.01)
    assert likelihood(np.full((9, 3), 1 / 3), np.arange(9) % 3) == pytest.approx(1 / 3)
    assert likelihood(np.eye(3)[truth], truth) == pytest.approx(1, abs=1e-3)


def test_a_model_that_is_too_sure_is_not_blamed_for_it() -> None:
    """It is given its temperature in the end."""
    shares, truth = drawn(5000, 1.0, 1)
    sharp = shares**6 / (shares**6).sum(1, keepdims=True)
    assert log_loss(truth, sharp) > 2 * log_loss(truth, shares)
    assert likelihood(sharp, truth) == pytest.approx(likelihood(shares, truth), abs=1e-3)


def test_no_task_outweighs_the_others() -> None:
    """Twelve dev rows of one class, found a little less likely, beside numbers told much better."""
    found = []
    for sure, pearson in ((0.98, 0.4), (0.975, 0.9)):
        few = judged(np.tile([sure, (1 - sure) / 2, (1 - sure) / 2], (12, 1)), np.zeros(12, int))
        few["scores"]["tasks"]["sts"] = {"metric": "pearson", "pearson": pearson}
        few["examples"]["sts"] = few["examples"]["sst"]
        few["answers"]["sts"] = Predictions(np.zeros(12), None, None)
        found.append(selection.value("auto", {"sst": THREE, "sts": NUMBER}, **few))
    worse, better = found
    assert worse is not None
    assert better is not None
    assert 0 <= worse < better <= 1


def test_a_metric_that_was_named_and_weights_of_classes_decide() -> None:
    few = judged(*drawn(50, 1.0, 4))
    few["scores"]["tasks"]["sst"] |= {"f1": 0.25, "metric": "f1"}
    named = THREE.model_copy(update={"metric": "f1"})
    assert selection.value("auto", {"sst": named}, **few) == 0.25
    weighted = THREE.model_copy(update={"class_weights": "balanced"})
    accuracy = few["scores"]["tasks"]["sst"]["accuracy"]
    assert selection.value("auto", {"sst": weighted}, **few) == accuracy
    assert not [*selection.said("auto", {"sst": named}, few["examples"])]


def judged(shares: np.ndarray[Any, Any], truth: np.ndarray[Any, Any]) -> dict[str, Any]:
    rows = len(truth)
    tokens = Sequences(np.ones(rows, np.int32), np.zeros(rows, np.int8), np.arange(rows + 1))
    examples = Examples(tokens, np.arange(rows).reshape(-1, 1), torch.from_numpy(truth), 0)
    answers = Predictions(shares.argmax(1), shares.astype(np.float32), None)
    accuracy = float((answers.values == truth).mean())
    found: dict[str, Any] = {"sst": {"metric": "accuracy", "accuracy": accuracy}}
    scores = {"tasks": found, **aggregates({"sst": THREE}, found)}
    return {"scores": scores, "examples": {"sst": examples}, "answers": {"sst": answers}}


def test_few_rows_are_judged_by_likelihood_and_many_by_the_metric() -> None:
    few, many = (judged(*drawn(rows, 1.0, 2)) for rows in (FEW_ROWS - 1, FEW_ROWS))
    tasks = {"sst": THREE}
    assert selection.value("auto", tasks, **many) == many["scores"]["normalised"]
    likely = likelihood(few["answers"]["sst"].probabilities, few["examples"]["sst"].targets.numpy())
    assert selection.value("auto", tasks, **few) == pytest.approx(likely)
    assert selection.value("normalised", tasks, **few) == few["scores"]["normalised"]
    assert selection.value("last", tasks, **few) is None
    (sentence,) = selection.said("auto", tasks, few["examples"])
    assert sentence.startswith(
        "sst is judged by 999 dev rows: the step that finds their labels likeliest"
    )
    assert not [*selection.said("auto", tasks, many["examples"])]
    assert not [*selection.said("normalised", tasks, few["examples"])]


def test_numbers_are_judged_by_their_metric() -> None:
    few = judged(*drawn(50, 1.0, 3))
    found = few["scores"]["tasks"] | {"sts": {"metric": "pearson", "pearson": 0.4}}
    few["scores"]["tasks"] = found
    few["examples"]["sts"] = few["examples"]["sst"]
    few["answers"]["sts"] = Predictions(np.zeros(50), None, None)
    alone = selection.value("auto", {"sst": THREE}, **few)
    assert alone is not None
    both = selection.value("auto", {"sst": THREE, "sts": NUMBER}, **few)
    assert both == pytest.approx((alone + 0.7) / 2)


def test_it_picks_better_than_accuracy_does() -> None:
    """Of models that are really better and worse, on 100 rows, as a run judges its epochs."""
    lost: dict[str, list[float]] = {"auto": [], "normalised": []}
    for seed in range(200):
        rng = np.random.default_rng(seed)
        truth, noise = rng.integers(0, 3, 100), rng.normal(size=(100, 3))
        strengths = np.linspace(0.4, 1.2, 9)
        values: dict[str, list[float]] = {"auto": [], "normalised": []}
        for strength in strengths:  # each epoch errs on rows of its own, too
            logits = noise + 0.7 * rng.normal(size=(100, 3)) + strength * np.eye(3)[truth]
            shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            for select, found in values.items():
                value = selection.value(select, {"sst": THREE}, **judged(shares, truth))
                assert value is not None
                found.append(value)
        for select, found in values.items():
            lost[select].append(strengths.max() - strengths[int(np.argmax(found))])
    assert np.mean(lost["auto"]) < 0.8 * np.mean(lost["normalised"])
