"""Whether `bough compare` can be trusted: runs simulated with a known truth.

    python benchmarks/simulated_runs.py [--draws 2000] [--only verdicts]

For seeds of a plan and their own spread, in percent. First how often a 95 % interval holds the true
score: ours, over rows only, over seeds only, and a plain bootstrap of both (a quarter of the
draws). Then how often p < .05 is said of two like plans on the same seeds, on other seeds, and
against one of twelve seeds; and, after Holm's correction, of any of seven held against an eighth.
Last the verdict as a whole, of one task to 32: how often it claims a gain or a loss that is none,
how often it finds one that is there, and what becomes of it while seeds are added; each if every
column, and every look, were corrected alone, as it is corrected, and the latter's upper end of
the 95 % interval.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy import stats

from bough.comparison.compare import Comparison
from bough.comparison.groups import Variant
from bough.comparison.scores import Difference, Score, Scores, claim_weights, correct
from bough.comparison.verdict import verdict
from bough.recipe.recipe import Recipe
from bough.runs.run_dir import Run
from bough.scoring import statistics
from bough.scoring.statistics import Estimate, Floats


def right(
    k: int, hard: Floats, spread: float, rng: np.random.Generator, skill: float = 0.6
) -> Floats:
    """Right or wrong, seeds by rows: hardness, a seed's own level, and their interaction."""
    level = skill + spread * rng.normal(size=(k, 1)) - hard + 0.7 * rng.normal(size=(k, len(hard)))
    return (level > 0).astype(np.float64)


