"""The weights that go along with code of ours: once each, and not of twin pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.errors import UserError
from bough.export.transformers_export import write_checkpoint
from tests import tiny
from tests.exports import TASKS, model_of
from tests.in_transformers import (
    written,
)

pytestmark = pytest.mark.usefixtures("own_modules")


def test_what_is_in_common_is_there_and_computed_once(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    for plan, least in (("feed:a>b", 1.0), ("separate, feed:a>b", 1.9)):
        model = model_of(plan, TASKS)
        folder = tmp_path / str(least)
        written(model, folder, "b")
        size = sum(t.numel() for t in load_file(folder / "model.safetensors").values())
        alone = sum(p.numel() for p in model.only("a").network.parameters())
        assert least * alone < size < (least + 0.2) * alone


def test_twin_pairs_stay_out(tmp_path: Path) -> None:
    model = model_of("full", {"a": tiny.task(twin=True)})
    with pytest.raises(UserError, match=r"apart.* --onnx instead, or its trunk alone with --trunk"):
        write_checkpoint(model, tmp_path, "a")
    assert list(tmp_path.iterdir()) == []
    written(model, tmp_path / "a", "a", trunk=True)
