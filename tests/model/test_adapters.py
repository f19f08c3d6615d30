"""Adapters start as the identity and compute what their papers say."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn
from torch.nn import functional as F

from bough.model import adapters
from bough.model.adapters import PAL, AdapterModule, LoRA, Narrow, Segment, SegmentAdapters
from bough.model.attention import Layout
from bough.model.network import Network, fresh
from bough.model.transformer import Layer
from bough.plan.cost import cell_parameters, cost
from bough.plan.plan import Adapter, Cell, Plan
from bough.plan.types import KINDS, Kind
from tests import tiny
from tests.strategies import plans

LENGTHS = (3, 3, 5)
SHAPE = tiny.shape()
LAYOUT = Layout(LENGTHS)


def adapter(kind: Kind, size: int = 8, matrices: str = "qv") -> Adapter:
    return Adapter(
        kind=kind,
        size=size,
        first=1,
        last=2,
        names=("a",),
        heads=2 if kind == "pal" else 0,
        matrices=matrices if kind == "lora" else "",
    )


def build(made: Adapter, stir: float = 0.0) -> AdapterModule:
    with torch.device("meta"):
        module = adapters.build(made, SHAPE)
    fresh(module, Cell(made.place, "a"), 0)
    tiny.add_noise(module, stir)
    return module


def on_all(n: int, *modules: AdapterModule) -> SegmentAdapters:
    return SegmentAdapters(n, [Segment(modules, LAYOUT)])


@pytest.fixture
def layer() -> Layer:
    module = tiny.trunk(tiny.encoder())["layer 1"]
    assert isinstance(module, Layer)
    return module


@pytest.fixture
def h() -> Tensor:
    return torch.randn(sum(LENGTHS), SHAPE.width, generator=torch.Generator().manual_seed(2))


EVERY = [adapter(kind) for kind in KINDS] + [adapter("lora", 3, "qkvoif"), adapter("lora", 3, "k")]
names = pytest.mark.parametrize("made", EVERY, ids=lambda made: made.place)


@names
def test_starts_as_the_identity_and_can_leave_it(made: Adapter, layer: Layer, h: Tensor) -> None:
    module = build(made)
    plain = layer(h, LAYOUT, None)
    for n in (1, 2):
        for cls_only in (False, True):
            wanted = layer(h, LAYOUT, None, cls_only)
            assert torch.equal(layer(h, LAYOUT, None, cls_only, on_all(n, module)), wanted)
    weight = torch.randn(plain.shape)
    (layer(h, LAYOUT, None, False, on_all(1, module)) * weight).sum().backward()
    assert any(p.grad is not None and p.grad.abs().max() > 1e-4 for p in module.parameters())


@names
def test_first_rows_only_are_those_of_all_rows(made: Adapter, layer: Layer, h: Tensor) -> None:
    module = build(made, 0.3)
    for segments in (
        [Segment((module,), LAYOUT)],
        [Segment((), Layout((3,))), Segment((module,), Layout((3, 5)))],
        [
            Segment((module, build(adapter("bottleneck"), 0.3)), Layout((3, 3))),
            Segment((), Layout((5,))),
        ],
    ):
        both = SegmentAdapters(1, segments)
        whole = layer(h, LAYOUT, None, False, both)
        first = layer(h, LAYOUT, None, True, both)
        torch.testing.assert_close(first, whole[LAYOUT.on(h.device).starts])
        assert not torch.allclose(whole, layer(h, LAYOUT, None), atol=1e-3)


@names
def test_a_segment_leaves_its_neighbours_alone(made: Adapter, layer: Layer, h: Tensor) -> None:
    module = build(made, 0.3)
    other = build(made, 0.1)
    segments = [
        Segment((), Layout((3,))),
        Segment((module,), Layout((3,))),
        Segment((other,), Layout((5,))),
    ]
    mixed = layer(h, LAYOUT, None, False, SegmentAdapters(1, segments)).split(LENGTHS)
    for i, segment in enumerate(segments):
        alone = layer(h, LAYOUT, None, False, on_all(1, *segment.adapters)).split(LENGTHS)
        torch.testing.assert_close(mixed[i], alone[i])


@names
def test_layers_of_its_range_have_their_own_weights(made: Adapter, layer: Layer, h: Tensor) -> None:
    module = build(made, 0.3)
    one = layer(h, LAYOUT, None, False, on_all(1, module))
    two = layer(h, LAYOUT, None, False, on_all(2, module))
    assert not torch.allclose(one, two, atol=1e-3)


# --- against the papers ---------------------------------------------------------------------------


def attention(x: Tensor, heads: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Multi-head attention of one text, without output matrix: x [n, s]."""
    n = len(x)
    q, k, v = ((x @ w.T).view(n, heads, -1).transpose(0, 1) for w in (query, key, value))
    shares = torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, -1)
    return (shares @ v).transpose(0, 1).reshape(n, -1)


def halves(layer: Layer, h: Tensor) -> tuple[Tensor, Tensor]:
    """m = LN1(h + MH(h)) and FFN(m) of one text."""
    qkv, bias = layer.qkv.weight.chunk(3), layer.qkv.bias.chunk(3)
    n = len(h)
    q, k, v = (
        (h @ w.T + b).view(n, layer.heads, -1).transpose(0, 1)
        for w, b in zip(qkv, bias, strict=True)
    )
    shares = torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, -1)
    mixed = (shares @ v).transpose(0, 1).reshape(n, -1)
    m = layer.norm1(h + layer.out(mixed))
    return m, layer.down(F.gelu(layer.up(m)))


