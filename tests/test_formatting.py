"""Numbers as a reader sees them."""

from __future__ import annotations

import pytest

from bough import formatting


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5123, ".512"), (-0.0001, ".000"), (-0.25, "−.250"), (1.5, "1.500"), (0.9999, "1.000")],
)
def test_numbers(value: float, text: str) -> None:
    assert formatting.number(value) == text


def test_numbers_with_a_sign() -> None:
    assert formatting.number(0.012, signed=True) == "+.012"
    assert formatting.number(0.0, signed=True) == ".000"
    assert formatting.chance(1.0, 3) == "1"
    assert formatting.chance(0.0002, 3) == "< .001"
    assert formatting.chance(0.0002, 2) == "< .01"  # two seeds cannot tell more
    assert formatting.chance(0.02, 2) == ".020"
    assert formatting.size(90_863_644) == "86.7 MiB"
    assert formatting.seconds(0.121) == "121 ms"


def test_durations_are_told_as_people_do() -> None:
    told = [formatting.duration(s) for s in (5, 100, 7500)]
    assert told == ["5 s", "2 min", "2 h 5 min"]
