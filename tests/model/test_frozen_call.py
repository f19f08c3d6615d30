"""Feeds: what a task reads of another reaches what both share, and never moves the other's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bough.data.packing import Pack
from bough.model.adapters import AdapterModule, Segment, SegmentAdapters
from bough.model.attention import Layout
from bough.model.frozen_call import FrozenAdapter, call_frozen
from bough.model.network import Network
from bough.model.pretrained import Encoder
from tests import tiny
from tests.plain_pass import FEEDS, TASKS, cell_of, check_against_hand, gradients, keys, weighted


@pytest.mark.parametrize("text", FEEDS)
@pytest.mark.parametrize("reads_as", ["logits", "hidden"])
def test_feeds_equal_the_plain_pass(text: str, reads_as: str, tiny_encoder: Encoder) -> None:
    tasks = {n: t.model_copy(update={"reads_as": reads_as}) for n, t in TASKS.items()}
    model = tiny.network(text, tasks, tiny_encoder, stir=0.2)
    check_against_hand(model, tiny.pack([3, 5, 3, 4]))


def test_feeds_on_twins(tiny_encoder: Encoder) -> None:
    """System E: the pair tasks read the sentiment of each text; similarity reads both others."""
    tasks = {
        "sst": tiny.task(head="mlp", depth=2, width=6, norm=True),
        "para": tiny.task(twin=True, labels=("0", "1"), head="mlp", depth=2, width=6, norm=True),
        "sts": tiny.task(twin=True, number=True, head="cosine", norm=True),
    }
    for text in (
        "feed:sst>para>sts",
        "feed~:sst>para>sts",
        "feed~0.1:sst>para>sts",
        "feed~:sst>sts, split@1, pal:4",
    ):
        model = tiny.network(text, tasks, tiny_encoder, stir=0.2)
        check_against_hand(model, tiny.pack([3, 5, 3, 4]))


def one_text(text: str, encoder: Encoder) -> tuple[Network, Tensor, nn.Module, nn.Module]:
    """A network of `a` and its reader `b`, a text's pooled vector under `full`, and both heads."""
    tasks = {"a": TASKS["a"], "b": TASKS["b"]}
    model = tiny.network(text, tasks, encoder, stir=0.2)
    heads = model.cells["head/a"], model.cells["head/b"]
    return model, tiny.pack([4]).tokens, *heads


@pytest.mark.parametrize("text", ["feed:a>b", "feed~:a>b"])
def test_feed_by_hand(text: str, tiny_encoder: Encoder) -> None:
    """y_b = W_b [x, W_a x + v_a] + v_b, and its gradients written out."""
    model, tokens, head_a, head_b = one_text(text, tiny_encoder)
    pack = Pack(tokens, (4,))
    h = model.cells["embeddings/all"](*tokens.unbind(1), None)
    for n in (1, 2):
        h = model.cells[f"layer{n}/all"](h, Layout((4,)), None)
    first = h[:1].detach()
    dense = model.cells["pooler/all"].get_submodule("dense")
    assert isinstance(dense, nn.Linear)
    with torch.no_grad():
        x = torch.tanh(dense(first))[0]
        w_a, v_a = head_a.get_parameter("output.weight"), head_a.get_parameter("output.bias")
        w_b, v_b = head_b.get_parameter("output.weight"), head_b.get_parameter("output.bias")
        read = w_a @ x + v_a
        y = w_b @ torch.cat([x, read]) + v_b
        own, across = w_b[0, :16], w_b[0, 16:]
        d_x = own + w_a.T @ across if "~" in text else own
        d_pooler = (d_x * (1 - x**2))[:, None] * first
    output = model(pack, {"b": torch.tensor([[0]])})["b"]
    torch.testing.assert_close(output[0], y)
    output.sum().backward()
    assert all(p.grad is None for p in head_a.parameters())
    torch.testing.assert_close(dense.weight.grad, d_pooler)
    torch.testing.assert_close(w_b.grad, torch.cat([x, read])[None])


@pytest.mark.parametrize("extra", ["", ", split@1", ", separate", ", pal:4", ", split@1, lora:2"])
def test_stop_leaves_all_that_only_the_source_uses(extra: str, tiny_encoder: Encoder) -> None:
    """And `feed~` changes the gradient of what is shared, of nothing else."""
    found = {}
    for sign in ("", "~"):
        model, tokens, *_ = one_text(f"feed{sign}:a>b{extra}", tiny_encoder)
        output = model(Pack(tokens, (4,)), {"b": torch.tensor([[0]])})["b"]
        found[sign] = gradients(model, output.sum())
    users = model.plan.users()
    shared = keys(cell for cell, names in users.items() if len(names) == 2)
    only_a = keys(cell for cell, names in users.items() if names == ("a",))
    assert "head/a" in only_a
    for name, stopped in found[""].items():
        through = found["~"][name]
        assert (stopped is None) == (through is None) == (cell_of(name) in only_a), name
        if stopped is not None and through is not None:
            changed = not torch.allclose(stopped, through, rtol=1e-3)
            if "norm2.bias" in name or "pooler" in name:
                assert changed == (cell_of(name) in shared), name
            elif changed:
                assert cell_of(name) in shared, name


def test_a_frozen_call_answers_alike_and_leaves_the_weights_alone() -> None:
    module = nn.Linear(3, 2)
    x = torch.randn(4, 3, requires_grad=True)
    found, wanted = call_frozen(module, x), module(x)
    assert torch.equal(found, wanted)
    found.square().sum().backward()
    (right,) = torch.autograd.grad(wanted.square().sum(), x)
    assert module.weight.grad is None
    assert x.grad is not None
    assert torch.equal(x.grad, right)


def test_a_share_of_the_gradient_moves_the_weights() -> None:
    module = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    found, wanted = call_frozen(module, x, share=0.25), module(x)
    assert torch.equal(found, wanted)
    found.square().sum().backward()
    (right,) = torch.autograd.grad(wanted.square().sum(), module.weight)
    assert module.weight.grad is not None
    torch.testing.assert_close(module.weight.grad, right / 4)


@pytest.mark.parametrize("text", ["pal:4", "lora:2:qkvoif", "bottleneck:3", "lowrank:2"])
@pytest.mark.parametrize("cls_only", [False, True])
def test_a_frozen_adapter_adds_the_same(text: str, cls_only: bool) -> None:
    model = tiny.network(text, {"a": TASKS["a"]}, stir=0.2)
    layer, layout = model.cells["layer1/all"], Layout((3, 2))
    adapter = next(m for m in model.cells.values() if isinstance(m, AdapterModule))
    h = torch.randn(5, 16, generator=torch.Generator().manual_seed(0), requires_grad=True)
    found, wanted = (
        layer(h, layout, None, cls_only, SegmentAdapters(1, [Segment((module,), layout)]))
        for module in (FrozenAdapter(adapter), adapter)
    )
    assert torch.equal(found, wanted)
    (gradient,) = torch.autograd.grad(weighted(wanted), h)
    weighted(found).backward()
    assert h.grad is not None
    torch.testing.assert_close(h.grad, gradient)
    assert all(p.grad is None for p in adapter.parameters())