def coverage(k: int, spread: float, draws: int) -> list[float]:
    rng = np.random.default_rng([2, k, int(100 * spread)])
    true = float(stats.norm.cdf(0.6 / np.sqrt(1 + 0.7**2 + spread**2)))
    hits = np.zeros(4)
    for draw in range(draws):
        table = right(k, rng.normal(size=300), spread, rng)
        ends = [
            statistics.mean([table]).interval("accuracy"),
            student(table.mean(0)),
            student(table.mean(1)),
            bootstrap(table, rng) if draw % 4 == 0 else (1.0, 0.0),
        ]
        hits += [low <= true <= high for low, high in ends]
    return list(100 * hits / [draws, draws, draws, (draws + 3) // 4])


def student(values: Floats) -> tuple[float, float]:
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return float(values.mean() - half), float(values.mean() + half)


def bootstrap(table: Floats, rng: np.random.Generator) -> tuple[float, float]:
    """Seeds and rows drawn again, both with replacement; the middle 95 % of 400 means."""
    seeds, rows = (
        rng.multinomial(n, np.full(n, 1 / n), 400) / n for n in (len(table), table.shape[1])
    )
    low, high = np.quantile(np.einsum("bk,kn,bn->b", seeds, table, rows), [0.025, 0.975])
    return float(low), float(high)


def shows(d: Estimate, alpha: float = 0.05) -> bool:
    return d.half(1 - alpha) < abs(d.value)


def alarms(k: int, spread: float, draws: int) -> list[float]:
    rng = np.random.default_rng([1, k, int(100 * spread)])
    counts = np.zeros(4)
    for _ in range(draws):
        hard = rng.normal(size=300)
        base, *others = ([right(k, hard, spread, rng)] for _ in range(8))
        apart = [statistics.difference(own, range(k), base, range(k)) for own in others]
        unlike = statistics.difference(others[0], range(k), base, range(k, 2 * k))
        twelve = [right(12, hard, spread, rng)]
        unequal = statistics.difference(base, range(k), twelve, range(12))
        first = any(shows(d, 0.05 / 7) for d in apart)  # of Holm's steps
        counts += [shows(apart[0]), shows(unlike), shows(unequal), first]
    return list(100 * counts / draws)


# --- what a whole verdict says -------------------------------------------------------------------


class Unwritten(Run):
    """A run without a directory, of which nothing but the answers is known."""

    @property
    def cost(self) -> dict[str, Any]:
        return {}


def drawn(
    tasks: int, k: int, others: int, spread: float, rng: np.random.Generator, gain: float = 0.0
) -> dict[tuple[str, str], Floats]:
    """Variants by tasks: like ones, but that the first is better in the first task by `gain`."""
    better = skill(stats.norm.cdf(0.6 / level(spread)) + gain, spread)
    tables = {}
    for task in range(tasks):
        hard = rng.normal(size=300)
        for variant in ("base", *(f"v{n}" for n in range(others))):
            own = better if (variant, task) == ("v0", 0) else 0.6
            tables[variant, f"t{task}"] = right(k, hard, spread, rng, own)
    return tables


def level(spread: float) -> float:
    return float(np.sqrt(1 + 0.7**2 + spread**2))


def skill(accuracy: float, spread: float) -> float:
    return float(stats.norm.ppf(accuracy) * level(spread))


Estimates = dict[tuple[str, str], Estimate]  # (variant, column) -> difference from the first


def differences(tables: Mapping[tuple[str, str], Floats]) -> Estimates:
    """Of all variants from the first, by task and in the mean of several tasks."""
    labels, tasks = (list(dict.fromkeys(names)) for names in zip(*tables, strict=True))
    seeds = range(len(next(iter(tables.values()))))
    columns = {name: [name] for name in tasks} | ({"normalised": tasks} if len(tasks) > 1 else {})
    apart: Estimates = {}
    for label in labels[1:]:
        for column, names in columns.items():
            ours, base = ([tables[v, name] for name in names] for v in (label, labels[0]))
            weights = [1 / len(names)] * len(names)
            apart[label, column] = statistics.difference(ours, seeds, base, seeds, weights)
    return apart


def compared(apart: Estimates, k: int, looks: int = 1) -> Comparison:
    """As `bough compare` does it, without directories, and of the scores the differences alone."""
    runs = tuple(Unwritten(Path(str(seed))) for seed in range(k))
    labels, columns = (list(dict.fromkeys(names)) for names in zip(*apart, strict=True))
    tasks = [column for column in columns if column != "normalised"]
    made = [Variant(n, runs, tuple(range(k)), cast(Recipe, None), {}) for n in ("base", *labels)]
    scores: Scores = {v.label: {} for v in made}
    for (label, column), d in apart.items():
        shown = Difference(d.value, d.interval(), d.half(), d.p, k, looks)
        scores[label][column] = Score(0.5, (0, 1), 0, 0, 0, (), shown)
    correct(scores, tasks)
    metrics, rows = dict.fromkeys(tasks, "accuracy"), dict.fromkeys(tasks, 300)
    return Comparison("dev", metrics, rows, tuple(made), made[0], scores, (), {}, ())


def claims(comparison: Comparison) -> bool:
    """Whether some sentence of the verdict tells of a gain or a loss."""
    words = verdict(comparison)
    sentences = [*words.tasks.values(), words.headline]
    return any(word in s for s in sentences for word in (" gains ", " loses ", " is best"))


def some_show(apart: Estimates, shares: Mapping[str, float]) -> bool:
    """Whether the first of Holm's steps finds something, each column having its share of the 5 %.

    If not, no further step does; and to ask for that takes no p, which are slow to find.
    """
    return any(shows(d, 0.05 * shares[column]) for (_, column), d in apart.items())


def false_verdicts(tasks: int, others: int, k: int, spread: float, draws: int) -> list[int]:
    """Of like variants: how many verdicts claim something, by column and as a whole."""
    rng = np.random.default_rng([3, tasks, others, k])
    counts = np.zeros(2, int)
    for _ in range(draws):
        apart = differences(drawn(tasks, k, others, spread, rng))
        columns = dict.fromkeys(column for _, column in apart)
        alone = dict.fromkeys(columns, 1 / others)
        weights = claim_weights([column for column in columns if column != "normalised"])
        total = sum(weights[column] for _, column in apart)
        together = {column: weights[column] / total for column in columns}
        whole = some_show(apart, together) and claims(compared(apart, k))
        counts += [some_show(apart, alone), whole]
    return list(counts)


def found_gains(tasks: int, k: int, spread: float, draws: int) -> list[int]:
    """A true gain of twice the 95 % interval's half in one task: how often it is said."""
    rng = np.random.default_rng([4, tasks, k])
    alone = (drawn(1, k, 1, spread, rng) for _ in range(100))
    halves = [differences(tables)["v0", "t0"].half() for tables in alone]
    counts = np.zeros(2, int)
    for _ in range(draws):
        tables = drawn(tasks, k, 1, spread, rng, gain=2 * float(np.mean(halves)))
        made = compared(differences(tables), k)
        d = made.scores["v0"]["t0"].difference
        assert d is not None
        assert d.p is not None
        gains = verdict(made).tasks["t0"].startswith("t0 gains ")
        counts += [d.p < 0.05 and d.value > 0, gains]
    return list(counts)


def claims_while_growing(stages: Sequence[int], tasks: int, spread: float, draws: int) -> list[int]:
    """Seeds are added until like variants differ: how many do, unless and if looks are counted."""
    rng = np.random.default_rng([5, tasks, *stages])
    counts = np.zeros(2, int)
    for _ in range(draws):
        tables = drawn(tasks, stages[-1], 1, spread, rng)
        stages_apart = [differences({n: t[:k] for n, t in tables.items()}) for k in stages]
        for column in (0, 1):
            counts[column] += any(
                claims(compared(apart, k, look if column else 1))
                for look, (k, apart) in enumerate(zip(stages, stages_apart, strict=True), 1)
            )
    return list(counts)


def shares(counts: Sequence[int], draws: int) -> str:
    """In percent, with the upper end of the exact 95 % interval of the last."""
    upper = stats.binomtest(int(counts[-1]), draws).proportion_ci().high
    return "".join(f"{100 * n / draws:12.1f}" for n in counts) + f"{100 * upper:12.1f}"


def print_verdicts(draws: int) -> None:
    print("\nfalse verdicts of like variants, 5 seeds, their spread 8.5 points")
    print("tasks  variants   by column       whole    at most")
    for tasks, others in ((1, 1), (3, 1), (10, 1), (32, 1), (3, 7)):
        counts = false_verdicts(tasks, others, 5, 0.3, 5 * draws)
        print(f"{tasks:5} {others:9}{shares(counts, 5 * draws)}", flush=True)
    print("\na gain of twice the half-width in one of 3 tasks is found, 5 seeds")
    print("spread   by column       whole    at most")
    for points, spread in ((1.4, 0.05), (2.9, 0.1), (8.5, 0.3)):
        counts = found_gains(3, 5, spread, draws // 4)
        print(f"{points:6}{shares(counts, draws // 4)}", flush=True)
    print("\nfalse verdicts if seeds are added until one comes, 3 tasks, spread 8.5 points")
    print("looks at seeds          not counted    counted    at most")
    for stages in ((3, 4, 5, 6, 7, 8, 9, 10), (3, 5, 8), (3, 6, 12, 24)):
        counts = claims_while_growing(stages, 3, 0.3, draws // 4)
        print(f"{', '.join(map(str, stages)):22}{shares(counts, draws // 4)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--only", choices=["verdicts"])
    asked = parser.parse_args()
    if asked.only is None:
        print_intervals(asked.draws)
    print_verdicts(asked.draws)


def print_intervals(draws: int) -> None:
    spreads = ((0, 0.0), (1.4, 0.05), (2.9, 0.1), (8.5, 0.3))
    print("seeds  spread     ours  rows only  seeds only  bootstrap")
    for k in (2, 3, 5):
        for points, spread in spreads:
            ours, rows, seeds, both = coverage(k, spread, draws)
            print(f"{k:5} {points:7} {ours:8.1f} {rows:10.1f} {seeds:11.1f} {both:10.1f}")
    print("\nseeds  spread  same seeds  other seeds  against 12  any of seven")
    for k in (2, 3, 5):
        for points, spread in spreads:
            same, other, unequal, family = alarms(k, spread, draws)
            print(f"{k:5} {points:7} {same:11.1f} {other:12.1f} {unequal:11.1f} {family:13.1f}")


if __name__ == "__main__":
    main()
