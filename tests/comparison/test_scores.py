"""Scores are those of the runs, differences those of the scores, and both are corrected."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from bough.comparison.compare import Comparison, compare
from bough.comparison.scores import MARGIN, Difference, _settled_by, correct, look_factor
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
    assert d.half < 1.5 * (
        wide[1] - wide[0]
    )  # three seeds; pairing takes the hardness of the rows away


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


def test_all_that_the_verdict_may_say_is_one_family(comparison: Comparison) -> None:
    """What has no p, for want of a second seed, is left out of it, and so is what no sentence
    tells of. The mean has half the weight of its tasks together."""
    ps: dict[str, dict[str, float | None]] = {
        "a": {"sst": 0.011, "sts": 0.002, "raw": 1e-9, "normalised": 0.004},
        "b": {"sst": None, "sts": None, "raw": None, "normalised": None},
        "c": {"sst": 0.7, "sts": 0.02},
    }
    score = comparison.scores["full"]["sts"]
    assert score.difference is not None
    first = replace(score.difference, holm=None, bh=None)
    scores = {
        label: {name: replace(score, difference=replace(first, p=p)) for name, p in row.items()}
        for label, row in ps.items()
    } | {"base": {"sts": replace(score, difference=None)}, "without": {}}
    correct(scores, ["sst", "sts", "quora", "para"])
    corrected = {
        (label, name): (d.holm, d.bh)
        for label, row in scores.items()
        for name, own in row.items()
        if (d := own.difference) is not None and d.holm is not None
    }
    # By p and weight: .002 of sts and .004 / 2 of the mean first, each of a weight of 6 in all.
    expected = {
        ("a", "sts"): 0.012,
        ("a", "normalised"): 0.012,
        ("a", "sst"): 0.033,
        ("c", "sts"): 0.04,
        ("c", "sst"): 0.7,
    }
    assert {key: holm for key, (holm, _) in corrected.items()} == pytest.approx(expected)
    known = [ps[label][name] for label, name in expected]
    bh = multipletests(known, method="fdr_bh")[1]
    assert [corrected[key][1] for key in expected] == pytest.approx(list(bh))


def test_further_looks_raise_p(comparison: Comparison) -> None:
    score = comparison.scores["full"]["sts"]
    assert score.difference is not None
    for looks, factor in ((1, 1), (2, 6), (3, 12)):
        made = replace(score.difference, p=0.001, looks=looks)
        scores = {"a": {"sts": replace(score, difference=made)}}
        correct(scores, ["sts"])
        d = scores["a"]["sts"].difference
        assert d is not None
        assert d.holm == pytest.approx(0.001 * factor)
        assert d.p == 0.001
    assert sum(1 / look_factor(n) for n in range(2, 10_000)) <= 0.5


def test_anecdotes_take_nothing_from_findings(comparison: Comparison) -> None:
    score = comparison.scores["full"]["sts"]
    assert score.difference is not None
    scores = {
        label: {"sts": replace(score, difference=replace(score.difference, p=0.02, seeds=seeds))}
        for label, seeds in (("a", 3), ("b", 2), ("c", 2))
    }
    correct(scores, ["sts"])
    found = {label: row["sts"].difference for label, row in scores.items()}
    assert {label: d and d.holm for label, d in found.items()} == {"a": 0.02, "b": 0.04, "c": 0.04}


def test_tasks_on_one_table_have_rows_in_common(tmp_path: Path) -> None:
    """Twice the same answers to the same rows are one task's, in the mean as well."""
    source = simulated.data(tmp_path / "data", 60)
    twins = {"tasks.quora.train": "sts-train.tsv", "tasks.quora.dev": "sts-dev.tsv"}
    kind = {"tasks.quora.kind": "regress", "tasks.quora.range": "[0, 5]"}
    files: dict[str, dict[str, str]] = {"one": twins, "two": {}}
    shutil.copy(source / "sts-dev.tsv", source / "quora-dev.tsv")
    shutil.copy(source / "sts-train.tsv", source / "quora-train.tsv")
    found = {}
    for name, named in files.items():
        runs = []
        for plan in ("full", "separate"):
            for seed in range(3):
                settings = simulated.recipe(
                    source, plan, seed, tasks=("quora", "sts"), **named, **kind
                )
                runs.append(simulated.run(tmp_path / name / f"{plan}-{seed}", settings))
                answers = runs[-1] / "predictions"
                shutil.copy(answers / "sts-dev.csv", answers / "quora-dev.csv")
        found[name] = compare(runs).scores["full"]
    one, two = found["one"], found["two"]
    assert one["raw"].error == pytest.approx(one["sts"].error)
    assert two["raw"].error < 0.9 * two["sts"].error
    for scores, same in ((one, True), (two, False)):
        halves = [s.difference and s.difference.half for s in (scores["raw"], scores["sts"])]
        assert (halves[0] == pytest.approx(halves[1])) == same


