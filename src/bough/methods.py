"""The methods a recipe can name for gradients and losses, with a number where one has it.

`pcgrad`, `cagrad`, `cagrad:0.4`. What they do is in `surgery` and `weighting`; a recipe is checked
when it is read, long before those are needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bough.mistakes import Mistake, nearest


@dataclass(frozen=True)
class Number:
    """What a method's number is where none is given, and what it may be."""

    default: float
    low: float = 0.0
    high: float = math.inf
    above: bool = False  # whether the lowest is itself too low

    def fits(self, value: float) -> bool:
        high_enough = self.low < value if self.above else self.low <= value
        return high_enough and value <= self.high and math.isfinite(value)

    def __str__(self) -> str:
        if math.isfinite(self.high):
            return f"between {self.low:g} and {self.high:g}"
        return f"above {self.low:g}" if self.above else f"from {self.low:g} on"


# How the tasks' gradients become one.
COMBINATIONS: dict[str, Number | None] = {
    "sum": None,
    "mean": None,
    "random": None,  # https://arxiv.org/abs/2111.10603
    "pcgrad": None,  # https://arxiv.org/abs/2001.06782
    "gradvac": Number(0.5, high=1.0),  # rate of its targets; https://arxiv.org/abs/2010.05874
    "cagrad": Number(0.4),  # radius around the mean; https://arxiv.org/abs/2110.14048
    "mgda": None,  # https://arxiv.org/abs/1810.04650
    "imtl-g": None,  # https://openreview.net/forum?id=IMPnRXEWpvr
    "aligned-mtl": None,  # https://arxiv.org/abs/2305.19000
    "upgrad": None,  # https://arxiv.org/abs/2406.16232
    "dualproj": None,  # https://arxiv.org/abs/1706.08840
    "fairgrad": Number(1.0, above=True),  # alpha; https://arxiv.org/abs/2402.15638
}

# How much each task's loss counts.
WEIGHTINGS: dict[str, Number | None] = {
    "static": None,
    "uncertainty": None,  # https://arxiv.org/abs/1705.07115
    "imtl-l": None,  # https://openreview.net/forum?id=IMPnRXEWpvr
    "dwa": Number(2.0, above=True),  # temperature; https://arxiv.org/abs/1803.10704
    "famo": None,  # https://arxiv.org/abs/2306.03792
    "geometric": None,  # https://arxiv.org/abs/1904.08492
    "tchebycheff": Number(0.1, above=True),  # smoothing; https://arxiv.org/abs/2402.19078
    "random": None,  # https://arxiv.org/abs/2111.10603
}


def read(text: str, methods: Mapping[str, Number | None]) -> tuple[str, float]:
    """The name and number in a recipe's text; nan for a method that has no number."""
    name, colon, given = (part.strip() for part in text.partition(":"))
    if name not in methods:
        raise Mistake(f"{text!r} is none of {', '.join(methods)}{nearest(name, methods)}")
    number = methods[name]
    if number is None:
        if colon:
            raise Mistake(f"{text!r}: {name!r} takes no number")
        return name, math.nan
    try:
        value = float(given) if colon else number.default
    except ValueError:
        value = math.nan
    if not number.fits(value):
        raise Mistake(f"{text!r}: the number of {name!r} must be {number}")
    return name, value