def test_pal_is_what_its_paper_says(layer: Layer, h: Tensor) -> None:
    """BL(h) = LN2(m + FFN(m) + TS(h)), TS(h) = gelu(V_D g(V_E h)); V_E, V_D for all layers."""
    module = build(adapter("pal"), 0.4)
    assert isinstance(module, PAL)
    v_e, v_d = module.encode.weight, module.decode.weight
    assert v_e.shape == (8, 16)
    assert v_d.shape == (16, 8)
    for n in (1, 2):
        q, k, v = module.get_parameter(f"qkv.{n}.weight").chunk(3)
        wanted = []
        for text in h.split(LENGTHS):
            m, forward = halves(layer, text)
            g = attention(text @ v_e.T, 2, q, k, v)
            wanted.append(layer.norm2(m + forward + F.gelu(g @ v_d.T)))
        found = layer(h, LAYOUT, None, False, on_all(n, module))
        torch.testing.assert_close(found, torch.cat(wanted), atol=1e-5, rtol=1e-4)


def test_pal_weights_of_bert_base() -> None:
    tasks = {name: tiny.task() for name in ("sst", "para", "sts")}
    bert = tiny.shape(
        width=768, layers=12, heads=12, inner=3072, vocabulary=30522, positions=512, embedding=768
    )
    plan = Plan.parse("pal:204", tuple(tasks), 12, heads=12)
    model = Network(plan, tasks, bert)
    count = {
        cell.name: sum(p.numel() for p in model.cells[cell.key].parameters())
        for cell in plan.users()
        if cell.place.startswith("pal")
    }
    assert count == dict.fromkeys(tasks, 1_811_520)


def test_low_rank_has_no_attention(layer: Layer, h: Tensor) -> None:
    module = build(adapter("lowrank"), 0.4)
    pair = module.get_submodule("parts.2")
    assert isinstance(pair, Narrow)
    wanted = []
    for text in h.split(LENGTHS):
        m, forward = halves(layer, text)
        wanted.append(layer.norm2(m + forward + text @ pair.down.weight.T @ pair.up.weight.T))
    found = layer(h, LAYOUT, None, False, on_all(2, module))
    torch.testing.assert_close(found, torch.cat(wanted), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("matrices", ["q", "k", "v", "o", "i", "f", "qv", "kvo", "qkvoif"])
def test_lora_is_the_same_as_merging_it(matrices: str, layer: Layer, h: Tensor) -> None:
    module = build(adapter("lora", 3, matrices), 0.3)
    assert isinstance(module, LoRA)
    merged = Layer(SHAPE)
    merged.load_state_dict(layer.state_dict())
    query, key, value = merged.qkv.weight.data.chunk(3)  # views
    targets = {"q": query, "k": key, "v": value, "o": merged.out.weight.data}
    targets |= {"i": merged.up.weight.data, "f": merged.down.weight.data}
    for letter in matrices:
        pair = module.get_submodule(f"parts.2{letter}")
        assert isinstance(pair, Narrow)
        targets[letter] += pair.up.weight.data @ pair.down.weight.data
    found = layer(h, LAYOUT, None, False, on_all(2, module))
    torch.testing.assert_close(found, merged(h, LAYOUT, None), atol=1e-5, rtol=1e-4)


def test_bottleneck_follows_the_layer(layer: Layer, h: Tensor) -> None:
    module = build(adapter("bottleneck"), 0.4)
    pair = module.get_submodule("parts.1")
    assert isinstance(pair, Narrow)
    y = layer(h, LAYOUT, None)
    wanted = y + pair.up(F.gelu(pair.down(y)))
    torch.testing.assert_close(layer(h, LAYOUT, None, False, on_all(1, module)), wanted)
    assert pair.down.bias is not None


def test_several_adapters_add_up(layer: Layer, h: Tensor) -> None:
    pal, low = build(adapter("pal"), 0.4), build(adapter("lowrank"), 0.4)

    def added(*modules: AdapterModule) -> Tensor:
        out = on_all(1, *modules).parallel(h, None, False)
        assert out is not None
        return out

    torch.testing.assert_close(added(pal, low), added(pal) + added(low))


def test_pal_attention_takes_dropout(layer: Layer, h: Tensor) -> None:
    module = build(adapter("pal"), 0.4)

    def run(seed: int) -> Tensor:
        out = on_all(1, module).parallel(h, tiny.dropout(seed), False)
        assert out is not None
        return out

    assert torch.equal(run(0), run(0))
    assert not torch.equal(run(0), run(1))


# --- counting -------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(plans(max_layers=3))
def test_the_network_has_the_parameters_that_cost_counts(plan: Plan) -> None:
    outputs = {name: 1 + i for i, name in enumerate(plan.tasks)}
    kinds = (
        tiny.task(number=True),
        tiny.task(labels=("x", "y"), loss="ce"),
        tiny.task(),
        tiny.task(labels=tuple("wxyz")),
    )
    tasks = {
        name: kinds[i].model_copy(update={"pooling": "pooler" if name in plan.pooled else "cls"})
        for i, name in enumerate(plan.tasks)
    }
    shape = tiny.shape(layers=plan.layers)
    model = Network(plan, tasks, shape)
    counted = cell_parameters(plan, shape, outputs)
    for cell in plan.users():
        module: nn.Module = model.cells[cell.key]
        assert sum(p.numel() for p in module.parameters()) == counted[cell], cell
    total = cost(plan, shape, outputs)
    assert sum(p.numel() for p in model.parameters()) == total.parameters
    learning = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert learning == total.learning_parameters
    for task in plan.tasks:
        alone = Network(plan.only(task), {n: tasks[n] for n in plan.only(task).tasks}, shape)
        assert sum(p.numel() for p in alone.parameters()) == total.task_parameters[task]
