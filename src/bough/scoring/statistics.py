"""How far a score can be trusted: intervals and paired tests for k seeds on n examples.

The question is always about a *plan*: its expected score over new seeds on new examples of the same
kind. Both were drawn by chance, so both are counted. Every metric is first taken apart into one
number per example whose mean is the score; the runs of a plan then form a table, seeds by examples,
and its mean varies for three reasons:

    examples   some are hard for every seed          E: scatter of the examples' means
    churn      each seed gets other examples right   I: what neither mean explains; part of E and S
    seeds      some seeds are better throughout      S: scatter of the seeds' means

    half^2 = z^2 E + t^2 (S - c I)+      z, t: normal, and Student's t with k - 1 degrees

Where examples are the noise this is the usual interval over examples, and it is never narrower;
where seeds are, it is Student's t over the seeds' scores. Adding the squares of such widths covers
at least as often as it says (Banerjee, Sankhya 22, 1960), so a difference of two plans with seeds
of their own adds a last term for each, with its own t. c takes the churn away that would be counted
twice: all of it (1) where it is a small part of E, as in a score, and only z^2 / t^2 of it where E
is all churn, as in the difference of two like plans: c = (z / t)^(2 I / E).
`docs/comparing.md` has the measured coverage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bough.recipe.tasks import SIGNED

Floats = NDArray[np.float64]

LEVEL = 0.95
SMALLEST = 1e-12  # no p is told smaller: the tails of so few seeds are not known that far


# --- a score as a mean over examples -------------------------------------------------------------


def shares(
    metric: str, predicted: NDArray[Any], truth: NDArray[Any], classes: int = 0
) -> tuple[float, Floats]:
    """The score, and one number per example with that mean: how the score hangs on each.

    Accuracy is such a mean already. For the others these are the jackknife's pseudo-values, moved
    to have the score itself as their mean (Spearman: the infinitesimal jackknife's).
    """
    match metric:
        case "accuracy":
            right = (predicted == truth).astype(np.float64)
            return float(right.mean()), right
        case "f1" | "mcc":
            return _from_counts(_F1_MCC[metric], predicted, truth, classes)
        case "pearson":
            return _pearson(predicted.astype(np.float64), truth.astype(np.float64))
        case "spearman":
            return _spearman(predicted.astype(np.float64), truth.astype(np.float64))
    raise ValueError(f"unknown metric {metric!r}")


def _spread(score: float, without: Floats) -> tuple[float, Floats]:
    """From the scores without each example to the examples' shares."""
    return score, score + (len(without) - 1) * (without.mean() - without)


def _constant(x: Floats, y: Floats) -> bool:
    return len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0


def _pearson(x: Floats, y: Floats) -> tuple[float, Floats]:
    if _constant(x, y):  # as evaluate: no order is known, which is what 0 says
        return 0.0, np.zeros(len(x))
    n = len(x)
    x, y = x - x.mean(), y - y.mean()

    def less_one(a: Floats, b: Floats) -> Floats:
        """Sum of products about the mean, without each example in turn."""
        return np.asarray(a @ b - a * b * n / (n - 1))

    below = np.sqrt(np.maximum(less_one(x, x), 0) * np.maximum(less_one(y, y), 0))
    without = np.divide(less_one(x, y), below, out=np.zeros(n), where=below > 0)
    return _spread(float(x @ y / math.sqrt((x @ x) * (y @ y))), np.clip(without, -1, 1))


def _spearman(x: Floats, y: Floats) -> tuple[float, Floats]:
    """Pearson's r of F(x) and G(y), the middle ranks; an example moves the others' ranks, too."""
    if _constant(x, y):
        return 0.0, np.zeros(len(x))
    f, below_x = _ranks(x)
    g, below_y = _ranks(y)
    cov, var_f, var_g = (float(np.mean((a - 0.5) * (b - 0.5))) for a, b in ((f, g), (f, f), (g, g)))
    rho = cov / math.sqrt(var_f * var_g)
    # E[F] is 1/2 whatever the data, so only the mean products move.
    of_cov = f * g + below_x(g) + below_y(f) - 3 * (cov + 0.25)
    of_f = f * f + 2 * below_x(f) - 3 * (var_f + 0.25)
    of_g = g * g + 2 * below_y(g) - 3 * (var_g + 0.25)
    moved = of_cov / math.sqrt(var_f * var_g) - rho / 2 * (of_f / var_f + of_g / var_g)
    return rho, rho + moved - moved.mean()


def _ranks(x: Floats) -> tuple[Floats, Callable[[Floats], Floats]]:
    """Middle ranks as shares, and a function: mean of v over those above x[i], ties by half."""
    n = len(x)
    _, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2) / n

    def above(v: Floats) -> Floats:
        total = np.bincount(place, v)
        return np.asarray(((total.sum() - np.cumsum(total) + total / 2) / n)[place])

    return ranks[place], above


