"""Confusions are shares of the truth, calibration is the share of right answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bough.comparison.compare import Comparison, compare
from bough.reports.answers import task_answers
from bough.reports.page import page
from bough.scoring.calibration import calibration_error
from tests import simulated
from tests.html_page import Page


def test_confusions_are_shares_of_each_true_class(comparison: Comparison) -> None:
    made = task_answers(comparison, "sst", {})
    assert made.kind == "classify"
    scores = [comparison.scores[v.label]["sst"].value for v in made.variants]
    assert scores == sorted(scores, reverse=True)
    for variant, score in zip(made.variants, scores, strict=True):
        assert variant.map is None
        assert variant.classes == ("0", "1", "2", "3", "4")
        shares = np.array(variant.shares)
        assert shares.sum(1) == pytest.approx(1)
        # 120 rows, as many of each of the five classes: the mean of the diagonal is the accuracy.
        assert np.diag(shares).mean() == pytest.approx(score)


def test_calibration_error_by_hand(comparison: Comparison) -> None:
    made = task_answers(comparison, "quora", {})
    for label, error in made.calibration_errors:
        each = []
        for run in comparison.answers[label, "quora"]:
            assert run.probabilities is not None
            sure, right = run.probabilities.max(1), run.said == run.truth
            bins = np.digitize(sure, np.arange(1, 15) / 15)
            gaps = [abs(np.sum(right[bins == n]) - np.sum(sure[bins == n])) for n in range(15)]
            each.append(sum(gaps) / len(sure))
        assert len(each) == 2
        assert error == pytest.approx(np.mean(each), abs=1e-9)


def test_calibration_error_is_that_of_the_runs_own_scores(comparison: Comparison) -> None:
    """Nobody finds two numbers of one name."""
    made = task_answers(comparison, "sst", {})
    for label, error in made.calibration_errors:
        runs = comparison.answers[label, "sst"]
        own = [
            calibration_error(r.probabilities, r.truth) for r in runs if r.probabilities is not None
        ]
        assert error == pytest.approx(np.mean(own))
    words = Page(page(comparison)).words
    assert (
        "(as in every run's scores, in 15 bins; the mean over the seeds). The diagram has ten"
        in words
    )


def test_numbers_are_a_map_of_predicted_against_true(comparison: Comparison) -> None:
    made = task_answers(comparison, "sts", {})
    assert made.kind == "regress"
    assert made.calibration_errors == []
    for variant in made.variants:
        assert variant.map is not None
        assert 'class="diagonal"' in variant.map
        assert f"{variant.label}, sts: predicted (up) against true (right)" in variant.map


def test_numbers_that_are_all_alike(tmp_path: Path) -> None:
    """Without a range they have no two ends, and are shown in the middle."""
    source = simulated.data(tmp_path / "data", 30)
    recipe = simulated.recipe(source, "full", 0, **{"tasks.sts.range": "null"})
    comparison = compare([simulated.run(tmp_path / "run", recipe)])
    (run,) = comparison.answers["full", "sts"]
    alike = replace(run, truth=np.full_like(run.truth, 3.0))
    comparison = replace(comparison, answers={("full", "sts"): (alike,)})
    made = task_answers(comparison, "sts", {})
    (variant,) = made.variants
    assert variant.map is not None
    assert "true 3.00" in made.calibration
    assert "nan" not in made.calibration


def test_of_many_classes_the_commonest_mistakes(many_classes: Comparison) -> None:
    """A matrix of them cannot be read; each mistake that is shown leads to examples."""
    made = task_answers(many_classes, "sst", {})
    (variant,) = made.variants
    (run,) = many_classes.answers[variant.label, "sst"]
    pairs = Counter(
        (run.word(t), run.word(s)) for t, s in zip(run.truth, run.said, strict=True) if t != s
    )
    assert variant.map is None
    assert not variant.shares
    assert variant.mistakes
    assert len(variant.mistakes) == 10
    rows = [mistake.rows for mistake in variant.mistakes]
    assert rows == [many for _, many in pairs.most_common(10)]
    kept = {example.confusion for example in made.worst}
    for mistake in variant.mistakes:
        pair = (mistake.truth, mistake.answer)
        assert mistake.rows == pairs[pair]
        assert mistake.share == pytest.approx(pairs[pair] / 60)  # 2,400 rows of 40 classes
        assert pair in kept
    Page(page(many_classes))


def test_that_no_row_was_answered_wrongly_is_said(many_classes: Comparison) -> None:
    (label,) = [v.label for v in many_classes.variants]
    (run,) = many_classes.answers[label, "sst"]
    right = replace(many_classes, answers={(label, "sst"): (replace(run, said=run.truth),)})
    (variant,) = task_answers(right, "sst", {}).variants
    assert variant.mistakes == []
