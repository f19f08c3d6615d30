"""What a score may lose."""

from __future__ import annotations

import math

from bough.graft.judgement import Change
from bough.scoring.tolerance import within


def test_a_loss_of_just_the_tolerance_is_allowed() -> None:
    assert 0.86 - 0.85 > 0.01  # as floating point has it
    assert within(0.86 - 0.85, 0.01)
    assert not within(0.0101, 0.01)
    assert within(-0.2, 0.0)
    assert not within(math.nan, 0.5)


def test_a_graft_goes_by_it() -> None:
    assert Change("dup", "accuracy", 0.86, 0.85 - 0.86, 0.0, False).fits(0.01)
    assert not Change("dup", "accuracy", 0.86, -0.0101, 0.0, False).fits(0.01)
    assert Change("dup", "accuracy", 0.86, 0.85 - 0.86, 0.01, False).certain(0.01)
