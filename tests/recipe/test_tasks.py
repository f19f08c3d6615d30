"""Tasks: what their settings mean, and which do not go together."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from bough.errors import UserError
from bough.recipe.sources import Hub
from bough.recipe.tasks import Task

SINGLE: dict[str, Any] = {"kind": "classify", "text": "sentence"}
PAIR: dict[str, Any] = {"kind": "regress", "text": ["a", "b"], "range": [0, 5]}


def test_columns() -> None:
    single, pair = Task(**SINGLE), Task(**PAIR, pair="twin")
    assert (single.columns, single.paired, single.twin) == (("sentence",), False, False)
    assert (pair.columns, pair.paired, pair.twin) == (("a", "b"), True, True)
    assert Task(kind="classify", text=["a"]).columns == ("a",)


@pytest.mark.parametrize(
    ("settings", "labels", "loss", "metric", "outputs"),
    [
        ({}, "01", "bce", "accuracy", 1),
        ({}, "012", "ce", "accuracy", 3),
        ({"loss": "ce"}, "01", "ce", "accuracy", 2),
        ({"loss": "ordinal"}, "01234", "ordinal", "accuracy", 4),
        ({"loss": "mse"}, "01", "mse", "accuracy", 1),
        ({"metric": "mcc"}, "01", "bce", "mcc", 1),
    ],
)
def test_what_auto_means(
    settings: dict[str, Any], labels: str, loss: str, metric: str, outputs: int
) -> None:
    task = Task(**SINGLE, **settings).with_labels(labels)
    assert (task.loss_name, task.metric_name, task.outputs) == (loss, metric, outputs)
    assert task.classes == len(labels)


def test_a_regress_task_has_one_output() -> None:
    task = Task(**PAIR)
    assert (task.loss_name, task.metric_name, task.outputs) == ("mse", "pearson", 1)


def test_what_features_were_by_default_is_no_fault() -> None:
    """Runs of that time have it in their recipe, also for a task on single texts."""
    assert not Task(**SINGLE, features=["concat", "difference", "product"]).twin


def test_classes_unknown() -> None:
    with pytest.raises(RuntimeError, match=r"rows\.load finds them"):
        _ = Task(**SINGLE).outputs


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"range": [0, 5]}, "range"),
        ({"labels": ["a"]}, "two or more classes"),
        ({"labels": [0, 0.0]}, "twice"),
        ({"labels": ["", "b"]}, "empty"),
        ({"labels": ["a", "b", "c"], "loss": "bce"}, "two classes and here are 3"),
        ({"loss": "huber"}, "does not fit kind classify"),
        ({"metric": "pearson"}, "does not fit kind classify"),
        ({"head": "cosine"}, "pair: twin"),
        ({"features": ["sum"]}, "pair: twin"),
        ({"label": "sentence"}, "both text and label"),
        ({"labels": ["no", "yes"], "class_weights": {"yess": 2}}, "did you mean 'yes'"),
        ({"class_weights": {"a": -1}}, "greater than or equal to 0"),
        ({"text": ["a", "b", "c"]}, "two different ones"),
        ({"text": ["a", "a"]}, "two different ones"),
        ({"weight": float("inf")}, "finite"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Task(**(SINGLE | settings))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"range": [5, 0]}, "lowest label, then the highest"),
        ({"labels": ["a", "b"]}, "for classify, ordinal"),
        ({"smoothing": 0.1}, "for classify, ordinal"),
        ({"class_weights": "balanced"}, "for classify, ordinal"),
        ({"loss": "bce"}, "does not fit kind regress"),
        ({"metric": "f1"}, "does not fit kind regress"),
        ({"pair": "twin", "features": ["sum", "sum"]}, "twice"),
    ],
)
def test_settings_of_a_regress_task(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Task(**(PAIR | settings))


def test_what_only_the_classes_can_tell() -> None:
    twin = Task(kind="classify", text=["a", "b"], pair="twin", head="cosine-linear")
    assert twin.with_labels(["0", "1"]).outputs == 1
    with pytest.raises(UserError, match="cannot tell 3 classes apart"):
        twin.with_labels(["0", "1", "2"])
    with pytest.raises(UserError, match="is no class of this task"):
        Task(**SINGLE, class_weights={"x": 2}).with_labels(["0", "1"])


def test_class_weights_know_numbers_as_classes() -> None:
    task = Task(**SINGLE, labels=[0, 1], class_weights={0: 1, 1.0: 2})
    assert (task.labels, task.class_weights) == (("0", "1"), {"0": 1.0, "1": 2.0})


def test_every_field_is_explained() -> None:
    for model in (Task, Hub):
        for name, field in model.model_fields.items():
            assert field.description, name
            assert field.description.endswith("."), name


def test_frozen() -> None:
    with pytest.raises(ValidationError):
        Task(**SINGLE).weight = 2.0  # type: ignore[misc]


def test_classes_can_have_names() -> None:
    task = Task(**SINGLE, labels={0: "description", "1.0": "entity", True: "other"})
    assert task.labels == ("description", "entity", "other")
    assert task.label_values == ("0", "1", "true")
    assert Task(**task.model_dump()) == task, "as a run's recipe and a model's config have it"
    for labels, values in ((None, ["a"]), (["a", "b"], ["x"]), (["a", "b"], ["x", "x"])):
        with pytest.raises(ValidationError, match="one value of its own"):
            Task(**SINGLE, labels=labels, label_values=values)
    with pytest.raises(ValidationError, match="is there twice"):
        Task(**SINGLE, labels={0: "a", 1: "a"})
