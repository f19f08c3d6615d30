"""The learning rate over the steps: a pure function, with no state that a run could lose."""

from __future__ import annotations

import math

from bough.recipe.recipe import Schedule

# One-cycle starts at 1/25 of the peak and ends at a ten-thousandth of that; arXiv 1708.07120.
_START, _END = 1 / 25, 1 / 25e4


def factor(step: int, total: int, warmup: float, kind: Schedule) -> float:
    """What the peak rate is multiplied by in a step; steps count from 0, `warmup` is the share of
    all steps in which the rate rises.

    No step has a rate of 0: the first of n warm-up steps has 1/n, and the last step of all has
    what is left one step before the end. One-cycle rises and falls as a cosine.
    """
    step = min(max(step, 0), total - 1)
    rise = min(round(warmup * total), total)
    if kind == "onecycle":
        peak = max(rise - 1, 0)
        if step < peak:
            return _between(_START, 1.0, step / peak)
        return _between(1.0, _END, (step - peak) / max(total - 1 - peak, 1))
    if step < rise:
        return (step + 1) / rise
    left = (total - step) / (total - rise)
    if kind == "linear":
        return left
    return 1.0 if kind == "constant" else _between(0.0, 1.0, left)


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2
