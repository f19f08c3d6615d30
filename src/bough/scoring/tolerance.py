"""Whether a score has lost no more than it may."""

from __future__ import annotations

ROUNDED = 1e-9  # .86 - .85 is a little more than .01


def within(loss: float, tolerance: float) -> bool:
    """A loss that is no number is never within."""
    return loss <= tolerance + ROUNDED
