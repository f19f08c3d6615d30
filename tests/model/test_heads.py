"""Heads of the five systems against computations by hand; readings that cannot be."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bough.errors import UserError
from bough.model.heads import (
    FUSED,
    Dense,
    Fusion,
    Head,
    exported,
    feature_size,
    features,
    hidden_size,
    import_sizes,
)
from bough.model.losses import answers
from bough.model.network import fresh
from bough.plan.plan import Cell
from bough.recipe.tasks import Task
from tests import tiny

WIDTH = 6


def head(task: Task, imports: tuple[int, ...] = (), stir: float = 0.5) -> Head:
    made = Head(task, WIDTH, imports)
    fresh(made, Cell("head", "a"), 0)
    tiny.add_noise(made, stir)
    return made


@pytest.fixture
def a() -> Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def b() -> Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(3))


def weights(module: torch.nn.Module, name: str) -> tuple[Tensor, Tensor]:
    return module.get_parameter(f"{name}.weight"), module.get_parameter(f"{name}.bias")


def times(x: Tensor, module: torch.nn.Module, name: str) -> Tensor:
    weight, bias = weights(module, name)
    return x @ weight.T + bias


def test_linear(a: Tensor) -> None:
    module = head(tiny.task())
    outputs, hidden = module([a], [], None)
    assert outputs.shape == (4, 3)
    torch.testing.assert_close(outputs, times(a, module, "output"))
    assert hidden is a


def test_mlp_of_three_layers(a: Tensor) -> None:
    """System C: 3 layers, ReLU between and none on the output."""
    module = head(tiny.task(head="mlp", width=5))
    one = times(a, module, "hidden.0.linear").relu()
    two = times(one, module, "hidden.1.linear").relu()
    outputs, hidden = module([a], [], None)
    torch.testing.assert_close(outputs, times(two, module, "output"))
    torch.testing.assert_close(hidden, two)
    assert (outputs < 0).any()
    assert two.shape == (4, 5)
    assert len(list(module.parameters())) == 6
    assert len(list(head(tiny.task(head="mlp", depth=1)).parameters())) == 2


@pytest.mark.parametrize(
    "names",
    [
        ("concat",),
        ("sum",),
        ("product",),
        ("difference",),
        ("cosine",),
        ("sum", "cosine", "concat"),
    ],
)
def test_pair_features(names: tuple[str, ...], a: Tensor, b: Tensor) -> None:
    task = tiny.task(twin=True, features=names)
    each = {
        "concat": torch.cat([a, b], 1),
        "sum": a + b,
        "product": a * b,
        "difference": (a - b).abs(),
        "cosine": ((a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1)))[:, None],
    }
    wanted = torch.cat([each[name] for name in names], 1)
    torch.testing.assert_close(features(task, [a, b]), wanted)
    assert feature_size(task, WIDTH) == wanted.shape[1]
    module = head(task)
    torch.testing.assert_close(module([a, b], [], None)[0], times(wanted, module, "output"))


def test_joint_pairs_have_one_vector(a: Tensor) -> None:
    module = head(tiny.task(joint=True))
    assert module([a], [], None)[0].shape == (4, 3)


def test_norm_and_projection(a: Tensor, b: Tensor) -> None:
    module = head(tiny.task(twin=True, norm=True, project=True, features=["sum"]))
    assert module.norm is not None
    assert module.norm.eps == 1e-12

    def each(x: Tensor) -> Tensor:
        scaled = (x - x.mean(1, keepdim=True)) / x.var(1, correction=0, keepdim=True).sqrt()
        weight, bias = weights(module, "norm")
        return times(scaled * weight + bias, module, "project")

    wanted = times(each(a) + each(b), module, "output")
    torch.testing.assert_close(module([a, b], [], None)[0], wanted)


def test_norms_start_plain(a: Tensor) -> None:
    module = head(tiny.task(norm=True), stir=0)
    wanted = times(F.layer_norm(a, (WIDTH,), eps=1e-12), module, "output")
    torch.testing.assert_close(module([a], [], None)[0], wanted)


# --- cosines --------------------------------------------------------------------------------------


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return F.cosine_similarity(a, b).unsqueeze(1)


def test_similarity_of_system_a(a: Tensor, b: Tensor) -> None:
    """y = (cos(u1, u2) + 1) * 2.5 of vectors through a matrix of its module."""
    task = tiny.task(twin=True, number=True, head="cosine-linear", project=True)
    module = head(task)
    outputs, _ = module([a, b], [], None)
    wanted = (cosine(times(a, module, "project"), times(b, module, "project")) + 1) * 2.5
    torch.testing.assert_close(answers(task, outputs)[0], wanted[:, 0])
    alike = answers(task, module([a, a], [], None)[0])[0]
    torch.testing.assert_close(alike, torch.full((4,), 5.0))


def test_reachable_ranges(a: Tensor) -> None:
    def reached(form: str) -> list[float]:
        task = tiny.task(twin=True, number=True, head=form)
        module = head(task, stir=0)
        return [answers(task, module([a, x], [], None)[0])[0][0].item() for x in (-a, a)]

    assert reached("cosine-linear") == pytest.approx([0, 5])
    assert reached("cosine-sigmoid") == pytest.approx([1.34, 3.66], abs=0.005)  # system B's
    assert reached("cosine") == pytest.approx([0, 5])


def test_learned_scale_and_bias_reach_anything(a: Tensor) -> None:
    module = head(tiny.task(twin=True, number=True, head="cosine"), stir=0)
    assert module.cosine is not None
    with torch.no_grad():
        module.cosine.scale.fill_(3.0)
        module.cosine.bias.fill_(-1.0)
    torch.testing.assert_close(module([a, a], [], None)[0], torch.full((4, 1), 2.0))
    assert {n for n, _ in module.named_parameters()} == {"cosine.scale", "cosine.bias"}


@pytest.mark.parametrize("form", ["cosine", "cosine-linear", "cosine-sigmoid"])
def test_cosines_as_a_choice_of_two(form: str, a: Tensor, b: Tensor) -> None:
    task = tiny.task(twin=True, labels=("no", "yes"), head=form)
    module = head(task, stir=0)
    outputs, hidden = module([a, b], [], None)
    probability = answers(task, outputs)[1]
    assert probability is not None
    cos = cosine(a, b)
    wanted = {
        "cosine": torch.sigmoid(4 * cos),
        "cosine-linear": (cos + 1) / 2,
        "cosine-sigmoid": torch.sigmoid(cos),
    }[form]
    torch.testing.assert_close(probability[:, 1:], wanted)
    torch.testing.assert_close(hidden, torch.cat([a, b], 1))
    same = module([a, a.clone().requires_grad_()], [], None)[0]
    assert same.isfinite().all()
    same.sum().backward()  # equal vectors: no infinite logit, no NaN


# --- imported outputs -----------------------------------------------------------------------------


def test_imports_are_concatenated(a: Tensor, b: Tensor) -> None:
    """System E: [x1, x2, sent(x1), sent(x2)] through FC, ReLU, FC."""
    task = tiny.task(twin=True, features=["concat"], head="mlp", depth=2, width=7)
    module = head(task, (3, 3))
    one, two = torch.randn(4, 3), torch.randn(4, 3)
    x = torch.cat([a, b, one, two], 1)
    wanted = times(times(x, module, "hidden.0.linear").relu(), module, "output")
    torch.testing.assert_close(module([a, b], [one, two], None)[0], wanted)


def test_imports_are_attended(a: Tensor) -> None:
    module = head(tiny.task(fusion="attention"), (3, 5))
    assert isinstance(module.fusion, Fusion)
    one, two = torch.randn(4, 3), torch.randn(4, 5)
    wanted = []
    for i in range(4):
        ask = times(a[i], module, "fusion.ask")
        keys = [times(x[i], module, f"fusion.keys.{j}") for j, x in enumerate((one, two))]
        values = [times(x[i], module, f"fusion.values.{j}") for j, x in enumerate((one, two))]
        shares = torch.softmax(torch.stack([ask @ key for key in keys]) / FUSED**0.5, 0)
        mixed = shares[0] * values[0] + shares[1] * values[1]
        wanted.append(times(torch.cat([a[i], mixed]), module, "output"))
    torch.testing.assert_close(module([a], [one, two], None)[0], torch.stack(wanted))


def test_a_cosine_adds_what_it_reads(a: Tensor, b: Tensor) -> None:
    module = head(tiny.task(twin=True, number=True, head="cosine-linear"), (3, 1))
    one, two = torch.randn(4, 3), torch.randn(4, 1)
    wanted = (cosine(a, b) + 1) / 2 + times(torch.cat([one, two], 1), module, "output")
    torch.testing.assert_close(module([a, b], [one, two], None)[0], wanted)


def test_what_is_exported(a: Tensor) -> None:
    outputs, hidden = torch.tensor([[2.0, -1.0, 0.5]]), torch.randn(1, 9)

    def got(source: Task, reads_as: str, numbers: Tensor = outputs) -> Tensor:
        return exported(source, tiny.task(reads_as=reads_as), numbers, hidden)

    three, two = tiny.task(), tiny.task(labels=("x", "y"))
    assert got(three, "logits") is outputs
    assert got(three, "hidden") is hidden
    torch.testing.assert_close(got(three, "probabilities"), outputs.softmax(1))
    one = torch.tensor([[0.7]])
    assert got(two, "logits", one) is one
    torch.testing.assert_close(got(two, "probabilities", one), one.sigmoid())
    ordinal = tiny.task(loss="ordinal")
    torch.testing.assert_close(
        got(ordinal, "probabilities", outputs[:, :2]), outputs[:, :2].sigmoid()
    )
    # Outputs trained by a distance are shares already.
    for source in (tiny.task(labels=("x", "y"), loss="mse"), tiny.task(number=True)):
        for value, share in ((0.7, 0.7), (1.2, 1.0), (-0.1, 0.0)):
            number = torch.tensor([[value]])
            assert got(source, "probabilities", number).item() == pytest.approx(share)
            assert got(source, "logits", number) is number


@pytest.mark.parametrize(
    ("settings", "imports"),
    [
        ({}, ()),
        ({}, (3, 2)),
        ({"fusion": "attention"}, (3, 2)),
        ({"head": "mlp", "width": 5}, ()),
        ({"head": "mlp", "width": 5}, (4,)),
        ({"head": "mlp", "depth": 1}, (4,)),
        ({"twin": True}, (3,)),
        ({"twin": True, "number": True, "head": "cosine"}, ()),
    ],
)
def test_hidden_sizes(settings: dict[str, Any], imports: tuple[int, ...], a: Tensor) -> None:
    task = tiny.task(**settings)
    vectors = [a, a] if task.twin else [a]
    hidden = head(task, imports)(vectors, [torch.randn(4, n) for n in imports], None)[1]
    assert hidden.shape[1] == hidden_size(task, WIDTH, imports)


def test_import_sizes() -> None:
    tasks = {
        "one": tiny.task(),
        "pair": tiny.task(twin=True, number=True),
        "other": tiny.task(twin=True, reads_as="hidden"),
        "joint": tiny.task(joint=True),
    }
    sizes: dict[str, list[int]] = {"one": []}
    sizes["pair"] = import_sizes("pair", ["one"], tasks, WIDTH, sizes)
    assert sizes["pair"] == [3, 3]  # on each of the two texts
    features = 4 * WIDTH + 1 + 3 + 3
    wanted = [WIDTH, WIDTH, features]
    assert import_sizes("other", ["one", "pair"], tasks, WIDTH, sizes) == wanted
    assert import_sizes("joint", ["one"], tasks, WIDTH, sizes) == [3]
    assert import_sizes("one", [], tasks, WIDTH, sizes) == []


@pytest.mark.parametrize(
    ("reader", "source", "message"),
    [
        ({}, {"joint": True}, "judges one text and cannot read 'b'.*feed a>b instead"),
        ({}, {"twin": True}, "judges one text and cannot read 'b'"),
        ({"joint": True}, {"twin": True}, "pair: joint.*pair: twin.*same `pair`"),
        ({"twin": True}, {"joint": True}, "pair: twin.*pair: joint.*same `pair`"),
        (
            {"twin": True, "number": True, "head": "cosine", "fusion": "attention"},
            {},
            "'attention'",
        ),
    ],
)
def test_readings_that_cannot_be(
    reader: dict[str, Any], source: dict[str, Any], message: str
) -> None:
    tasks = {"a": tiny.task(**reader), "b": tiny.task(**source)}
    with pytest.raises(UserError, match=message):
        import_sizes("a", ["b"], tasks, WIDTH, {"b": []})


# --- dropout and start ----------------------------------------------------------------------------


def test_dropout_comes_before_and_inside_and_never_after(a: Tensor) -> None:
    dropout = partial(tiny.dropout, rate=0.0)  # the trunk's rate is not the head's
    module = head(tiny.task(head="mlp", width=50, dropout=0.5))
    plain, hidden = module([a], [], None)
    dropped, thinned = module([a], [], dropout())
    assert not torch.allclose(plain, dropped)
    assert (thinned == 0).float().mean() > (hidden == 0).float().mean() + 0.1
    torch.testing.assert_close(dropped, times(thinned, module, "output"))  # logits are not dropped
    assert torch.equal(module([a], [], dropout())[0], dropped)
    never = head(tiny.task(head="mlp", width=50, dropout=0.0))
    assert torch.equal(never([a], [], dropout())[0], never([a], [], None)[0])
    reader = head(tiny.task(dropout=0.9), (3,), stir=0)
    seen = reader([a], [torch.ones(4, 3)], dropout())[1]
    assert torch.equal(seen[:, WIDTH:], torch.ones(4, 3))  # nor what is imported


def test_fresh_weights_come_from_the_seed_and_the_name() -> None:
    def start(seed: int, name: str) -> Tensor:
        made = Head(tiny.task(head="mlp", width=100), 100)
        fresh(made, Cell("head", name), seed)
        return torch.cat([p.detach().flatten() for p in made.parameters()])

    assert torch.equal(start(0, "a"), start(0, "a"))
    assert not torch.equal(start(0, "a"), start(1, "a"))
    assert not torch.equal(start(0, "a"), start(0, "b"))
    dense = Dense(200, 300)
    fresh(dense, Cell("late 1", "all"), 0)
    assert dense.linear.weight.std().item() == pytest.approx((2 / 200) ** 0.5, rel=0.02)
    assert not dense.linear.bias.any()
    x = torch.randn(100, 200)
    assert dense(x).square().mean().item() == pytest.approx(x.square().mean().item(), rel=0.1)