def test_no_interval_leaves_the_range_of_its_score(tmp_path: Path) -> None:
    """Not even a mean's, of very few rows that are nearly all answered right."""
    source = simulated.data(tmp_path / "data", 6)
    skill = dict.fromkeys(simulated.NAMES, 9.0)
    runs = [
        simulated.run(tmp_path / f"{plan}-{seed}", simulated.recipe(source, plan, seed), skill)
        for plan in ("full", "separate")
        for seed in (0, 1)
    ]
    for row in compare(runs).scores.values():
        for name, score in row.items():
            low, high = {"sts": (-1, 1), "raw": (-1 / 3, 1)}.get(name, (0, 1))
            assert low <= score.interval[0] <= score.value <= score.interval[1] <= high + 1e-12


# --- how many seeds would settle it ---


def simulated_difference(seeds: int, gain: float, rows: int = 2000, seed: int = 0):
    """Of two plans whose seeds scatter by .02, and whose answers to an example by .3."""
    draw = np.random.default_rng(seed)
    hard = draw.normal(0, 0.3, rows)

    def runs(skill: float) -> list[np.ndarray]:
        of_seed = draw.normal(0, 0.02, (seeds, 1))
        return [skill + hard + of_seed + draw.normal(0, 0.3, (seeds, rows))]

    numbers = [*range(seeds)]
    return statistics.difference(runs(0.5 + gain), numbers, runs(0.5), numbers)


def test_a_projection_is_what_more_seeds_turn_out_to_be() -> None:
    few = [simulated_difference(5, 0.02, seed=s) for s in range(60)]
    many = [simulated_difference(20, 0.02, seed=s) for s in range(60)]
    projected = np.median([estimate.with_seeds(20).half() for estimate in few])
    assert projected == pytest.approx(np.median([estimate.half() for estimate in many]), rel=0.15)
    assert few[0].with_seeds(5).half() == pytest.approx(few[0].half())


def test_seeds_that_would_settle_it_do(make: simulated.Make) -> None:
    """What is open with 3 seeds says a number; by its own projection that shows, and one less does
    not."""
    runs = [make(f"{p}-{s}", p, s) for p in ("full", "separate") for s in range(3)]
    found = {n: s.difference for n, s in compare(runs).scores["full"].items() if s.difference}
    assert any(d.open for d in found.values())
    for d in found.values():
        assert d.settled_by is None or d.settled_by > d.seeds
        assert d.open or d.settled_by is None
    estimate = simulated_difference(3, 0.02)
    apart = Difference(estimate.value, estimate.interval(), estimate.half(), estimate.p, 3)
    many = _settled_by(estimate, apart, 0.05)
    assert many is not None
    settled = [
        e.half(1 - 0.05 / look_factor(2)) < abs(e.value) or abs(e.value) + e.half() < MARGIN
        for e in (estimate.with_seeds(many - 1), estimate.with_seeds(many))
    ]
    assert settled == [False, True]


def test_no_projection_is_narrower_than_what_the_seeds_add() -> None:
    """Of two like plans the examples' noise may look smaller than what seeds make of it."""
    for seed in range(200):
        draw = np.random.default_rng(seed)
        tables = [[draw.normal(0, 0.3, (3, 200))] for _ in range(2)]
        estimate = statistics.difference(tables[0], [0, 1, 2], tables[1], [0, 1, 2])
        then = estimate.with_seeds(50)
        assert then.examples >= then.interaction > 0
        assert then.half() > 0.005


def test_sides_keep_the_seeds_they_have() -> None:
    draw = np.random.default_rng(0)
    few, many = [draw.normal(0, 0.3, (3, 200))], [draw.normal(0, 0.3, (10, 200))]
    estimate = statistics.difference(few, [0, 1, 2], many, [*range(10)])
    assert [side.degrees for side in estimate.with_seeds(5).sides] == [4, 9]
    assert estimate.with_seeds(5).sides[1] == estimate.sides[1]


def test_what_has_only_begun_makes_no_question_harder(make: simulated.Make) -> None:
    runs = [make(f"{p}-{s}", p, s) for p in ("full", "separate") for s in range(3)]
    more = [make(f"split@{n}-0", f"split@{n}", 0) for n in (1, 2, 3, 4)]
    alone, beside = (compare(several).scores["full"] for several in (runs, [*runs, *more]))
    assert {n: s.difference and s.difference.settled_by for n, s in alone.items()} == {
        n: s.difference and s.difference.settled_by for n, s in beside.items()
    }


def test_rows_alone_can_leave_it_open() -> None:
    estimate = simulated_difference(3, 0.03, rows=40)
    apart = Difference(0.03, (-0.2, 0.26), estimate.half(), 0.6, 3)
    tiny = replace(estimate, value=0.03, examples=0.01)
    assert _settled_by(tiny, apart, 0.05) is None
