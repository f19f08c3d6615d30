"""The methods a recipe can name for gradients, losses and sampling, with their numbers.

`pcgrad`, `cagrad`, `cagrad:0.4`, `temperature:2`. What they do is in `training`; a recipe is
checked when it is read, long before that is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bough.errors import UserError, nearest


@dataclass(frozen=True)
class Parameter:
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
COMBINATIONS: dict[str, Parameter | None] = {
    "sum": None,
    "mean": None,
    "random": None,  # https://arxiv.org/abs/2111.10603
    "pcgrad": None,  # https://arxiv.org/abs/2001.06782
    "gradvac": Parameter(0.5, high=1.0),  # rate of its targets; https://arxiv.org/abs/2010.05874
    "cagrad": Parameter(0.4),  # radius around the mean; https://arxiv.org/abs/2110.14048
    "mgda": None,  # https://arxiv.org/abs/1810.04650
    "imtl-g": None,  # https://openreview.net/forum?id=IMPnRXEWpvr
    "aligned-mtl": None,  # https://arxiv.org/abs/2305.19000
    "upgrad": None,  # https://arxiv.org/abs/2406.16232
    "dualproj": None,  # https://arxiv.org/abs/1706.08840
    "fairgrad": Parameter(1.0, above=True),  # alpha; https://arxiv.org/abs/2402.15638
}

# How much each task's loss counts.
WEIGHTINGS: dict[str, Parameter | None] = {
    "static": None,
    "uncertainty": None,  # https://arxiv.org/abs/1705.07115
    "imtl-l": None,  # https://openreview.net/forum?id=IMPnRXEWpvr
    "dwa": Parameter(2.0, above=True),  # temperature; https://arxiv.org/abs/1803.10704
    "famo": None,  # https://arxiv.org/abs/2306.03792
    "geometric": None,  # https://arxiv.org/abs/1904.08492
    "tchebycheff": Parameter(0.1, above=True),  # smoothing; https://arxiv.org/abs/2402.19078
    "random": None,  # https://arxiv.org/abs/2111.10603
}

# Whose turn it is.
SAMPLINGS = (
    "each",
    "round-robin",
    "proportional",
    "sqrt",
    "power:A",
    "annealed",
    "temperature:T",
    "temperature:T,cap:N",
    "method1",
    "method2",
    "method3",
    "in-turn",
)
_WORDS = tuple(form.partition(":")[0] for form in SAMPLINGS)


def parse(text: str, methods: Mapping[str, Parameter | None]) -> tuple[str, float]:
    """The name and number in a recipe's text; nan for a method that has no number."""
    name, colon, given = (part.strip() for part in text.partition(":"))
    if name not in methods:
        raise UserError(f"{text!r} is none of {', '.join(methods)}{nearest(name, methods)}")
    parameter = methods[name]
    if parameter is None:
        if colon:
            raise UserError(f"{text!r}: {name!r} takes no number")
        return name, math.nan
    try:
        value = float(given) if colon else parameter.default
    except ValueError:
        value = math.nan
    if not parameter.fits(value):
        raise UserError(f"{text!r}: the number of {name!r} must be {parameter}")
    return name, value


def parse_sampling(text: str) -> tuple[str, dict[str, float]]:
    """The word of a sampling and the numbers it carries."""
    head, *rest = (part.strip() for part in text.split(","))
    word, colon, _ = (part.strip() for part in head.partition(":"))
    if word not in _WORDS:
        raise UserError(f"{text!r} is none of {', '.join(SAMPLINGS)}{nearest(word, _WORDS)}")
    if word not in _NUMBERS:
        if colon or rest:
            raise UserError(f"{text!r}: {word!r} takes no number")
        return word, {}
    numbers = {word: _number(text, head, word)}
    if word == "temperature" and len(rest) == 1 and rest[0].partition(":")[0].strip() == "cap":
        numbers["cap"] = _number(text, rest[0], "cap")
    elif rest:
        more = "temperature:T or temperature:T,cap:N" if word == "temperature" else "power:A"
        raise UserError(f"{text!r}: expected {more}")
    return word, numbers


_NUMBERS: dict[str, tuple[Callable[[float], bool], str]] = {
    "power": (lambda value: value >= 0, "0 or more"),
    "temperature": (lambda value: value > 0, "above 0"),
    "cap": (lambda value: value >= 1 and value.is_integer(), "a whole number from 1 on"),
}


def _number(text: str, part: str, word: str) -> float:
    try:
        value = float(part.partition(":")[2])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{text!r}: {word!r} needs a number, as in '{word}:2'")
    fits, expected = _NUMBERS[word]
    if not fits(value):
        raise UserError(f"{text!r}: the {word} must be {expected}")
    return value
