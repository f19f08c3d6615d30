"""A table becomes a few sentences that claim no more than the runs can show."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from benchmarks.simulated_runs import false_verdicts, found_gains
from bough.comparison import tables
from bough.comparison.compare import Comparison, compare
from bough.comparison.scores import MARGIN, Difference
from bough.comparison.verdict import verdict
from bough.formatting import number
from bough.runs.run_dir import Run
from tests import simulated


def test_the_verdict_in_plain_words(comparison: Comparison) -> None:
    said = verdict(comparison)
    assert said.tasks["sts"].startswith("sts gains .")
    assert "with full (against separate)." in said.tasks["sts"]
    assert said.tasks["quora"].startswith("quora loses .")
    assert "no difference from separate that 3 seeds can show" in said.tasks["sst"]
    assert any("memory to serve −67 %" in text for text in said.costs)
    assert any("trained on Quora" in note for note in said.notes)


def headline(comparison: Comparison, **apart: tuple[float, float]) -> str:
    """With these intervals in place of full's; other columns are well above the baseline."""
    scores = {}
    for name, score in comparison.scores["full"].items():
        low, high = apart.get(name, (0.001, 0.011))
        middle, half = (low + high) / 2, (high - low) / 2
        # Not real: the correction for many comparisons makes "no loss" no easier.
        made = Difference(middle, (low, high), half, 0.03, 3, holm=0.2, bh=0.1)
        scores[name] = replace(score, difference=made)
    return verdict(replace(comparison, scores={**comparison.scores, "full": scores})).headline


def test_no_loss_is_said_only_where_a_large_one_is_ruled_out(comparison: Comparison) -> None:
    assert headline(comparison, sts=(-0.0111, 0.03)) == (
        "full serves all tasks with 67 % less memory and loses at most .012 on any task (3 seeds, "
        "against separate)."
    )
    assert "loses nothing on any task" in headline(comparison)
    assert headline(comparison, sts=(-0.073, 0.001), sst=(-0.05, 0.05)) == (
        "full saves 67 % of memory; with 3 seeds a loss of up to .073 on sts cannot be ruled out "
        "(normalised score +.006 ± .005 against separate)."
    )
    edge = MARGIN
    assert "loses at most" in headline(comparison, sst=(1e-4 - edge, 0.1))
    assert "cannot be ruled out" in headline(comparison, sst=(-edge, 0.1))
    assert "loses at most" not in headline(comparison, normalised=(-0.03, 0.1))


def several(comparison: Comparison, **apart: Difference) -> Comparison:
    """With these variants in place of full, apart from the baseline by so much in every column."""
    base, full = comparison.baseline, comparison.others[0]
    made = [replace(full, label=label) for label in apart]
    scores = {base.label: comparison.scores[base.label]}
    for label, d in apart.items():
        scores[label] = {n: replace(s, difference=d) for n, s in comparison.scores["full"].items()}
    return replace(comparison, variants=(*made, base), scores=scores)


def test_the_best_is_one_that_is_shown_to_gain(comparison: Comparison) -> None:
    """One that looks better, and may be so by chance, does not hide it."""
    vague = Difference(0.05, (-0.01, 0.11), 0.06, 0.1, 3, holm=0.2, bh=0.2)
    sure = Difference(0.03, (0.02, 0.04), 0.01, 0.001, 3, holm=0.002, bh=0.002)
    small = replace(sure, value=0.02, interval=(0.01, 0.03))
    said = verdict(several(comparison, a=vague, b=sure))
    assert said.headline.startswith("b is the only variant that is shown to gain: normalised score")
    assert ", .030 ± .010 above separate" in said.headline
    more = verdict(several(comparison, a=vague, b=small, c=sure)).headline
    assert more.startswith("c gains most of those that are shown to gain: normalised score .")
    assert verdict(several(comparison, b=sure)).headline.startswith("b is best: ")


def test_a_loss_that_is_there_is_not_called_possible(comparison: Comparison) -> None:
    assert headline(comparison, sts=(-0.073, -0.03)).startswith("No variant beats separate")


