"""A method by its name, and a number where it has one: `pcgrad`, `cagrad`, `cagrad:0.4`."""

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


def read(key: str, text: str, methods: Mapping[str, Number | None]) -> tuple[str, float]:
    """The name and number that a recipe's key gives; nan for a method that has no number."""
    name, colon, given = (part.strip() for part in text.partition(":"))
    if name not in methods:
        known = ", ".join(methods)
        raise Mistake(f"{key} is {text!r}; expected one of {known}{nearest(name, methods)}")
    number = methods[name]
    if number is None:
        if colon:
            raise Mistake(f"{key} is {text!r}, but {name!r} takes no number")
        return name, math.nan
    try:
        value = float(given) if colon else number.default
    except ValueError:
        value = math.nan
    if not number.fits(value):
        raise Mistake(f"{key} is {text!r}; the number of {name!r} must be {number}")
    return name, value
