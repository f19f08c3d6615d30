"""Intervals cover as often as they say, tests cry wolf no oftener, and known cases come out."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from statsmodels.stats.multitest import multipletests

from bough.scoring import statistics
from bough.scoring.pseudo_values import pseudo_values
from bough.scoring.statistics import Estimate, SeedNoise

Floats = NDArray[np.float64]


# --- coverage and false alarms -------------------------------------------------------------------


def right(k: int, hard: Floats, skill: float, seeds: float, rng: np.random.Generator) -> Floats:
    """Right or wrong, seeds by examples: hardness, a seed's own level, and their interaction."""
    level = skill + seeds * rng.normal(size=(k, 1)) - hard + 0.7 * rng.normal(size=(k, len(hard)))
    return (level > 0).astype(np.float64)


@pytest.mark.parametrize(("k", "n", "seeds"), [(3, 300, 0.1), (5, 300, 0.05), (5, 800, 0.1)])
def test_intervals_of_accuracy_cover(k: int, n: int, seeds: float) -> None:
    rng = np.random.default_rng([k, n])
    true = stats.norm.cdf(0.6 / np.sqrt(1 + 0.7**2 + seeds**2))
    hits = 0
    for _ in range(1000):
        made = statistics.mean([right(k, rng.normal(size=n), 0.6, seeds, rng)])
        low, high = made.interval("accuracy")
        hits += low <= true <= high
    assert 930 <= hits <= 970


@pytest.mark.parametrize("k", [3, 5])
def test_intervals_of_pearson_cover(k: int) -> None:
    """Seeds differ in how noisy their answers are; the truth is the mean r over all seeds."""
    rng = np.random.default_rng(k)

    def noise(size: tuple[int, ...]) -> Floats:
        return np.exp(0.15 * rng.normal(size=size)) * 0.4

    true = float(np.mean(1 / np.sqrt(1 + 0.25 + noise((200_000,)) ** 2)))
    hits = 0
    for _ in range(1000):
        truth, hard = rng.normal(size=(2, 250))
        said = truth + 0.5 * hard + noise((k, 1)) * rng.normal(size=(k, 250))
        table = np.array([pseudo_values("pearson", row, truth)[1] for row in said])
        low, high = statistics.mean([table]).interval("pearson")
        hits += low <= true <= high
    assert 930 <= hits <= 970


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("k", "seeds"), [(2, 0.1), (3, 0.0), (3, 0.1), (5, 0.1), (5, 0.3)])
def test_like_plans_seldom_look_different(k: int, seeds: float, paired: bool) -> None:
    rng = np.random.default_rng([k, int(100 * seeds), paired])
    alarms = 0
    for _ in range(1000):
        hard = rng.normal(size=300)
        a, b = (right(k, hard, 0.6, seeds, rng) for _ in range(2))
        numbers = range(k) if paired else range(k, 2 * k)
        d = statistics.difference([a], range(k), [b], numbers)
        alarms += d.half() < abs(d.value)
    assert alarms <= 60


@pytest.mark.parametrize(
    ("ours", "theirs", "spread", "base_spread"),
    [(2, 5, 0.3, 0.3), (2, 12, 0.3, 0.3), (3, 5, 0.1, 0.1), (3, 12, 0.3, 0.3), (3, 12, 0.3, 0.0)],
)
def test_like_plans_with_unequal_seeds_seldom_look_different(
    ours: int, theirs: int, spread: float, base_spread: float
) -> None:
    """The case in which Welch's degrees of freedom cry wolf: up to 11 % with 2 seeds against 12."""
    rng = np.random.default_rng([ours, theirs])
    alarms = 0
    for _ in range(1000):
        hard = rng.normal(size=300)
        a, b = (
            right(k, hard, 0.6 * np.sqrt(1 + s * s / 1.49), s, rng)  # the same expected accuracy
            for k, s in ((ours, spread), (theirs, base_spread))
        )
        d = statistics.difference([a], range(ours), [b], range(theirs))
        alarms += d.half() < abs(d.value)
    assert alarms <= 60


@pytest.mark.parametrize(("k", "seeds"), [(3, 0.1), (5, 0.3)])
def test_of_many_like_plans_seldom_any_looks_different(k: int, seeds: float) -> None:
    """Eight variants on the same rows, one of them the baseline: a family of seven."""
    rng = np.random.default_rng([8, k])
    alarms = 0
    for draw in range(400):
        hard = rng.normal(size=300)
        base, *others = (right(k, hard, 0.6, seeds, rng) for _ in range(8))
        apart = [statistics.difference([own], range(k), [base], range(k)) for own in others]
        # Holm's first step; to ask for every p takes half a minute.
        alarm = any(d.half(1 - 0.05 / 7) < abs(d.value) for d in apart)
        if draw < 10:
            corrected = statistics.holm([d.p for d in apart if d.p is not None])
            assert alarm == (min(corrected) < 0.05)
        alarms += alarm
    assert alarms <= 28


