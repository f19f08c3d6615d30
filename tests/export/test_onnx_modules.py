"""What the ONNX graphs are traced from answers as bough does: every plan, family, head."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from bough.export.onnx_modules import TextsModule
from bough.inference.model import Text
from bough.inference.torch_model import MultiTaskModel
from bough.model.transformer import Layer
from bough.plan.encoder_shape import FAMILIES
from bough.plan.plan import Plan
from bough.recipe.tasks import Task
from tests import tiny
from tests.exports import CLOSE, TASKS, TWINS, mixed, model_of, pairs, untraced, worst
from tests.plain_pass import cases

PLANS = [
    "full",
    "separate",
    "split@1/b+c",
    "row@1, late:SI",
    "pal:8",
    "lowrank:4@2",
    "lora:2:qkvoif",
    "bottleneck:4, split@1",
    "late:IS",
    "feed:a>b>c",
    "feed~:a>c, split@1, pal:4",
]


@pytest.mark.parametrize("plan", PLANS)
def test_every_plan(plan: str) -> None:
    model = model_of(plan, TASKS)
    assert worst(model, untraced(model), mixed()) < CLOSE


@pytest.mark.parametrize("plan", ["full", "split@1", "feed:a>c>d", "feed:a>d, pal:4, late:SI"])
def test_twin_pairs_and_mean_pooling(plan: str) -> None:
    model = model_of(plan, TWINS)
    assert worst(model, untraced(model), mixed()) < CLOSE


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family: str) -> None:
    sizes = {"embedding": 8} if family == "electra" else {}
    model = model_of("split@1, lora:2", TASKS | {"d": TWINS["d"]}, family, **sizes)
    texts: list[Text] = [*mixed(), " ".join(["leaf"] * 34)]
    assert worst(model, untraced(model), texts) < CLOSE


@pytest.mark.parametrize("activation", ["relu", "gelu_new"])
def test_other_activations(activation: str) -> None:
    model = model_of("full", TASKS, activation=activation)
    assert worst(model, untraced(model), mixed()) < CLOSE


@pytest.mark.parametrize("head", ["cosine", "cosine-linear", "cosine-sigmoid"])
@pytest.mark.parametrize("number", [True, False])
def test_cosine_heads(head: str, number: bool) -> None:
    label = {"number": True} if number else {"labels": ("no", "yes")}
    task = tiny.task(twin=True, head=head, project=True, norm=True, **label)
    model = model_of("feed:a>b", {"a": tiny.task(reads_as="hidden"), "b": task})
    assert worst(model, untraced(model), pairs()) < CLOSE


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(), seed=st.integers(0, 99))
def test_any_plan_and_tasks(case: tuple[Plan, dict[str, Task]], seed: int) -> None:
    plan, tasks = case
    source = tiny.encoder("mpnet" if seed % 2 else "bert", layers=plan.layers)
    network = tiny.network(plan, tasks, source, seed=seed, stir=0.1)
    model = MultiTaskModel(network, source.tokenizer, source.shape.longest)
    counts = {len(task.columns) for task in tasks.values()}
    texts = [text for text in mixed() if (2 if isinstance(text, tuple) else 1) in counts]
    assert worst(model, untraced(model), texts) < CLOSE


@pytest.mark.parametrize(("plan", "layers"), [("full", 2), ("split@1", 1 + 3), ("separate", 6)])
def test_what_tasks_share_is_computed_once(
    plan: str, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    real = Layer.forward

    def counted(layer: Layer, *inputs: Any) -> Tensor:
        calls.append(layer)
        return real(layer, *inputs)

    monkeypatch.setattr(Layer, "forward", counted)
    ids = torch.ones(3, 5, dtype=torch.long)
    TextsModule(model_of(plan, TASKS).network)(ids, torch.zeros_like(ids))
    assert len(calls) == layers