def _f1(counts: Floats) -> float:
    both = counts.sum(0) + counts.sum(1)
    return float(np.mean(2 * np.diag(counts) / np.where(both > 0, both, 1)))


def _mcc(counts: Floats) -> float:
    said, true, n = counts.sum(0), counts.sum(1), counts.sum()
    below = (n * n - said @ said) * (n * n - true @ true)
    return float((np.trace(counts) * n - said @ true) / math.sqrt(below)) if below > 0 else 0.0


_F1_MCC: dict[str, Callable[[Floats], float]] = {"f1": _f1, "mcc": _mcc}


def _from_counts(
    score: Callable[[Floats], float], predicted: NDArray[Any], truth: NDArray[Any], classes: int
) -> tuple[float, Floats]:
    """Examples of one true and one said class are all alike, so each kind is left out once."""
    cell = truth.astype(np.int64) * classes + predicted.astype(np.int64)
    counts = np.bincount(cell, minlength=classes * classes).astype(np.float64)
    without = np.zeros(classes * classes)
    for kind in np.flatnonzero(counts):
        counts[kind] -= 1
        without[kind] = score(counts.reshape(classes, classes))
        counts[kind] += 1
    return _spread(score(counts.reshape(classes, classes)), without[cell])


# --- a mean over seeds and examples --------------------------------------------------------------


@dataclass(frozen=True)
class Seeds:
    """What the choice of seeds adds to the noise of a mean."""

    variance: float  # S: of the value, churn included
    churn: float  # I: what is in E, too
    degrees: int  # of freedom; 0 where there is but one seed


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and examples, or a difference of two, and where its noise comes from."""

    value: float
    examples: float  # E: variance of the value from the choice of examples, churn included
    example_degrees: int  # of freedom
    sides: tuple[Seeds, ...]  # two where two plans have seeds of their own

    @property
    def seeds(self) -> float:
        """Variance of the value from the choice of seeds, churn included."""
        return sum(side.variance for side in self.sides)

    @property
    def churn(self) -> float:
        return sum(side.churn for side in self.sides)

    @property
    def whole(self) -> bool:
        """Whether the seeds' noise is in it; one seed alone does not show it."""
        return all(side.degrees > 0 for side in self.sides)

    @property
    def error(self) -> float:
        """Standard error."""
        return math.sqrt(self.examples + max(self.seeds - self.churn, 0))

    def half(self, level: float = LEVEL) -> float:
        """Half the width of the interval."""
        return self._half(1 - level)

    def interval(self, level: float = LEVEL, kind: str = "") -> tuple[float, float]:
        """Lowest and highest value; a metric as `kind` keeps the ends within its range."""
        half, value = self.half(level), self.value
        if kind in ("accuracy", "f1"):
            return _wilson(value, half, self._z(1 - level) ** 2 / (self.example_degrees + 1))
        if kind in SIGNED and abs(value) < 1:  # Fisher's scale, on which r's error is even
            # A constant answer shows no variance: what chance alone would give stands.
            least = self._z(1 - level) / math.sqrt(self.example_degrees + 1)
            middle, wide = math.atanh(value), half / (1 - value * value) if half > 0 else least
            return math.tanh(middle - wide), math.tanh(middle + wide)
        return value - half, value + half

    @property
    def p(self) -> float | None:
        """Two-sided p of "the true value is 0"; None where one seed cannot tell."""
        if not self.whole:
            return None
        if self.value == 0:
            return 1.0
        low, high = math.log(SMALLEST), 0.0
        if self._half(SMALLEST) < abs(self.value):
            return SMALLEST
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (
                (middle, high) if self._half(math.exp(middle)) > abs(self.value) else (low, middle)
            )
        return math.exp(high)

    def _half(self, alpha: float) -> float:
        z = self._z(alpha)
        if math.isinf(z):  # one example
            return z
        square = z * z * self.examples
        share = min(1.0, self.churn / self.examples) if self.examples > 0 else 1.0
        for side in self.sides if self.whole else ():
            t = _t(alpha, side.degrees)
            square += t * t * max(side.variance - (z / t) ** (2 * share) * side.churn, 0)
        return math.sqrt(square)

    def _z(self, alpha: float) -> float:
        return _t(alpha, self.example_degrees) if self.example_degrees > 0 else math.inf


