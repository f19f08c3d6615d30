"""Curves are means over the seeds, at steps that were logged."""

from __future__ import annotations

import re

import numpy as np

from bough.comparison.compare import Comparison
from bough.formatting import number
from bough.reports.curves import curves, read_logs


def test_scores_and_losses_of_each_task(comparison: Comparison) -> None:
    figures = curves(comparison, read_logs(comparison))
    assert [(figure.title, figure.note) for figure in figures[:2]] == [
        ("sst", "accuracy on dev"),
        ("sst", "training loss"),
    ]
    assert len(figures) == 2 * len(comparison.metrics)
    for figure in figures:
        assert figure.plot.count('class="line"') == len(comparison.variants)


def test_a_point_is_the_mean_of_the_seeds(comparison: Comparison) -> None:
    logs = read_logs(comparison)
    loss = curves(comparison, logs)[1]
    entries = [e for seed in logs["full"] for e in seed if e["step"] == 40 and "loss" in e]
    mean = float(np.mean([entry["loss"]["sst"] for entry in entries]))
    assert f"full\nstep 40: {number(mean)} (2 seeds)" in loss.plot


def test_long_logs_are_thinned_and_broken_values_left_out(comparison: Comparison) -> None:
    logs = {
        v.label: [
            [{"step": n, "loss": {"sst": float("nan") if n % 2 else 0.5}} for n in range(500)]
        ]
        for v in comparison.variants
    }
    (figure,) = curves(comparison, logs)
    steps = [int(n) for n in re.findall(r"full\nstep (\d+)", figure.plot)]
    assert len(steps) == 40
    assert (steps[0], steps[-1]) == (0, 498)
    assert all(step % 2 == 0 for step in steps)
