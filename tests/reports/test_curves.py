"""Curves are means over the seeds, at steps that were logged."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bough.comparison.compare import Comparison
from bough.formatting import number
from bough.reports.curves import curves, read_logs, whole


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


def test_axes_of_few_steps_and_like_scores_can_be_read(comparison: Comparison) -> None:
    """Steps are whole numbers at their own places, and no two ticks say the same."""
    points = ((20, 0.8203), (25, 0.8221), (30, 0.8219))
    logs = {
        v.label: [[{"step": n, "loss": {"sst": loss}} for n, loss in points]]
        for v in comparison.variants
    }
    (figure,) = curves(comparison, logs)
    ticks = re.findall(
        r'class="tick" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">(.*?)<', figure.plot
    )
    steps = [(float(x), int(words)) for x, _, anchor, words in ticks if anchor == "middle"]
    losses = [(float(y), float(words)) for _, y, anchor, words in ticks if anchor == "end"]
    for places in (steps, losses):
        distances = np.diff(np.array(places), axis=0)
        assert len(places) >= 3
        assert distances[:, 0] / distances[:, 1] == pytest.approx(
            distances[0, 0] / distances[0, 1], rel=0.02
        )


def test_long_numbers_of_steps_are_short_where_nothing_is_lost() -> None:
    assert [whole(n) for n in (250, 1250, 12_500, 15_000, 12_345)] == [
        "250", "1,250", "12.5k", "15k", "12,345"
    ]  # fmt: skip
