"""Scores are those of the runs, differences those of the scores, and both are corrected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from bough.comparison.compare import Comparison, compare
from bough.comparison.scores import _correct
from bough.scoring import statistics
from tests import simulated


def test_scores_are_those_of_the_runs(comparison: Comparison) -> None:
    for v in comparison.variants:
        for name, metric in comparison.metrics.items():
            told = [run.scores["dev"]["tasks"][name][metric] for run in v.runs]
            score = comparison.scores[v.label][name]
            assert score.runs == pytest.approx(tuple(told), abs=1e-5)
            assert score.value == pytest.approx(np.mean(told), abs=1e-5)
            assert score.interval[0] < score.value < score.interval[1]
        own = comparison.scores[v.label]
        sst, quora, sts = (own[name].value for name in comparison.metrics)
        assert own["raw"].value == pytest.approx((sst + quora + sts) / 3)
        assert own["normalised"].value == pytest.approx((sst + quora + (sts + 1) / 2) / 3)


def test_differences_that_are_there_are_found(comparison: Comparison) -> None:
    full = comparison.scores["full"]
    sts, quora = full["sts"].difference, full["quora"].difference
    assert sts is not None
    assert quora is not None
    assert sts.real
    assert sts.value > 0
    assert quora.real
    assert quora.value < 0
    assert all(score.difference is None for score in comparison.scores["separate"].values())


def test_a_difference_is_of_the_same_rows(comparison: Comparison) -> None:
    d, own = comparison.scores["full"]["sst"].difference, comparison.scores
    assert d is not None
    assert d.value == pytest.approx(own["full"]["sst"].value - own["separate"]["sst"].value)
    wide = own["full"]["sst"].interval
    assert d.half < wide[1] - wide[0]  # pairing takes the hardness of the rows away


def test_no_interval_is_wider_than_its_metric(make: simulated.Make) -> None:
    runs = [make(f"{p}-{s}", p, s) for p in ("full", "separate") for s in (0, 1)]
    for name, score in compare(runs).scores["full"].items():
        assert score.difference is not None
        most = {"sts": 2, "raw": 4 / 3}.get(name, 1)
        assert max(map(abs, score.difference.interval)) <= most + 1e-9


def test_different_seeds_are_compared_without_pairing(make: simulated.Make) -> None:
    runs = [make(f"a{s}", "full", s) for s in (0, 1, 2)]
    runs += [make(f"b{s}", "separate", s) for s in (3, 4, 5)]
    comparison = compare(runs)
    full, separate = (
        np.array([a.said == a.truth for a in comparison.answers[label, "sst"]], float)
        for label in ("full", "separate")
    )
    d = comparison.scores["full"]["sst"].difference
    assert d is not None
    apart = statistics.difference([full], (0, 1, 2), [separate], (3, 4, 5))
    paired = statistics.difference([full], (0, 1, 2), [separate], (0, 1, 2))
    assert (d.half, d.p) == (apart.half(), apart.p)
    assert d.half != paired.half()


def test_seeds_that_one_side_has_more_count(make: simulated.Make) -> None:
    runs = [make(f"a{s}", "full", s) for s in range(5)]
    comparison = compare(runs + [make(f"b{s}", "separate", s) for s in range(3)])
    for column in comparison.columns():
        full, separate = (comparison.scores[label][column] for label in ("full", "separate"))
        assert full.difference is not None
        assert full.difference.value == pytest.approx(full.value - separate.value)
        assert full.difference.seeds == 3


def test_a_column_is_corrected_as_one_family(comparison: Comparison) -> None:
    """Variants that have no p in it, for want of a second seed, are left out of the family."""
    ps = {"a": 0.011, "b": None, "c": 0.7, "d": 0.02, "e": 0.012, "f": 0.9}
    score = comparison.scores["full"]["sts"]
    assert score.difference is not None
    scores = {
        label: {
            "sts": replace(score, difference=replace(score.difference, p=p, holm=None, bh=None))
        }
        for label, p in ps.items()
    } | {"base": {"sts": replace(score, difference=None)}, "without": {}}
    _correct(scores, "sts")
    known = [p for p in ps.values() if p is not None]
    for key, method in (("holm", "holm"), ("bh", "fdr_bh")):
        adjusted = dict(
            zip((n for n in ps if ps[n]), multipletests(known, method=method)[1], strict=True)
        )
        for label in ps:
            expected = adjusted.get(label)
            value = getattr(scores[label]["sts"].difference, key)
            assert value == (None if expected is None else pytest.approx(expected, rel=1e-12))
    assert scores["base"]["sts"].difference is None