def test_a_true_difference_is_found() -> None:
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(100):
        hard = rng.normal(size=500)
        better, worse = (right(5, hard, skill, 0.02, rng) for skill in (0.9, 0.6))
        p = statistics.difference([better], range(5), [worse], range(5)).p
        assert p is not None
        found += p < 0.05
    assert found >= 90


# --- known cases ---------------------------------------------------------------------------------


def test_without_noise_of_examples_it_is_students_t() -> None:
    levels = np.array([0.1, 0.4, 0.2, 0.25])
    made = statistics.mean([np.repeat(levels[:, None], 50, 1)])
    known = stats.ttest_1samp(levels, 0)
    assert made.p == pytest.approx(known.pvalue, rel=1e-6)
    assert made.interval() == pytest.approx(tuple(known.confidence_interval()), rel=1e-6)


def test_without_noise_of_seeds_it_is_the_interval_over_examples() -> None:
    values = np.random.default_rng(0).normal(size=200) + 0.1
    made = statistics.mean([np.repeat(values[None], 4, 0)])
    known = stats.ttest_1samp(values, 0)
    assert made.p == pytest.approx(known.pvalue, rel=1e-6)
    assert made.interval() == pytest.approx(tuple(known.confidence_interval()), rel=1e-6)


def test_it_is_never_narrower_than_over_examples_alone() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        table = right(int(rng.integers(2, 6)), rng.normal(size=60), 0.5, 0.1, rng)
        made = statistics.mean([table])
        alone = stats.t.ppf(0.975, 59) * table.mean(0).std(ddof=1) / np.sqrt(60)
        assert made.half() >= alone - 1e-12


def test_p_and_interval_agree() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        hard = rng.normal(size=100)
        a, b = (right(3, hard, skill, 0.1, rng) for skill in (0.6, 0.8))
        d = statistics.difference([a], range(3), [b], range(3))
        low, high = d.interval()
        assert d.p is not None
        assert (d.p < 0.05) == (not low <= 0 <= high)


def test_seeds_are_paired_where_both_sides_have_them() -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(size=(4, 1))  # what a seed does to either plan
    a = common + 0.1 * rng.normal(size=(4, 90))
    b = common + 0.1 * rng.normal(size=(4, 90))
    paired = statistics.difference([a], [0, 1, 2, 3], [b], [0, 1, 2, 3])
    apart = statistics.difference([a], [0, 1, 2, 3], [b], [4, 5, 6, 7])
    turned = statistics.difference([a], [0, 1, 2, 3], [b[::-1]], [3, 2, 1, 0])
    assert paired.half() < apart.half() / 5
    assert turned.half() == pytest.approx(paired.half())


def test_a_difference_is_that_of_the_scores() -> None:
    """Whatever seeds either side has, none of them is left out."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 40)), rng.normal(size=(3, 40))
    for seeds in ([0, 1, 2], [2, 3, 9], [7, 8, 9]):
        d = statistics.difference([a], range(5), [b], seeds)
        assert d.value == pytest.approx(a.mean() - b.mean())
        assert [side.degrees for side in d.sides] == [4, 2]


def test_sides_with_seeds_of_their_own_add_their_squared_widths() -> None:
    """Where examples make no noise: Banerjee's interval, each side with its own t."""
    a, b = np.array([0.1, 0.4, 0.2, 0.25]), np.array([0.3, 0.1])
    d = statistics.difference(
        [np.repeat(a[:, None], 50, 1)], range(4), [np.repeat(b[:, None], 50, 1)], range(2)
    )
    widths = [stats.t.ppf(0.975, len(x) - 1) * stats.sem(x) for x in (a, b)]
    assert d.half() == pytest.approx(np.hypot(*widths))


def test_one_seed_gives_no_p() -> None:
    table = (np.random.default_rng(0).random((1, 50)) < 0.7).astype(float)
    made = statistics.mean([table])
    assert not made.counts_seeds
    assert made.p is None
    assert made.half() > 0


def test_aggregates_add_up() -> None:
    rng = np.random.default_rng(0)
    tables = [right(3, rng.normal(size=n), 0.5, 0.1, rng) for n in (50, 80)]
    made = statistics.mean(tables, [0.5, 0.25])
    assert made.value == pytest.approx(0.5 * tables[0].mean() + 0.25 * tables[1].mean())
    alone = [statistics.mean([table]) for table in tables]
    assert made.examples == pytest.approx(0.25 * alone[0].examples + 0.0625 * alone[1].examples)


def test_examples_that_tasks_have_in_common_are_counted_once() -> None:
    """Two tasks that are the same are one; one and its opposite are nothing."""
    rng = np.random.default_rng(0)
    table, base = (right(3, rng.normal(size=60), 0.5, 0.1, rng) for _ in range(2))
    same = [np.arange(60)] * 2
    for twice, alone in (
        (statistics.mean([table] * 2, [0.5, 0.5], same), statistics.mean([table])),
        (
            statistics.difference([table] * 2, [0, 1, 2], [base] * 2, [3, 4, 5], [0.5, 0.5], same),
            statistics.difference([table], [0, 1, 2], [base], [3, 4, 5]),
        ),
    ):
        assert twice.examples == pytest.approx(alone.examples)
        assert twice.interaction == pytest.approx(alone.interaction)
        assert twice.half() == pytest.approx(alone.half())
    assert statistics.mean([table, -table], [0.5, 0.5], same).half() == pytest.approx(0, abs=1e-12)
    # Rows by their place, whatever their order; of tasks that have none in common nothing changes.
    turned = statistics.mean([table, table[:, ::-1]], [0.5, 0.5], [same[0], same[0][::-1]])
    assert turned.half() == pytest.approx(statistics.mean([table]).half())
    apart = statistics.mean([table, base], [0.5, 0.5], [np.arange(60), np.arange(60, 120)])
    assert apart == statistics.mean([table, base], [0.5, 0.5])


