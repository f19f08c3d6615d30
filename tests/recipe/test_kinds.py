"""The kinds of tasks: what a recipe may say of each."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import ValidationError

from bough.recipe.kinds import KINDS, OWN_KEYS, Kind, kinds_with
from bough.recipe.tasks import Loss, Metric, Task
from bough.scoring.metrics import METRICS


def test_every_kind_has_its_rules() -> None:
    assert tuple(KINDS) == get_args(Kind)
    for rules in KINDS.values():
        assert set(rules.losses) <= set(get_args(Loss))
        assert set(rules.metrics) <= METRICS.keys()
        assert set(rules.metrics) <= set(get_args(Metric))
        assert {*rules.keys, *rules.found} <= Task.model_fields.keys()
        assert set(rules.more_metrics) <= METRICS.keys()


@pytest.mark.parametrize("key", OWN_KEYS)
def test_a_key_of_other_kinds_is_refused_with_the_kinds_that_have_it(key: str) -> None:
    given = {
        "labels": ["a", "b"], "label_values": ["0", "1"], "class_weights": "balanced",
        "smoothing": 0.1, "temperature": 2.0, "range": [0, 1], "scale": [0, 1], "separator": ";",
        "scheme": "bioes",
    }  # fmt: skip
    for kind in set(get_args(Kind)) - set(kinds_with(key)):
        with pytest.raises(ValidationError, match=f"this is for {kinds_with(key)[0]}"):
            Task.model_validate({"kind": kind, "text": "x", key: given[key]})


def test_several_label_columns_are_for_several_labels() -> None:
    Task(kind="multilabel", text="x", label=("a", "b"))
    with pytest.raises(ValidationError, match="set `kind: multilabel`"):
        Task(kind="classify", text="x", label=("a", "b"))
    for label in (["a"], ["a", "a"], [], 3):
        with pytest.raises(ValidationError, match="expected a column's name, or a list"):
            Task.model_validate({"kind": "multilabel", "text": "x", "label": label})
