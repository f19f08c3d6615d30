"""Whether `bough compare` can be trusted: runs simulated with a known truth.

    python benchmarks/simulated_runs.py [--draws 2000]

For seeds of a plan and their own spread, in percent. First how often a 95 % interval holds the true
score: ours, over rows only, over seeds only, and a plain bootstrap of both (a quarter of the
draws). Then how often p < .05 is said of two like plans on the same seeds, on other seeds, and
against one of twelve seeds; and, after Holm's correction, of any of seven held against an eighth.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bough.scoring import statistics
from bough.scoring.statistics import Estimate


def right(k: int, hard: NDArray[np.float64], spread: float, rng: np.random.Generator):
    """Right or wrong, seeds by rows: hardness, a seed's own level, and their interaction."""
    level = 0.6 + spread * rng.normal(size=(k, 1)) - hard + 0.7 * rng.normal(size=(k, len(hard)))
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


def student(values: NDArray[np.float64]) -> tuple[float, float]:
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return float(values.mean() - half), float(values.mean() + half)


def bootstrap(table: NDArray[np.float64], rng: np.random.Generator) -> tuple[float, float]:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=2000)
    draws = parser.parse_args().draws
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
