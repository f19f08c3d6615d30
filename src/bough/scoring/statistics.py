"""How far a score can be trusted: intervals and paired tests for k seeds on n examples.

The question is always about a *plan*: its expected score over new seeds on new examples of the same
kind. Both were drawn by chance, so both are counted. Every score is first taken apart into one
pseudo-value per example; the runs of a plan then form a table, seeds by examples, and its mean
varies for three reasons:

    examples      some are hard for every seed          E: scatter of the examples' means
    seeds         some seeds are better throughout      S: scatter of the seeds' means
    interaction   each seed gets other examples right   I: what neither explains; part of E and S

    half^2 = z^2 E + t^2 (S - c I)+      z, t: normal, and Student's t with k - 1 degrees

Where examples are the noise this is the usual interval over examples, and it is never narrower;
where seeds are, it is Student's t over the seeds' scores. Adding the squares of such widths covers
at least as often as it says (Banerjee, Sankhya 22, 1960), so a difference of two plans with seeds
of their own adds a last term for each, with its own t. c takes the interaction away that would be
counted twice: all of it (1) where it is a small part of E, as in a score, and only z^2 / t^2 of it
where E is all interaction, as in the difference of two like plans: c = (z / t)^(2 I / E).
`docs/statistics.md` has the measured coverage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bough.recipe.kinds import SHARES, SIGNED

LEVEL = 0.95
WHOLE = 1 - 1e-9  # from here on a correlation is 1 but for what rounding took
SMALLEST_P = 1e-12  # no p is told smaller: the tails of so few seeds are not known that far

Floats = NDArray[np.float64]
Tables = Sequence[Floats]  # of pseudo-values, one [seeds, examples] per task
Places = Sequence[NDArray[np.intp]]  # of each task's examples among those of all tasks


@dataclass(frozen=True)
class SeedNoise:
    """What the choice of seeds adds to the noise of a mean."""

    variance: float  # S: of the value, interaction included
    interaction: float  # I: what is in E, too
    degrees: int  # of freedom; 0 where there is but one seed


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and examples, or a difference of two, and where its noise comes from."""

    value: float
    examples: float  # E: variance of the value from the choice of examples, interaction included
    example_degrees: int  # of freedom
    sides: tuple[SeedNoise, ...]  # two where two plans have seeds of their own

    @property
    def seeds(self) -> float:
        """Variance of the value from the choice of seeds, interaction included."""
        return sum(side.variance for side in self.sides)

    @property
    def interaction(self) -> float:
        return sum(side.interaction for side in self.sides)

    @property
    def counts_seeds(self) -> bool:
        """Whether the seeds' noise is in it; one seed alone does not show it."""
        return all(side.degrees > 0 for side in self.sides)

    @property
    def error(self) -> float:
        """Standard error."""
        return math.sqrt(self.examples + max(self.seeds - self.interaction, 0))

    def half(self, level: float = LEVEL) -> float:
        """Half the width of the interval."""
        return self._half(1 - level)

    def interval(self, metric: str = "") -> tuple[float, float]:
        """The 95 % interval; a metric's name keeps its ends within the metric's range."""
        half, value, z = self.half(), self.value, self._z(1 - LEVEL)
        if metric in SHARES:
            return _wilson(value, half, z * z / (self.example_degrees + 1))
        if metric in SIGNED and abs(value) > WHOLE:
            # All right shows no variance, and what is left out may take a whole class along: what
            # chance gives to a share stands, which mcc is, of two classes of one size.
            low, high = _wilson((value + 1) / 2, 0.0, z * z / (self.example_degrees + 1))
            return 2 * low - 1, 2 * high - 1
        if metric in SIGNED:  # Fisher's scale, on which r's error is even
            # A constant answer shows no variance: what chance alone would give stands.
            least = z / math.sqrt(self.example_degrees + 1)
            middle, wide = math.atanh(value), half / (1 - value * value) if half > 0 else least
            return math.tanh(middle - wide), math.tanh(middle + wide)
        return value - half, value + half

    @property
    def p(self) -> float | None:
        """Two-sided p of "the true value is 0"; None where one seed, or no number, cannot tell."""
        if not self.counts_seeds or math.isnan(self.value):
            return None
        size, log_smallest = abs(self.value), math.log(SMALLEST_P)
        if self._half(1.0) >= size:
            return 1.0
        if self._half(SMALLEST_P) < size:
            return SMALLEST_P
        from scipy import optimize

        return math.exp(
            optimize.brentq(lambda log_p: self._half(math.exp(log_p)) - size, log_smallest, 0.0)
        )

    def with_seeds(self, many: int) -> Estimate:
        """What it would be with so many seeds on every side, or with those that it has, if they are
        more; and if all stayed as it looks now."""
        sides, examples = [], self.examples
        for side in self.sides:
            seeds = max(many, side.degrees + 1)  # which are there
            less = (side.degrees + 1) / seeds
            fewer = SeedNoise(side.variance * less, side.interaction * less, seeds - 1)
            examples -= side.interaction - fewer.interaction
            sides.append(fewer)
        least = sum(side.interaction for side in sides)  # which is a part of it
        return replace(self, examples=max(examples, least), sides=tuple(sides))

    def _half(self, alpha: float) -> float:
        z = self._z(alpha)
        if math.isinf(z):  # one example
            return z
        square = z * z * self.examples
        share = min(1.0, self.interaction / self.examples) if self.examples > 0 else 1.0
        for side in self.sides if self.counts_seeds else ():
            t = _t(alpha, side.degrees)
            square += t * t * max(side.variance - (z / t) ** (2 * share) * side.interaction, 0)
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
    if math.isinf(least):  # one example
        return 0.0, 1.0
    binomial = value * (1 - value)
    g = half * half / binomial if binomial > 1e-12 and half > 0 else least
    middle, wide = value + g / 2, math.sqrt(g * (binomial + g / 4))
    return max(0.0, (middle - wide) / (1 + g)), min(1.0, (middle + wide) / (1 + g))


