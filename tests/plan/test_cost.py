"""What plans cost: the published counts, and agreement with what is built."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings

from bough.plan.cost import cell_parameters, cost
from bough.plan.encoder_shape import Shape
from bough.plan.plan import Plan
from tests.strategies import plans

TASKS = ("sst", "para", "sts")
BERT = Shape(
    family="bert",
    width=768,
    layers=12,
    heads=12,
    inner=3072,
    vocabulary=30522,
    positions=512,
    types=2,
    embedding=768,
    relative=0,
    activation="gelu",
    eps=1e-12,
)
MODERN: dict[str, object] = {"family": "modernbert", "types": 0, "window": 4, "local": (1,)}
DEBERTA: dict[str, object] = {"family": "deberta-v2", "types": 0, "relative": 16}
EMBEDDINGS, LAYER, POOLER = 23_837_184, 7_087_872, 590_592


def tiny(layers: int, **other: object) -> Shape:
    sizes = {"width": 8, "heads": 4, "inner": 16, "vocabulary": 30, "positions": 10, "embedding": 8}
    settings = {"family": "bert", "types": 2, "relative": 0, "activation": "gelu", "eps": 1e-12}
    return Shape(layers=layers, **{**sizes, **settings, **other})  # type: ignore[arg-type]


def bert(text: str) -> Plan:
    return Plan.parse(text, TASKS, 12)


@pytest.mark.parametrize(
    ("text", "trunk"),
    [
        ("full", 109_482_240),
        ("separate", 3 * 109_482_240),
        ("split@6", 195_717_888),
        ("split@0", EMBEDDINGS + 3 * (12 * LAYER + POOLER)),
        ("split@6/para+sts", EMBEDDINGS + 18 * LAYER + 2 * POOLER),
        ("late:ISS", 109_482_240 + 5 * 768 * 769),
        ("pal:204", 109_482_240 + 3 * 1_811_520),
        ("pal:204/all", 109_482_240 + 1_811_520),
        ("lowrank:100", 109_482_240 + 3 * 12 * 2 * 100 * 768),
        ("lora:8", 109_482_240 + 3 * 12 * 2 * 8 * 2 * 768),
        ("lora:8:f@1/sst", 109_482_240 + 8 * (3072 + 768)),
        ("bottleneck:64@1-2/para+sts", 109_482_240 + 2 * (2 * 64 * 768 + 64 + 768)),
    ],
)
def test_parameters_of_bert_base(text: str, trunk: int) -> None:
    result = cost(bert(text), BERT, {"sst": 5})
    assert result.trunk_parameters == trunk
    assert result.parameters == trunk + 7 * 769
    assert result.bytes_to_serve == 4 * result.parameters


def test_published_numbers() -> None:
    millions = [cost(bert(t), BERT).trunk_parameters / 1e6 for t in ("full", "separate", "split@6")]
    assert [f"{m:.1f}" for m in millions] == ["109.5", "328.4", "195.7"]
    assert cost(bert("pal:204"), BERT).adapter_parameters == dict.fromkeys(TASKS, 1_811_520)


def test_per_task() -> None:
    result = cost(bert("split@6, pal:64@1-6/sst, feed:sst>para"), BERT)
    pal = 2 * 64 * 768 + 6 * 3 * 64 * 64
    assert result.adapter_parameters == {"sst": pal, "para": 0, "sts": 0}
    assert result.task_parameters["sst"] == 109_482_240 + pal + 769
    assert result.task_parameters["sts"] == 109_482_240 + 769
    assert result.task_parameters["para"] == 109_482_240 + pal + 6 * LAYER + POOLER + 769 + 770


def test_learning() -> None:
    assert cost(bert("frozen"), BERT).learning_parameters == 3 * 769
    result = cost(bert("frozen@11"), BERT)
    assert result.learning_parameters == LAYER + POOLER + 3 * 769
    result = cost(bert("full"), BERT)
    assert result.learning_parameters == result.parameters


def test_flops_by_hand() -> None:
    """Two layers of width 8 on 5 tokens: a whole one, then one row of the last."""
    n, d, inner = 5, 8, 16
    plan = Plan.parse("full, late:I", ("a", "b"), 2, pooled=["a"])
    whole = n * 3 * d * d + 2 * n * n * d + n * d * d + 2 * n * d * inner
    first = d * d + n * 2 * d * d + 2 * n * d + d * d + 2 * d * inner
    result = cost(plan, tiny(2), {"a": 3}, length=n)
    a, b = whole + first + d * d + d * d + 3 * d, whole + first + d * d + d
    assert result.flops_per_example == {"a": 2 * a, "b": 2 * b}
    assert result.flops_together == 2 * (a + b - whole - first)
    mean = cost(plan, tiny(2), {"a": 3}, length=n, means=["b"])
    assert mean.flops_per_example == {"a": 2 * a, "b": 2 * (b + whole - first)}
    assert mean.flops_together == 2 * (a + b - whole - first + whole - first)


def test_flops_of_adapters_by_hand() -> None:
    n, d, inner, s = 5, 8, 16, 4

    def added(text: str) -> list[int]:
        parsed = [Plan.parse(f"{text}@{at}", ("a",), 2) for at in (1, 2)]
        costs = [cost(plan, tiny(2), length=n).flops_together for plan in parsed]
        plain = cost(Plan.parse("full", ("a",), 2), tiny(2), length=n).flops_together
        return [(c - plain) // 2 for c in costs]

    assert added("pal:4") == [
        n * 2 * s * d + n * 3 * s * s + 2 * n * n * s,
        n * s * d + s * d + s * s + n * 2 * s * s + 2 * n * s,
    ]
    assert added("lowrank:4") == added("bottleneck:4") == [n * 2 * s * d, 2 * s * d]
    assert added("lora:4:q") == [n * 2 * s * d, 2 * s * d]
    assert added("lora:4:v") == [n * 2 * s * d, n * 2 * s * d]
    assert added("lora:4:i") == added("lora:4:f") == [n * s * (d + inner), s * (d + inner)]


def test_electra_projects_its_embeddings() -> None:
    plan = Plan.parse("full", ("a",), 1)
    small = tiny(1, family="electra", embedding=4)
    extra = (
        cost(plan, small, length=5).flops_together - cost(plan, tiny(1), length=5).flops_together
    )
    assert extra == 2 * 5 * 4 * 8


def test_modernbert_sees_a_window_and_has_a_gate() -> None:
    plan = Plan.parse("full", ("a",), 2, pooled=())
    n, d, inner, reach = 7, 8, 16, 2
    shape = tiny(2, **MODERN)
    found = cost(plan, shape, length=n, means=["a"]).flops_together
    pairs = [(i, j) for i in range(n) for j in range(n)]
    seen = len(pairs) + sum(abs(i - j) <= reach for i, j in pairs)
    assert found == 2 * (2 * n * (4 * d * d + 3 * d * inner) + 2 * d * seen + d)
    first = cost(plan, tiny(2, **MODERN | {"local": (1, 2)}), length=n).flops_together
    other = cost(plan, shape, length=n).flops_together
    assert other - first == 2 * 2 * d * (n - (reach + 1))
    lora = cost(Plan.parse("lora:4:i@1", ("a",), 2), shape, length=n)
    assert lora.adapter_parameters == {"a": 4 * (d + 2 * inner)}


def test_deberta_has_a_query_and_a_key_for_every_distance() -> None:
    plan = Plan.parse("full", ("a",), 1, pooled=())
    n, d = 3, 8
    shape, plain = tiny(1, **DEBERTA), tiny(1)
    for means, pairs in (([], n), (["a"], 2 * n * n)):
        found, without = (cost(plan, s, length=n, means=means) for s in (shape, plain))
        extra = 2 * (2 * n + 1) * d * d + 2 * d * pairs
        assert found.flops_together - without.flops_together == 2 * extra


def test_steps() -> None:
    assert cost(bert("full"), BERT).steps == (14, 14, 14)
    assert cost(bert("split@6"), BERT).steps == (14, 21, 28)
    assert cost(bert("separate"), BERT).steps == (14, 28, 42)


def test_the_wrong_encoder() -> None:
    with pytest.raises(ValueError, match="the plan is for 12 layers, the encoder has 2"):
        cost(bert("full"), tiny(2))


def test_json_and_text() -> None:
    result = cost(bert("pal:204"), BERT)
    assert json.loads(json.dumps(result.as_dict())) == result.as_dict()
    assert result.as_dict()["trunk_parameters"] == 114_916_800
    text = str(result)
    assert "114.92 M (114,919,107)" in text
    assert "1,811,520 in adapters" in text
    assert "  para  111.29 M parameters alone" in text


@settings(max_examples=60, deadline=None)
@given(plans(max_layers=4))
def test_sums(plan: Plan) -> None:
    """Every cell is counted once, and a task alone needs what its own plan needs."""
    shape = tiny(plan.layers)
    result = cost(plan, shape)
    sizes = cell_parameters(plan, shape)
    assert result.parameters == sum(sizes.values())
    assert set(sizes) == set(plan.users())
    assert result.flops_together <= sum(result.flops_per_example.values())
    assert result.steps[-1] == plan.distinct_steps(plan.tasks)
    for task in plan.tasks:
        alone = cost(plan.only(task), shape)
        assert result.task_parameters[task] == alone.parameters
        assert result.flops_per_example[task] == alone.flops_together


@settings(max_examples=25, deadline=None)
@given(plans(max_layers=3))
def test_networks_are_built_as_counted(plan: Plan) -> None:
    from bough.model.network import Network
    from bough.recipe.tasks import Task

    task = Task(kind="regress", text="text", range=(0, 1), pooling="pooler")
    for other in (
        {},
        {"family": "mpnet", "types": 0, "relative": 7},
        {"embedding": 4},
        MODERN,
        DEBERTA,
    ):
        shape = tiny(plan.layers, **other)
        network = Network(plan, dict.fromkeys(plan.tasks, task), shape)
        for cell, size in cell_parameters(plan, shape).items():
            assert sum(p.numel() for p in network.cells[cell.key].parameters()) == size


def test_without_torch() -> None:
    code = "import sys, bough.plan.cost, bough.plan.diagram; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