@pytest.mark.parametrize("tasks", [5, 10])
def test_intervals_of_a_mean_over_one_table_cover(tasks: int) -> None:
    """A row that is hard for one task is hard for the others; some lack a part of the rows."""
    rng = np.random.default_rng(tasks)
    true = stats.norm.cdf(0.6 / np.sqrt(1 + 0.7**2 + 0.05**2))
    weights = [1 / tasks] * tasks
    places = [np.arange(10 * task, 300) for task in range(tasks)]
    hits = as_if_apart = 0
    for _ in range(600):
        hard = rng.normal(size=300)
        tables = [right(3, hard[where], 0.6, 0.05, rng) for where in places]
        for known in (places, None):
            low, high = statistics.mean(tables, weights, known).interval()
            hits += (low <= true <= high) * (known is not None)
            as_if_apart += (low <= true <= high) * (known is None)
    assert 0.925 * 600 <= hits <= 0.985 * 600
    assert as_if_apart < 0.92 * 600


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_all_right_or_all_wrong_keeps_wilsons_width(value: float) -> None:
    made = statistics.mean([np.full((3, 100), value)])
    known = stats.binomtest(int(100 * value), 100).proportion_ci(method="wilson")
    assert made.interval("accuracy") == pytest.approx((known.low, known.high), abs=2e-3)


def test_ends_stay_within_the_metrics_range() -> None:
    wide = Estimate(0.95, 0.01, 50, (SeedNoise(0.02, 0.0, 1),))
    for metric in ("accuracy", "f1", "pearson", "mcc"):
        low, high = wide.interval(metric)
        assert -1 <= low < 0.95 < high <= 1


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("n", [2, 4, 20, 100])
@pytest.mark.parametrize("metric", ["mcc", "kappa", "pearson", "spearman"])
def test_all_right_is_no_certainty(metric: str, n: int, sign: int) -> None:
    """Of a few rows that are right, one of which may be all of its class."""
    truth = np.array([0] * (n - 1) + [1])
    said = truth if sign > 0 else 1 - truth
    value, values = pseudo_values(metric, said, truth, 2)
    low, high = statistics.mean([values[None]]).interval(metric)
    assert -1 <= low <= value <= high <= 1 + 1e-9
    if sign > 0 or metric != "kappa":  # which is not -1 where the classes' sizes differ
        assert value == pytest.approx(sign)
        assert high - low > 5 / (n + 4)
    if sign > 0:  # no wider than what the same rows say of a share that runs as far
        share = statistics.mean([np.ones((1, n))]).interval("accuracy")[0]
        assert low == pytest.approx(2 * share - 1)


@pytest.mark.parametrize(("n", "wrong"), [(30, 0.01), (100, 0.02), (200, 0.005)])
def test_intervals_of_mcc_near_1_cover(n: int, wrong: float) -> None:
    rng = np.random.default_rng(n)
    hits = 0
    for _ in range(500):
        truth = rng.permutation(np.arange(n) % 2)
        said = np.where(rng.random(n) < wrong, 1 - truth, truth)
        table = pseudo_values("mcc", said, truth, 2)[1]
        low, high = statistics.mean([table[None]]).interval("mcc")
        hits += low <= 1 - 2 * wrong <= high
    assert hits >= 450


def test_what_is_no_number_has_no_p() -> None:
    assert statistics.mean([np.full((3, 9), np.nan)]).p is None


# --- corrections ---------------------------------------------------------------------------------


def test_holm_equals_statsmodels() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 40):
        ps = [*(rng.random(n) ** 2), 0.01, 0.01]
        known = multipletests(ps, method="holm")[1]
        np.testing.assert_allclose(statistics.holm(ps), known, rtol=1e-12)


def test_weighted_holm_is_the_closed_test_of_weighted_bonferroni() -> None:
    """A claim holds if every set of claims that it is in can be rejected, by its own weights."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        p, w = rng.random(5) ** 3, rng.choice([1.0, 1.5, 4.0], 5)
        sets = [np.array(s) for n in range(1, 6) for s in combinations(range(5), n)]
        worst = [max((p[s] * w[s].sum() / w[s]).min() for s in sets if i in s) for i in range(5)]
        np.testing.assert_allclose(
            statistics.holm(list(p), list(w)), np.minimum(worst, 1), rtol=1e-12
        )


def test_no_comparison_needs_no_correction() -> None:
    assert statistics.holm([]) == []
