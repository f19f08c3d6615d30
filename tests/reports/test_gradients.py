"""Maps of cosines: only of variants that share something, in few columns."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from bough.comparison.compare import Comparison
from bough.reports.curves import read_logs
from bough.reports.gradients import COLUMNS, cosine_maps


def values(plot: str) -> Any:
    return json.loads(html.unescape(re.findall(r'data-heat="(.*?)"', plot)[0]))


def test_only_variants_that_share_have_maps(comparison: Comparison) -> None:
    maps = cosine_maps(comparison, read_logs(comparison))
    assert sorted(one.label for one in maps) == ["full", "split@2", "split@4"]
    for one in maps:
        titles = [figure.title for figure in one.figures]
        assert titles == ["sst and quora", "sst and sts", "quora and sts"]


def test_columns_are_means_over_steps_and_seeds(comparison: Comparison) -> None:
    logs: dict[str, list[list[dict[str, Any]]]] = {v.label: [] for v in comparison.variants}
    for sign in (1, 3):
        logs["full"].append(
            [
                {"step": n, "cosines": {"layer 1": {"a+b": sign * n / 1000, "a+c": None}}}
                for n in range(2 * COLUMNS)
            ]
        )
    (one,) = cosine_maps(comparison, logs)
    (figure,) = one.figures  # none of a pair without a value
    heat = values(figure.plot)
    assert heat["y"] == ["layer 1"]
    assert len(heat["x"]) == COLUMNS
    assert heat["v"][0][10] == pytest.approx(round(2 * 20.5 / 1000, 2))
