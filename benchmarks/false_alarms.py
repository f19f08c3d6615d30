"""How often like plans look different: the false alarms of `bough compare`, by simulation.

    python benchmarks/false_alarms.py [--draws 2000]

Prints, for seeds of a plan and their own spread, how often (in percent) p < .05 is said of two like
plans on the same seeds, on other seeds, and against one of twelve seeds; and, after Holm's
correction, of any of seven like plans held against an eighth.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from bough import statistics
from bough.statistics import Estimate


def right(k: int, hard: NDArray[np.float64], spread: float, rng: np.random.Generator):
    """Right or wrong, seeds by rows: hardness, a seed's own level, and churn."""
    level = 0.6 + spread * rng.normal(size=(k, 1)) - hard + 0.7 * rng.normal(size=(k, len(hard)))
    return (level > 0).astype(np.float64)


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
    print("seeds  spread  same seeds  other seeds  against 12  any of seven")
    for k in (2, 3, 5):
        for points, spread in ((0, 0.0), (1.4, 0.05), (2.9, 0.1), (8.5, 0.3)):
            same, other, unequal, family = alarms(k, spread, draws)
            print(f"{k:5} {points:7} {same:11.1f} {other:12.1f} {unequal:11.1f} {family:13.1f}")


if __name__ == "__main__":
    main()