def test_fewer_rows_make_no_bolder_claim(make: simulated.Make) -> None:
    """Two like plans on 40 rows: nothing shows, so nothing is ruled out."""
    runs = [make(f"{p}-{s}", p, s) for p in ("full", "separate") for s in range(3)]
    assert "cannot be ruled out" in verdict(compare(runs)).headline


def open_questions(comparison: Comparison, **difference: object) -> tuple[str, ...]:
    full = comparison.scores["full"]
    seen = Difference(-0.03, (-0.07, 0.01), 0.04, 0.2, 3, holm=0.4, bh=0.4)
    given = replace(seen, **difference)  # type: ignore[arg-type]
    scores = {**full, "normalised": replace(full["normalised"], difference=given)}
    return verdict(replace(comparison, scores={**comparison.scores, "full": scores})).open


def test_how_many_seeds_would_settle_what_is_open(comparison: Comparison) -> None:
    assert open_questions(comparison, settled_by=7) == (
        "Open: full against separate in normalised score (−.030 ± .040): 7 seeds a side, of which "
        "3 are there, settle it at even odds.",
    )
    (by_none,) = open_questions(comparison)
    assert by_none.endswith(": 50 seeds would not settle it.")
    (by_rows,) = open_questions(comparison, rows_settle=True)
    assert by_rows.endswith("50 seeds would not settle it, for there are too few dev rows.")
    (by_more,) = open_questions(comparison, seeds=60)
    assert by_more.endswith(": 120 seeds would not settle it.")
    assert open_questions(comparison, holm=0.01) == (), "it shows"
    assert open_questions(comparison, interval=(-0.019, 0.01)) == (), "too small to matter"
    assert open_questions(comparison, seeds=2) == (), "an anecdote"


def test_what_shows_in_the_mean_alone_is_said(comparison: Comparison) -> None:
    """Three small losses can be one that shows."""
    seen = Difference(-0.03, (-0.04, -0.02), 0.01, 0.001, 3, holm=0.01, bh=0.01)
    hidden = replace(seen, holm=0.4)
    full = {
        n: replace(score, difference=seen if n == "normalised" else hidden)
        for n, score in comparison.scores["full"].items()
    }
    said = verdict(replace(comparison, scores={**comparison.scores, "full": full}))
    assert "normalised loses .030 ± .010 with full" in said.tasks["normalised"]
    quiet = {n: replace(score, difference=hidden) for n, score in full.items()}
    told = verdict(replace(comparison, scores={**comparison.scores, "full": quiet}))
    assert set(told.tasks) == set(comparison.metrics)


def test_two_seeds_are_an_anecdote(make: simulated.Make) -> None:
    runs = [make(f"{p}-{s}", p, s) for p in ("full", "separate") for s in (0, 1)]
    said = verdict(compare(runs))
    assert said.headline.startswith("An anecdote, not a finding (2 seeds per variant)")
    assert not any("Anecdote" in text for text in said.tasks.values()), "it has been said"


def test_only_pairs_of_few_seeds_are_anecdotes(survey: Path, tmp_path: Path) -> None:
    """A survey looked at while it runs: some variants are done, some have begun."""
    source = survey / "data"
    begun = [
        simulated.run(tmp_path / f"{plan}-{seed}", simulated.recipe(source, plan, seed))
        for plan, many in (("split@3", 2), *((f"split@{n}", 1) for n in (1, 2, 4, 5)))
        for seed in range(many)
    ]
    alone, said = (verdict(compare(runs)) for runs in ([survey], [survey, *begun]))
    assert said.headline == (
        f"{alone.headline} Not counted, with fewer than 3 seeds: split@3, split@1, split@2, "
        "split@4 and split@5."
    )
    first, two, one = said.tasks["quora"].split("Anecdote ")
    assert first.startswith("quora loses .")
    assert first.endswith("with full (against separate). ")
    assert two.startswith("(2 seeds): quora: no difference from separate that 2 seeds can show (sp")
    assert one.startswith("(one seed): quora: ")
    assert all(f" with split@{n}" in one for n in (1, 2, 4, 5))


