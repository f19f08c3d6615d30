"""A model's config.json is read through one form: what is wrong in it is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bough.errors import UserError
from bough.inference.folder import read_metadata, save_metadata
from bough.inference.load import load_torch
from bough.runs.run_dir import Run
from bough.serve import task_info
from tests.inference.texts import SHORT


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("tasks", [], r"tasks is \[\]; expected keys"),
        ("tasks", {}, "tasks is {}; expected at least one"),
        ("tasks.sentiment.labels", None, "tasks.sentiment.labels: null; a trained classify task"),
        ("tasks.twin.range", None, "tasks.twin.range: null; a trained regress task"),
        ("shape.family", "x", "shape.family: 'x' is not one of bert"),
        ("shape.width", -1, "shape.width is -1; expected a number greater"),
        ("shape.heads", 3, "shape.heads: width 16 is not a multiple of 3 heads"),
        ("shape.types", True, "shape.types is True; expected a valid integer"),
        ("shape.activation", "x", "shape.activation: activation 'x' is not one of"),
        ("longest", -1, "longest is -1; expected a number greater"),
        ("longest", 999, "longest: 999 tokens are more than the encoder's 64"),
        ("plan", "split@9", "plan 'split@9'"),
        ("facts", None, "facts is None; expected keys"),
        ("facts.examples", [["one"]], r"facts.examples.0: expected .* \(found \['one'\]\)"),
        ("facts.scores.dev.tasks.twin.metric", "f1", "twin.metric: there is no f1 beside it"),
    ],
)
def test_broken_configs(place: str, value: Any, said: str, run: Run, tmp_path: Path) -> None:
    config = json.loads((run.model / "config.json").read_text())
    *way, last = place.split(".")
    holder = config
    for key in way:
        holder = holder[key]
    holder[last] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=f"config.json: .*{said}") as caught:
        read_metadata(tmp_path)
    assert "\n" not in str(caught.value)


def test_no_single_change_of_a_config_ends_in_a_traceback(run: Run, tmp_path: Path) -> None:
    whole = load_torch(run).only("sentiment").save(tmp_path)
    config = json.loads((whole / "config.json").read_text())

    def places(value: Any) -> Iterator[tuple[Any, Any]]:
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in inner:
            yield value, key
            if isinstance(part, dict | list):
                yield from places(part)

    for holder, key in list(places(config)):
        kept = holder[key]
        wrong: tuple[Any, ...] = (None, [], -1, {"a": 1})
        for value in wrong:
            holder[key] = value
            (whole / "config.json").write_text(json.dumps(config))
            with suppress(UserError):
                model = load_torch(whole)
                model.predict(SHORT)
                save_metadata(model, tmp_path)
                task_info.describe(model, "x")
        holder[key] = kept


def test_a_model_from_before_reads_the_pooler(run: Run, tmp_path: Path) -> None:
    """Its tasks need not say so: that was the default, and its weights are made for it."""
    folder = load_torch(run).save(tmp_path / "model")
    told = load_torch(folder).predict(SHORT)
    config = json.loads((folder / "config.json").read_text())
    for name in ("sentiment", "questions", "similarity"):
        assert config["tasks"][name].pop("pooling") == "pooler"
    del config["facts"]["pooling"]
    (folder / "config.json").write_text(json.dumps(config))
    again = load_torch(folder)
    assert [task.pooling for task in again.tasks.values()] == ["pooler"] * 3 + ["mean"]
    assert again.predict(SHORT) == told
