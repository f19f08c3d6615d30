"""Answers and scores of a network over whole sets, whatever the batches were."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bough.data.checked_rows import Rows
from bough.data.examples import Examples
from bough.data.label_cells import label_cells
from bough.data.packing import by_tokens, collate
from bough.model.losses import loss
from bough.model.network import Network
from bough.recipe.kinds import KINDS, Kind
from bough.recipe.tasks import Task
from bough.scoring import evaluate
from bough.scoring.evaluate import calibrate, learned_nothing, predict, score
from bough.scoring.metrics import Predictions
from tests import tiny


@pytest.fixture(scope="module")
def judged() -> tuple[Network, dict[str, Examples]]:
    tasks = {
        "one": tiny.task(),
        "two": tiny.task(twin=True, number=True),
        "three": tiny.task(joint=True),
    }
    network = tiny.network("split@1", tasks, tiny.encoder(), stir=0.3)
    words = ["tree", "old", "leaf", "green", "film", "bad", "slow", "root", "bough", "is"]
    rng = np.random.default_rng(0)

    def text() -> str:
        return " ".join(rng.choice(words, rng.integers(1, 12)))

    examples = {}
    for name, task in network.tasks.items():
        texts: list[tuple[str, ...]] = [
            (text(), text()) if task.paired else (text(),) for _ in range(37)
        ]
        low, high = task.range or (0, 1)
        labels: Any = (
            rng.integers(0, task.classes, 37).tolist()
            if task.kind == "classify"
            else rng.uniform(low, high, 37).tolist()
        )
        rows = Rows(texts, labels, [str(i) for i in range(37)], "memory", list(range(37)))
        examples[name] = Examples.of(task, rows, tiny.tokenizer(), 30)
    return network, examples


@pytest.mark.parametrize("tokens", [1, 20, 97, 10_000])
def test_parts_do_not_matter(
    tokens: int,
    judged: tuple[Network, dict[str, Examples]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, examples = judged
    whole = score(network.tasks, examples, predict(network, examples))
    monkeypatch.setattr(evaluate, "by_tokens", partial(by_tokens, budget=tokens))
    found = predict(network, examples)
    for name, own in found.items():
        assert len(own.values) == 37
        alone = predict(network, {name: examples[name]})[name]
        assert np.array_equal(own.values, alone.values)
    parts = score(network.tasks, examples, found)
    for name, own in parts["tasks"].items():
        for metric, value in own.items():
            if metric != "metric":
                assert value == pytest.approx(whole["tasks"][name][metric], abs=1e-5)


def test_the_loss_is_the_mean_over_rows(judged: tuple[Network, dict[str, Examples]]) -> None:
    network, examples = judged
    found = predict(network, examples)
    for name, own in examples.items():
        task = network.tasks[name]
        each = []
        for i in range(len(own)):
            batch = collate({name: own}, {name: np.array([i])})
            with torch.no_grad():
                out = network(batch.pack, batch.index)[name]
            each.append(float(loss(task, out, batch.targets[name])))
        assert found[name].loss == pytest.approx(np.mean(each), rel=1e-4)


def test_rows_without_labels_are_answered_and_not_scored(
    judged: tuple[Network, dict[str, Examples]], tmp_path: Path
) -> None:
    network, examples = judged
    bare = {name: replace(own, targets=None) for name, own in examples.items()}
    bare["one"] = examples["one"]
    found = predict(network, bare)
    assert found["two"].loss is None
    assert isinstance(found["two"], Predictions)
    assert set(score(network.tasks, bare, found)["tasks"]) == {"one"}


def test_rows_and_intervals_are_told(judged: tuple[Network, dict[str, Examples]]) -> None:
    network, examples = judged
    told = score(network.tasks, examples, predict(network, examples), intervals=True)
    for name, own in told["tasks"].items():
        assert own["rows"] == 37
        assert own["metric"] == network.tasks[name].metric_name
        low, high = own["interval"]
        assert low <= own[own["metric"]] <= high


def test_what_the_commonest_class_would_have_is_told(
    judged: tuple[Network, dict[str, Examples]],
) -> None:
    network, examples = judged
    told = score(network.tasks, examples, predict(network, examples), intervals=True)
    classes = [name for name, task in network.tasks.items() if task.kind == "classify"]
    for name in classes:
        truth = examples[name].truth
        assert truth is not None
        most = Counter(truth.tolist()).most_common(1)[0][1]
        assert told["tasks"][name]["commonest"] == most / 37
    one = {"metric": "accuracy", "accuracy": 0.52, "interval": (0.46, 0.58), "commonest": 0.527}
    tasks = {"bad": one, "good": one | {"commonest": 0.4}, "other": one | {"metric": "f1"}}
    (sentence,) = learned_nothing({"tasks": tasks})
    assert sentence.startswith("task 'bad': accuracy .520 is not shown to be above .527, which")


@pytest.mark.parametrize(
    ("kind", "metric"), [(k, m) for k, r in KINDS.items() for m in (*r.metrics, *r.more_metrics)]
)
def test_every_kind_is_judged_by_every_metric_it_may_name(kind: Kind, metric: str) -> None:
    """And whatever it is judged by, it may have learned nothing."""
    pooling = "words" if kind == "tag" else "mean"
    task = Task.model_validate({"kind": kind, "text": "text", "metric": metric, "pooling": pooling})
    every: dict[str, list[Any]] = {
        "classify": ["a", "b"], "regress": [0.5, 2.0], "ordinal": ["1", "2"],
        "multilabel": [["a"], ["a", "b"]], "tag": [[], [[0, 4, "x"]]],
    }  # fmt: skip
    cells = every[kind]
    task = label_cells(task).found("t", cells, None)
    labels = [label_cells(task).read(cells[n % 2], "tree") for n in range(12)]
    texts = [("tree",)] * 12
    rows = Rows(texts, labels, [str(n) for n in range(12)], "memory", list(range(12)))
    examples = {"t": Examples.of(task, rows, tiny.tokenizer(), 30)}
    network = tiny.network("full", {"t": task}, tiny.encoder())
    told = score(network.tasks, examples, predict(network, examples), intervals=True)
    assert told["tasks"]["t"]["metric"] == metric
    sentences = learned_nothing(told)
    assert len(sentences) == (metric == "accuracy" and kind != "multilabel")


def test_tasks_without_a_temperature_are_given_one(
    judged: tuple[Network, dict[str, Examples]],
) -> None:
    network, examples = judged
    tasks = dict(network.tasks)
    tasks["two"] = tasks["two"].model_copy(update={"temperature": 3.0})
    predictions = predict(network, examples)
    before = dict(predictions)
    found = calibrate(tasks, examples, predictions)
    assert found.keys() == {"one", "three"}, "one was given by the user"
    for name, own in found.items():
        assert tasks[name].temperature == own["temperature"]
        assert np.array_equal(predictions[name].values, before[name].values)
        fitted = network.tasks | {name: tasks[name]}
        again = score(fitted, examples, predictions, intervals=True)["tasks"][name]
        first = score(fitted, examples, before, intervals=True)["tasks"][name]
        assert (first.pop("ece"), again.pop("ece")) == (own["ece_before"], own["ece"])
        assert first == again, "no score changes"