def _t(alpha: float, degrees: int) -> float:
    from scipy import special

    return max(float(-special.stdtrit(degrees, alpha / 2)), 1e-9)


def _wilson(value: float, half: float, least: float) -> tuple[float, float]:
    """Wilson's interval for a share whose variance is not the binomial one.

    half^2 / (p (1 - p)) takes the place of z^2 / n; where all is right or all is wrong no variance
    can be seen, and z^2 / n itself stands.
    """
    if math.isinf(half):
        return 0.0, 1.0
    room = value * (1 - value)
    g = half * half / room if room > 1e-12 and half > 0 else least
    middle, wide = value + g / 2, math.sqrt(g * (room + g / 4))
    return max(0.0, (middle - wide) / (1 + g)), min(1.0, (middle + wide) / (1 + g))


Tables = Sequence[Floats]  # one [seeds, examples] of shares per task


def mean(tables: Tables, weights: Sequence[float] = (1.0,)) -> Estimate:
    """The weighted sum of the tasks' mean scores; seeds are the same ones in every task."""
    return _estimate([tables], weights)


def difference(
    tables: Tables,
    seeds: Sequence[int],
    base: Tables,
    base_seeds: Sequence[int],
    weights: Sequence[float] = (1.0,),
) -> Estimate:
    """How much more than the base, which is the difference of the two means.

    Examples are paired always, seeds where both sides have the same. Otherwise all seeds count, and
    the sides are taken as independent, which errs on the careful side where they share some.
    """
    if sorted(seeds) == sorted(base_seeds):
        theirs = [list(base_seeds).index(seed) for seed in seeds]
        return _estimate([[a - b[theirs] for a, b in zip(tables, base, strict=True)]], weights)
    return _estimate([tables, [-table for table in base]], weights)


def _estimate(sides: Sequence[Tables], weights: Sequence[float]) -> Estimate:
    value, examples = 0.0, 0.0
    for number, weight in enumerate(weights):
        per_example = np.sum([side[number].mean(0) for side in sides], 0)
        value += weight * float(per_example.mean())
        examples += weight * weight * _variance(per_example) / len(per_example)
    fewest = min(table.shape[1] for table in sides[0])
    return Estimate(value, examples, fewest - 1, tuple(_seeds(side, weights) for side in sides))


def _seeds(side: Tables, weights: Sequence[float]) -> Seeds:
    k = len(side[0])
    totals = np.sum([w * t.mean(1) for w, t in zip(weights, side, strict=True)], 0)
    churn = sum(w * w * _churn(t) / t.size for w, t in zip(weights, side, strict=True))
    return Seeds(_variance(totals) / k, churn, k - 1)


def _variance(values: Floats) -> float:
    return float(values.var(ddof=1)) if len(values) > 1 else 0.0


def _churn(table: Floats) -> float:
    """Mean square of what neither the seeds' nor the examples' means explain."""
    k, n = table.shape
    if k < 2 or n < 2:
        return 0.0
    rest = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    return float((rest * rest).sum() / ((k - 1) * (n - 1)))


# --- many comparisons ----------------------------------------------------------------------------


def holm(ps: Sequence[float]) -> list[float]:
    """p-values such that all those below .05 are right together, but for a chance of 5 %."""
    order = np.argsort(ps, kind="stable")
    raised = np.maximum.accumulate([(len(ps) - i) * ps[at] for i, at in enumerate(order)])
    return _back(np.minimum(raised, 1), order)


def benjamini_hochberg(ps: Sequence[float]) -> list[float]:
    """p-values such that of those below .05 at most 5 % are wrong, in the mean."""
    order = np.argsort(ps, kind="stable")
    raised = np.array([len(ps) / (i + 1) * ps[at] for i, at in enumerate(order)])
    lowest = np.minimum.accumulate(raised[::-1])[::-1]
    return _back(np.minimum(lowest, 1), order)


def _back(values: Floats, order: NDArray[np.intp]) -> list[float]:
    out = np.empty(len(order))
    out[order] = values
    return [float(value) for value in out]
