"""The ONNX graphs compute what they were traced from, and have every weight once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bough.export.onnx_graph import texts_graph
from bough.inference.model import Text
from bough.inference.torch_model import MultiTaskModel
from bough.model import pretrained
from bough.recipe.tasks import Task
from tests import tiny
from tests.exports import CLOSE, TASKS, TWINS, exported, mixed, model_of, pairs, worst

FEATURES = ("concat", "sum", "product", "difference", "cosine")
HIDDEN = TASKS | {"a": tiny.task(head="mlp", depth=2, width=8)}


@pytest.mark.parametrize(
    ("plan", "family", "tasks"),
    [
        ("split@1/b+c, lowrank:4@2", "roberta", TASKS),
        ("row@1, late:SI", "mpnet", TASKS),
        ("lora:2:qkvoif, bottleneck:4", "bert", TASKS),
        ("feed~:a>c, split@1, pal:4", "bert", HIDDEN),
    ],
)
def test_any_tasks_may_be_asked(
    plan: str, family: str, tasks: dict[str, Task], tmp_path: Path
) -> None:
    model = model_of(plan, tasks, family)
    other = exported(model, tmp_path)
    texts: list[Text] = [*mixed(), " ".join(["leaf"] * 34)]
    assert worst(model, other, texts) < CLOSE
    for task in tasks:  # alone, so that the other tasks' branches do not run
        fitting = [text for text in texts if isinstance(text, tuple) == tasks[task].paired]
        assert worst(model, other, fitting, [(task,)] * len(fitting)) < CLOSE


def test_twin_pairs_and_mean_pooling(tmp_path: Path) -> None:
    more = {"e": tiny.task(twin=True, features=FEATURES, fusion="attention", norm=True)}
    model = model_of("feed:a>c>d, feed:a>e, split@1", TWINS | more, "electra", embedding=8)
    other = exported(model, tmp_path)
    assert worst(model, other, mixed()) < CLOSE
    for tasks in (("d",), ("c",), ("b", "d"), ("e",)):
        assert worst(model, other, pairs(), [tasks] * len(pairs())) < CLOSE


@pytest.mark.parametrize(
    ("activation", "head", "number"),
    [("relu", "cosine-linear", False), ("gelu_new", "cosine-sigmoid", True)],
)
def test_activations_and_cosine_heads(
    activation: str, head: str, number: bool, tmp_path: Path
) -> None:
    label = {"number": True} if number else {"labels": ("no", "yes")}
    task = tiny.task(twin=True, head=head, project=True, norm=True, **label)
    tasks = {"a": tiny.task(reads_as="hidden"), "b": task}
    model = model_of("feed:a>b", tasks, "distilbert", activation=activation)
    assert worst(model, exported(model, tmp_path), pairs()) < CLOSE


@pytest.mark.parametrize("kinds", ["abcda", "cdabd"])
def test_a_task_may_have_any_name(kinds: str, tmp_path: Path) -> None:
    names = ("ids", "types", "asked", "in", "first")
    tasks = {name: TWINS[kind] for name, kind in zip(names, kinds, strict=True)}
    model = model_of("full", tasks, layers=1)
    assert worst(model, exported(model, tmp_path), mixed()) < CLOSE


@pytest.mark.parametrize("plan", ["pal:8, late:IS", "separate"])
def test_weights_are_there_once(plan: str) -> None:
    """Streams that part keep sharing cells: the file has what the network has."""
    model = model_of(plan, TASKS)
    weights = texts_graph(model.network, {}).graph.initializer
    names = [weight.name for weight in weights]
    assert len(names) == len(set(names))
    stored = sum(np.prod(weight.dims) for weight in weights if weight.name.startswith("cells."))
    assert stored == sum(p.numel() for p in model.network.parameters())
    others = [weight for weight in weights if not weight.name.startswith("cells.")]
    assert max(np.prod(weight.dims) for weight in others) < 10


def test_a_graph_tells_nothing_of_the_code_it_was_traced_from() -> None:
    graph = texts_graph(model_of("split@1", TASKS).network, {"tasks": "a,b,c"})
    assert {prop.key: prop.value for prop in graph.metadata_props} == {"tasks": "a,b,c"}
    assert b".py" not in graph.SerializeToString()
    assert (graph.producer_name, graph.ir_version, graph.opset_import[0].version) == (
        "bough",
        10,
        20,
    )


@pytest.mark.parametrize("plan", ["split@3", "feed:sst>quora>sts"])
def test_minilm(plan: str, minilm: pretrained.Encoder, tmp_path: Path) -> None:
    tasks = {
        "sst": tiny.task(labels=tuple("01234"), pooling="cls"),
        "quora": tiny.task(joint=True, labels=("0", "1")),
        "sts": tiny.task(joint=True, number=True, pooling="mean"),
    }
    network = tiny.network(plan, tasks, minilm, stir=0.005)
    model = MultiTaskModel(network, minilm.tokenizer, 512)
    texts: list[Text] = [
        "A fine film, if a little slow.",
        "Bad.",
        ("How do trees grow?", "What makes a tree grow, and how fast does it happen?"),
        ("One.", "Two."),
    ]
    assert worst(model, exported(model, tmp_path), texts) < CLOSE
