"""The ONNX graphs compute what they were traced from, and have every weight once."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest

import bough
from bough.inference.model import Text
from bough.inference.onnx_model import OnnxModel
from bough.inference.onnx_names import TEXTS_FILE
from bough.inference.torch_model import MultiTaskModel
from bough.model import pretrained
from tests import tiny
from tests.exports import CLOSE, TASKS, TWINS, exported, mixed, model_of, pairs, worst

FEATURES = ("concat", "sum", "product", "difference", "cosine")
HIDDEN = TASKS | {"a": tiny.task(head="mlp", depth=2, width=8)}


class Traced(NamedTuple):
    """A model, and what answers from its exported folder: traced once for several tests."""

    model: MultiTaskModel
    onnx: OnnxModel
    graph: onnx.ModelProto


@pytest.fixture(
    scope="module",
    params=[
        ("row@1, late:SI, lowrank:4@2", "mpnet"),
        ("feed~:a>c, split@1/b+c, pal:4, lora:2:qkvoif, bottleneck:4", "bert"),
    ],
)
def traced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    plan, family = request.param
    model = model_of(plan, HIDDEN, family)
    folder = tmp_path_factory.mktemp(family)
    return Traced(model, exported(model, folder), onnx.load(folder / TEXTS_FILE))


def test_any_tasks_may_be_asked(traced: Traced) -> None:
    texts: list[Text] = [*mixed(), " ".join(["leaf"] * 34)]
    assert worst(traced.model, traced.onnx, texts) < CLOSE
    for name, task in HIDDEN.items():  # alone, so that the other tasks' branches do not run
        fitting = [text for text in texts if isinstance(text, tuple) == task.paired]
        assert worst(traced.model, traced.onnx, fitting, [(name,)] * len(fitting)) < CLOSE


def test_weights_are_there_once(traced: Traced) -> None:
    """Streams that part keep sharing cells: the file has what the network has."""
    weights = traced.graph.graph.initializer
    names = [weight.name for weight in weights]
    assert len(names) == len(set(names))
    stored = sum(np.prod(weight.dims) for weight in weights if weight.name.startswith("cells."))
    network = traced.model.network
    by_distance = {n for n, _ in network.named_parameters() if n.endswith("relative.weight")}
    stored += sum(network.get_parameter(name).numel() for name in by_distance)  # written out below
    assert stored == sum(p.numel() for p in network.parameters())
    others = [np.prod(w.dims) for w in weights if not w.name.startswith("cells.")]
    assert sum(size >= 10 for size in others) == len(by_distance)


def test_a_graph_tells_nothing_of_the_code_it_was_traced_from(traced: Traced) -> None:
    graph = traced.graph
    told = {prop.key: prop.value for prop in graph.metadata_props}
    plan, tasks = traced.model.plan.text, "a,b,c"
    assert told == {"bough": bough.__version__, "plan": plan, "tasks": tasks, "weights": "fp32"}
    assert b".py" not in graph.SerializeToString()
    made = (graph.producer_name, graph.ir_version, graph.opset_import[0].version)
    assert made == ("bough", 10, 20)


def test_twin_pairs_and_mean_pooling(tmp_path: Path) -> None:
    more = {"e": tiny.task(twin=True, features=FEATURES, fusion="attention", norm=True)}
    model = model_of("feed:a>c>d, feed:a>e, split@1", TWINS | more, "electra", embedding=8)
    other = exported(model, tmp_path)
    assert worst(model, other, mixed()) < CLOSE
    for tasks in (("d",), ("c",), ("b", "d"), ("e",)):
        assert worst(model, other, pairs(), [tasks] * len(pairs())) < CLOSE


def test_activations_and_cosine_heads(tmp_path: Path) -> None:
    both = {"twin": True, "project": True, "norm": True}
    tasks = {
        "a": tiny.task(reads_as="hidden"),
        "b": tiny.task(head="cosine-linear", labels=("no", "yes"), **both),
        "c": tiny.task(head="cosine-sigmoid", number=True, **both),
    }
    model = model_of("feed:a>b, feed:a>c", tasks, "distilbert", activation="gelu_new", layers=1)
    assert worst(model, exported(model, tmp_path), pairs()) < CLOSE


@pytest.mark.parametrize("kinds", ["abcda", "cdabd"])
def test_a_task_may_have_any_name(kinds: str, tmp_path: Path) -> None:
    names = ("ids", "types", "asked", "in", "first")
    tasks = {name: TWINS[kind] for name, kind in zip(names, kinds, strict=True)}
    model = model_of("full", tasks, layers=1)
    assert worst(model, exported(model, tmp_path), mixed()) < CLOSE


def test_minilm(minilm: pretrained.Encoder, tmp_path: Path) -> None:
    tasks = {
        "sst": tiny.task(labels=tuple("01234"), pooling="cls"),
        "quora": tiny.task(joint=True, labels=("0", "1")),
        "sts": tiny.task(joint=True, number=True, pooling="mean"),
    }
    network = tiny.network("split@3, feed:sst>quora>sts", tasks, minilm, stir=0.005)
    model = MultiTaskModel(network, minilm.tokenizer, 512)
    texts: list[Text] = [
        "A fine film, if a little slow.",
        "Bad.",
        ("How do trees grow?", "What makes a tree grow, and how fast does it happen?"),
        ("One.", "Two."),
    ]
    assert worst(model, exported(model, tmp_path), texts) < CLOSE