def mean(
    tables: Tables, weights: Sequence[float] = (1.0,), places: Places | None = None
) -> Estimate:
    """The weighted sum of the tasks' mean scores; seeds are the same ones in every task.

    `places` says which examples several tasks have in common; left out, none.
    """
    return _estimate([tables], weights, places)


def difference(
    tables: Tables,
    seeds: Sequence[int],
    base: Tables,
    base_seeds: Sequence[int],
    weights: Sequence[float] = (1.0,),
    places: Places | None = None,
) -> Estimate:
    """How much more than the base, which is the difference of the two means.

    Examples are paired always, seeds where both sides have the same. Otherwise all seeds count, and
    the sides are taken as independent, which errs on the careful side where they share some.
    """
    if sorted(seeds) == sorted(base_seeds):
        theirs = [list(base_seeds).index(seed) for seed in seeds]
        paired = [a - b[theirs] for a, b in zip(tables, base, strict=True)]
        return _estimate([paired], weights, places)
    return _estimate([tables, [-table for table in base]], weights, places)


def _estimate(sides: Sequence[Tables], weights: Sequence[float], places: Places | None) -> Estimate:
    sizes = [table.shape[1] for table in sides[0]]
    if places is None:
        places = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    value, parts = 0.0, []
    for number, weight in enumerate(weights):
        per_example = np.sum([side[number].mean(0) for side in sides], 0)
        value += weight * float(per_example.mean())
        n = len(per_example)
        parts.append(weight * (per_example - per_example.mean()) / math.sqrt(n * max(n - 1, 1)))
    noise = tuple(_seed_noise(side, weights, places) for side in sides)
    return Estimate(value, _squares(parts, places), min(sizes) - 1, noise)


def _seed_noise(side: Tables, weights: Sequence[float], places: Places) -> SeedNoise:
    k = len(side[0])
    totals = np.sum([w * t.mean(1) for w, t in zip(weights, side, strict=True)], 0)
    parts = [w * _interaction(t) / math.sqrt(t.size) for w, t in zip(weights, side, strict=True)]
    return SeedNoise(_variance(totals) / k, _squares(parts, places), k - 1)


def _squares(parts: Sequence[Floats], places: Places) -> float:
    """Sum of squares of what the examples add, after all that tasks have of one is summed: their
    errors on it go together, or against each other."""
    total = np.zeros((*parts[0].shape[:-1], 1 + max(int(where.max()) for where in places)))
    for part, where in zip(parts, places, strict=True):
        total[..., where] += part  # within a task, no place is there twice
    return float((total * total).sum())


def _variance(values: Floats) -> float:
    return float(values.var(ddof=1)) if len(values) > 1 else 0.0


def _interaction(table: Floats) -> Floats:
    """What neither the seeds' nor the examples' means explain; its squares' sum is the variance."""
    k, n = table.shape
    if k < 2 or n < 2:
        return np.zeros_like(table)
    rest = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    return np.asarray(rest / math.sqrt((k - 1) * (n - 1)))


def holm(ps: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """p-values such that all those below .05 are right together, but for a chance of 5 %.

    Each may claim a share of these 5 % by its weight; what a claim that holds had is passed on to
    the others (Holm, Scandinavian Journal of Statistics 6, 1979, section 4).
    """
    weight = np.ones(len(ps)) if weights is None else np.asarray(weights)
    per_weight = np.asarray(ps) / weight
    order = np.argsort(per_weight)
    left = np.cumsum(weight[order][::-1])[::-1]  # the weight of those not yet claimed
    adjusted = np.empty(len(ps))
    adjusted[order] = np.minimum(np.maximum.accumulate(per_weight[order] * left), 1)
    return list(map(float, adjusted))