def test_a_baseline_of_one_seed_makes_anecdotes_of_all(make: simulated.Make) -> None:
    runs = [make("base", "separate"), *(make(f"full-{s}", "full", s) for s in range(3))]
    comparison = compare(runs)
    d = comparison.scores["full"]["sst"].difference
    assert d is not None
    assert d.seeds == 1
    assert verdict(comparison).headline.startswith(
        "An anecdote, not a finding (fewer than 3 seeds on a side): "
    )


def test_one_seed_says_nothing_about_the_next(make: simulated.Make) -> None:
    comparison = compare([make("a", "full"), make("b", "separate")])
    assert comparison.scores["full"]["sst"].difference is not None
    assert comparison.scores["full"]["sst"].difference.p is None
    assert "one seed says nothing about the next" in verdict(comparison).tasks["sst"]


def test_one_variant_has_nothing_to_be_compared_with(make: simulated.Make) -> None:
    comparison = compare([make("a", seed=0), make("b", seed=1)])
    assert "nothing to compare it with" in verdict(comparison).headline
    assert comparison.fronts == {}
    assert "Differences from" not in tables.markdown(comparison)


# --- how often it is wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tasks", "others", "draws"), [(1, 1, 200), (3, 1, 200), (10, 1, 150), (32, 1, 60), (3, 4, 100)]
)
def test_like_variants_seldom_get_a_false_verdict(tasks: int, others: int, draws: int) -> None:
    """Whatever the number of tasks: 5 %, and what chance adds; by columns it would be more."""
    by_column, whole = false_verdicts(tasks, others, 5, 0.3, draws)
    most = stats.binom.ppf(0.99, draws, 0.05)
    assert whole <= most
    assert by_column > most or tasks == 1


def test_a_gain_of_twice_the_half_width_is_found() -> None:
    assert found_gains(3, 5, 0.1, 100)[1] >= 75


def test_what_would_show_alone_is_told(comparison: Comparison) -> None:
    apart = Difference(0.03, (0.01, 0.05), 0.02, 0.02, 3, holm=0.09, bh=0.09)
    full = {n: replace(s, difference=apart) for n, s in comparison.scores["full"].items()}
    words = verdict(replace(comparison, scores={**comparison.scores, "full": full}))
    assert words.tasks["sst"] == (
        "sst: no difference from separate that 3 seeds can show (full +.030 ± .020; asked for "
        "alone, full would show)."
    )


def paced(comparison: Comparison, folder: Path, **paces: Sequence[float]) -> str:
    """What is told of the costs where the runs' steps took so long."""
    variants = []
    for v in comparison.variants:
        runs = []
        for run, pace in zip(v.runs, paces[v.label], strict=False):
            shutil.copytree(run.folder, folder / run.name)
            runs.append(Run(folder / run.name))
            file = folder / run.name / "cost.json"
            file.write_text(json.dumps(run.cost | {"step_seconds": pace}))
        variants.append(replace(v, runs=tuple(runs)))
    base = next(v for v in variants if v.label == "separate")
    made = replace(comparison, variants=tuple(variants), baseline=base)
    return " ".join(verdict(made).costs)


def test_a_step_time_is_told_where_all_runs_agree(comparison: Comparison, tmp_path: Path) -> None:
    apart = paced(comparison, tmp_path / "a", full=(1.0, 1.1, 1.4), separate=(1.5, 1.6, 4.2))
    assert "step time −52 %" in apart
    mixed = paced(comparison, tmp_path / "b", full=(1.0, 1.1, 1.7), separate=(1.5, 1.6, 4.2))
    assert "step time" not in mixed
    assert "memory to serve" in mixed
    assert "step time" not in paced(comparison, tmp_path / "c", full=(1.0,), separate=(1.5, 1.6))


def test_what_cannot_be_seen_is_told_by_the_widest_interval(make: simulated.Make) -> None:
    """Some difference of that size may hide in each; the narrowest would promise too much."""
    runs = [make(f"{p}-{s}", p, s) for p in ("full", "separate", "split@3") for s in range(3)]
    comparison = compare(runs)
    halves = []
    for v in comparison.others:
        d = comparison.difference(v, "sst")
        assert d is not None
        assert not d.real
        halves.append(d.half)
    said = verdict(comparison).tasks["sst"]
    assert f"each ± {number(max(halves))} or less" in said
