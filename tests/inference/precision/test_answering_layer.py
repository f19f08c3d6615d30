"""Networks that answer through the kernels, and when they do not."""

from __future__ import annotations

import pytest
import torch

from bough.data.packing import Pack
from bough.errors import UserError
from bough.inference.precision import answering_layer
from bough.inference.precision.answering_layer import AnsweringLayer, answer_in
from bough.model.network import Network
from bough.model.transformer import Layer
from bough.native.answering import available
from tests import tiny

SIZES = {"width": 128, "heads": 4, "inner": 192, "embedding": 128}
CPU = torch.device("cpu")


LENGTHS = [5, 12, 7]


def network(plan: str = "full", **changes: object) -> Network:
    tasks = {"a": tiny.task(), "b": tiny.task(number=True, pooling="mean")}
    return tiny.network(plan, tasks, tiny.encoder(**{**SIZES, **changes}))


def asked() -> tuple[Pack, dict[str, torch.Tensor]]:
    """Three sequences, of which each task reads some."""
    return tiny.pack(LENGTHS), {"a": torch.tensor([[0], [1]]), "b": torch.tensor([[1], [2]])}


def layers(made: Network) -> list[Layer]:
    return [cell for cell in made.cells.values() if isinstance(cell, Layer)]


@pytest.fixture
def kernels(monkeypatch) -> None:
    """As if this processor had them all."""
    monkeypatch.setattr(answering_layer, "available", lambda precision: True)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_a_network_answers_as_before_in_every_precision(precision):
    if not available(precision):
        pytest.skip(f"no kernel for {precision} here")
    made = network("split@1")
    pack, index = asked()
    with torch.inference_mode():
        expected = made(pack, index)
        answer_in(made, precision, CPU)
        got = made(pack, index)
    assert all(isinstance(layer, AnsweringLayer) for layer in layers(made))
    for task, outputs in expected.items():
        size = {"fp32": 1e-4, "bf16": 0.1, "int8": 0.3}[precision]
        torch.testing.assert_close(got[task], outputs, atol=size, rtol=size)


def test_its_weights_are_saved_as_they_were():
    if not available("fp32"):
        pytest.skip("no kernel for fp32 here")
    made = network()
    before = {name: weight.clone() for name, weight in made.state_dict().items()}
    answer_in(made, "fp32", CPU)
    after = made.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], weight) for name, weight in before.items())


def test_what_learns_goes_the_plain_way():
    if not available("fp32"):
        pytest.skip("no kernel for fp32 here")
    made = network()
    answer_in(made, "fp32", CPU)
    pack, index = asked()
    sum(outputs.sum() for outputs in made(pack, index).values()).backward()
    assert all(layer.qkv.weight.grad is not None for layer in layers(made))


def test_after_a_step_it_answers_by_what_was_learned():
    if not available("fp32"):
        pytest.skip("no kernel for fp32 here")
    made, plain = network(), network()
    plain.load_state_dict(made.state_dict())
    answer_in(made, "fp32", CPU)
    pack, index = asked()
    for one in (made, plain):
        optimiser = torch.optim.SGD(one.parameters(), lr=0.1)
        sum(outputs.sum() for outputs in one(pack, index).values()).backward()
        optimiser.step()
    with torch.inference_mode():
        torch.testing.assert_close(made(pack, index), plain(pack, index))


@pytest.mark.parametrize("first", ["fp32", "int8"])
def test_another_precision_without_a_kernel_leaves_none_behind(monkeypatch, first):
    if not available(first):
        pytest.skip(f"no kernel for {first} here")
    made, plain = network(), network()
    plain.load_state_dict(made.state_dict())
    answer_in(made, first, CPU)
    monkeypatch.setattr(answering_layer, "available", lambda precision: False)
    pack, index = asked()
    with torch.inference_mode():
        for one in (made, plain):
            answer_in(one, "bf16", CPU)
        assert not any(isinstance(layer, AnsweringLayer) for layer in layers(made))
        torch.testing.assert_close(made(pack, index), plain(pack, index), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("plan", "changes", "why"),
    [
        ("pal:16", {}, "adapters"),
        ("full", {"width": 80, "embedding": 80}, "width 80 with 4 heads"),
        ("full", {"activation": "relu"}, "relu"),
    ],
)
def test_int8_is_refused_where_there_is_no_kernel(kernels, plan, changes, why):
    with pytest.raises(UserError, match=rf"int8: .*{why}.*take precision auto, fp32 or bf16"):
        answer_in(network(plan, **changes), "int8", CPU)


def test_int8_is_refused_without_a_compiler(monkeypatch):
    monkeypatch.setattr(answering_layer, "available", lambda precision: False)
    with pytest.raises(UserError, match="no compiler, or its processor no instructions"):
        answer_in(network(), "int8", CPU)


@pytest.mark.parametrize("plan", ["full", "pal:16"])
def test_without_a_kernel_torch_answers(monkeypatch, plan):
    monkeypatch.setattr(answering_layer, "available", lambda precision: False)
    made = network(plan)
    answer_in(made, "bf16", CPU)
    assert made.narrow == torch.bfloat16
    assert not any(isinstance(layer, AnsweringLayer) for layer in layers(made))


def test_an_unknown_precision_is_named():
    with pytest.raises(UserError, match="int4"):
        answer_in(network(), "int4", CPU)
