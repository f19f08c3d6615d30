"""Plans are drawn once each, and weights counted by who uses them."""

from __future__ import annotations

import re
from pathlib import Path

from bough.comparison.compare import Comparison, compare
from bough.reports import plans
from tests import simulated


def test_each_plan_is_drawn_once(tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 30)
    for n, plan in enumerate(("full", "full", "feed:sst>sts", "feed:quora>sts")):
        recipe = simulated.recipe(source, plan, 0, **{"training.lr": (n + 1) * 1e-5})
        simulated.run(tmp_path / "runs" / f"r{n}", recipe)
    drawings = plans.drawings(compare([tmp_path]))
    assert len(drawings) == 3
    ids = [name for drawing in drawings for name in re.findall(r'id="([^"]*)"', drawing)]
    assert len(ids) == len(set(ids))
    for drawing in drawings:
        used = set(re.findall(r"url\(#([^)]*)\)", drawing))
        assert used <= set(re.findall(r'id="([^"]*)"', drawing))


def test_shared_layers(comparison: Comparison) -> None:
    depths = {v.plan: plans.shared_layers(v) for v in comparison.variants}
    assert depths == {"separate": -1, "split@2": 2, "split@4": 4, "full": 6}


def test_weights_by_users(comparison: Comparison) -> None:
    plot = plans.weights_by_users(comparison)
    assert plot is not None
    tips = re.findall(r'class="piece (\w+)" data-tip="(.*?)\n', plot)
    assert ("common", "full, used by all tasks: 22.7 M") in tips
    assert "common" not in {kind for kind, tip in tips if tip.startswith("separate")}


def test_without_models_there_is_nothing_to_draw(tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 30)
    run = simulated.run(tmp_path / "run", simulated.recipe(source, "full", 0))
    (run / "model" / "config.json").unlink()
    comparison = compare([run])
    assert plans.shared_layers(comparison.variants[0]) is None, "not as if they were none"
    assert plans.drawings(comparison) == []
    assert plans.weights_by_users(comparison) is None
