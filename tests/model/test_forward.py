"""The one pass: whatever the plan and the mix of tasks, each answers as on its own path alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from bough.data.packing import Pack
from bough.model import attention, copied_rows, forward
from bough.model.dropout import DropoutGenerator
from bough.model.forward import PackedForward
from bough.model.network import Network
from bough.model.pretrained import Encoder
from bough.model.transformer import Embeddings, Layer
from bough.native import row_kernels
from bough.plan.plan import Plan
from bough.recipe.tasks import Task
from tests import tiny
from tests.plain_pass import (
    PLANS,
    TASKS,
    all_sequences,
    cases,
    check_against_hand,
    gradients,
    outputs_of,
    weighted,
)
from tests.strategies import plans

# --- the packed pass is the plain one -------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.integers(0, 99))
def test_any_plan_equals_the_plain_pass(case: tuple[Plan, dict[str, Task]], seed: int) -> None:
    plan, tasks = case
    encoder = tiny.encoder("mpnet" if seed % 4 == 0 else "bert", layers=plan.layers, width=8,
                           embedding=8, inner=12)  # fmt: skip
    model = tiny.network(plan, tasks, encoder, seed, stir=0.2)
    check_against_hand(model, tiny.pack([3, 5, 3, 4], seed, pairs=True))


@pytest.mark.parametrize("family", ["bert", "mpnet"])
@pytest.mark.parametrize("text", PLANS)
def test_the_padded_pass_of_cuda_is_the_same(
    text: str, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs and gradients."""
    tasks = {n: t.model_copy(update={"pooling": p}) for (n, t), p in zip(
        TASKS.items(), ("pooler", "mean", "cls"), strict=True)}  # fmt: skip
    model = tiny.network(text, tasks, tiny.encoder(family), stir=0.1)
    pack = tiny.pack([3, 9, 4, 4])
    wanted = model(pack, all_sequences(model, 4))
    right = gradients(model, torch.stack([weighted(out) for out in wanted.values()]).sum())

    def padded(*given: Any) -> Tensor:
        return attention.attend_padded(*given, *[None] * (5 - len(given)))

    monkeypatch.setattr(attention, "attend", padded)
    found = model(pack, all_sequences(model, 4))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    got = gradients(model, torch.stack([weighted(out) for out in found.values()]).sum())
    torch.testing.assert_close(got, right, atol=1e-4, rtol=1e-3)


def test_layouts_are_made_once_for_all_layers() -> None:
    """So that what attention needs on a device is moved there once, not in every layer."""
    model = tiny.network("full", TASKS, tiny.encoder("mpnet", layers=5))
    layouts = []
    for n in range(1, 6):
        model.cells[f"layer{n}/all"].register_forward_hook(
            lambda module, inputs, output: layouts.append(inputs[1])
        )
    model(tiny.pack([3, 9, 4, 4]), all_sequences(model, 4))
    assert len(layouts) == 5
    assert all(layout is layouts[0] for layout in layouts)


def test_rows_are_copied_where_tasks_part_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Groups that stay as they are go from row to row, and to the readings, without a copy."""
    made: list[int] = []

    def copied(rows: Tensor, index: Tensor) -> Tensor:
        made.append(len(index))
        return copied_rows.copied(rows, index)

    monkeypatch.setattr(forward, "copied", copied)
    model = tiny.network("split@3", TASKS, tiny.encoder(layers=6))
    pack = tiny.pack([3, 9, 4])
    model(pack, {task: torch.tensor([[i]]) for i, task in enumerate(TASKS)})
    read = len(TASKS)  # a row of each text
    assert [n for n in made if n > read] == [16]  # where they are split, they lie so
    made.clear()
    model(tiny.pack([3, 4, 9]), {task: torch.tensor([[i]]) for i, task in enumerate(TASKS)})
    assert not [n for n in made if n > read]
    model(pack, {task: torch.tensor([[0], [1], [2]]) for task in TASKS})
    assert [n for n in made if n > 3 * read] == [16, 48]


# --- mixtures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*PLANS, "late:ISS/b+c", "split@1, late:SI, pal:4"])
def test_a_text_asked_by_several_equals_asking_apart(text: str, tiny_encoder: Encoder) -> None:
    model = tiny.network(text, TASKS, tiny_encoder, stir=0.1)
    texts = tiny.pack([6, 3, 4])
    together = outputs_of(model, texts)
    three = Pack(texts.tokens.repeat(3, 1), texts.lengths * 3)
    with torch.no_grad():
        apart = model(
            three, {name: torch.arange(3).view(3, 1) + 3 * i for i, name in enumerate(TASKS)}
        )
        some = model(texts, {"c": torch.tensor([[2], [0]]), "a": torch.tensor([[1], [1], [2]])})
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(some["c"], together["c"][[2, 0]], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(some["a"], together["a"][[1, 1, 2]], atol=1e-5, rtol=1e-4)
    assert set(some) == {"a", "c"}


@pytest.mark.parametrize("text", PLANS)
def test_a_mixed_batch_equals_batches_of_each_task(text: str, tiny_encoder: Encoder) -> None:
    """Outputs, and the gradient of the sum of losses."""
    model = tiny.network(text, TASKS, tiny_encoder, stir=0.1)
    pack = tiny.pack([3, 9, 4, 4, 3, 6], pairs=True)
    sequences = {
        "c": torch.tensor([[5], [0]]),
        "a": torch.tensor([[1], [2], [4]]),
        "b": torch.tensor([[3]]),
    }
    mixed = model(pack, sequences)
    total = gradients(model, torch.stack([weighted(out) for out in mixed.values()]).sum())
    added: dict[str, Tensor] = {}
    for task, numbers in sequences.items():
        parts = pack.tokens.split(pack.lengths)
        chosen = numbers.flatten().tolist()
        alone = Pack(torch.cat([parts[i] for i in chosen]), tuple(pack.lengths[i] for i in chosen))
        out = model(alone, {task: torch.arange(len(chosen)).view(-1, 1)})[task]
        torch.testing.assert_close(mixed[task], out, atol=1e-5, rtol=1e-4)
        for name, gradient in gradients(model, weighted(out)).items():
            if gradient is not None:
                added[name] = added[name] + gradient if name in added else gradient
    for name, gradient in total.items():
        assert gradient is not None
        torch.testing.assert_close(gradient, added[name], atol=1e-4, rtol=1e-3)


def test_pairs_and_single_texts_together(tiny_encoder: Encoder) -> None:
    tasks = {
        "one": tiny.task(pooling="mean"),
        "joint": tiny.task(joint=True),
        "twin": tiny.task(twin=True, number=True, pooling="cls"),
    }
    for text in ("full", "split@1", "separate", "split@1/joint+one, pal:4"):
        model = tiny.network(text, tasks, tiny_encoder, stir=0.1)
        check_against_hand(model, tiny.pack([5, 3, 6, 4], pairs=True))


# --- how much is computed -------------------------------------------------------------------------


def steps(model: Network, asked: Sequence[str], length: int = 5) -> tuple[int, int]:
    """Steps computed when these tasks ask about one text: all, and layers alone."""
    counts = {"all": 0, "layers": 0}

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        streams = len(inputs[0]) // (length if isinstance(module, Layer | Embeddings) else 1)
        counts["all"] += streams
        counts["layers"] += streams if isinstance(module, Layer) else 0

    hooks = [
        model.cells[cell.key].register_forward_hook(count)
        for cell in model.plan.users()
        if cell.place.split()[0] in ("embeddings", "layer", "pooler", "late")
    ]
    with torch.no_grad():
        model(tiny.pack([length]), dict.fromkeys(asked, torch.tensor([[0]])))
    for hook in hooks:
        hook.remove()
    return counts["all"], counts["layers"]


@pytest.mark.parametrize(
    ("text", "layers"), [("full", 6), ("split@3", 3 + 3 * 3), ("separate", 18), ("split@6", 6)]
)
def test_layer_calls_for_three_tasks_on_one_text(text: str, layers: int) -> None:
    model = tiny.network(text, TASKS, tiny.encoder(layers=6))
    every, found = steps(model, tuple(TASKS))
    assert found == layers
    assert every == model.plan.distinct_steps(tuple(TASKS))
    calls = []
    for cell in model.plan.users():
        if cell.place.startswith("layer"):
            model.cells[cell.key].register_forward_hook(lambda *_: calls.append(1))
    pack = tiny.pack([3, 9, 4, 4])
    with torch.no_grad():
        model(pack, all_sequences(model, 4))
    assert len(calls) == layers  # and once for all texts together


@settings(max_examples=60, deadline=None)
@given(plans(max_tasks=3, max_layers=3, heads=4), st.data())
def test_steps_of_any_plan(plan: Plan, data: st.DataObject) -> None:
    tasks = {
        name: TASKS[name].model_copy(update={"pooling": "pooler" if name in plan.pooled else "cls"})
        for name in plan.tasks
    }
    model = tiny.network(plan, tasks, tiny.encoder(layers=plan.layers, width=8, embedding=8))
    asked = data.draw(st.lists(st.sampled_from(plan.tasks), min_size=1, unique=True))
    assert steps(model, asked)[0] == plan.distinct_steps(asked)


# --- dropout and precision ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fixed"),
    [("full", 0), ("frozen", 5), ("frozen@1", 2), ("frozen@0", 1), ("frozen, pal:4@2", 2)],
)
def test_fixed_rows_take_no_dropout(text: str, fixed: int, tiny_encoder: Encoder) -> None:
    """embeddings, layer 1, layer 2, read, pooler."""
    tasks = {name: task.model_copy(update={"dropout": 0.0}) for name, task in TASKS.items()}
    model = tiny.network(text, tasks, tiny_encoder)
    assert model.routing.frozen_rows == fixed
    pack, dropout = tiny.pack([5, 4]), tiny.dropout(rate=0.5)

    def states(chance: DropoutGenerator | None) -> list[Tensor]:
        forward = PackedForward(model.routing, model.cells, pack, [("a",)] * 2, chance)
        return [group.rows for group in forward.run(fixed)]

    assert all(torch.equal(a, b) for a, b in zip(states(None), states(dropout), strict=True))
    asked = {"a": all_sequences(model, 2)["a"]}
    assert torch.equal(model(pack, asked, dropout)["a"], model(pack, asked)["a"]) == (fixed == 5)


def test_dropout_is_reproducible(tiny_encoder: Encoder) -> None:
    model = tiny.network("split@1, pal:4, feed~:a>b", TASKS, tiny_encoder, stir=0.1)

    def run(seed: int) -> dict[str, Tensor]:
        dropout = tiny.dropout(seed, 0.2)
        out: dict[str, Tensor] = model(tiny.pack([3, 5]), all_sequences(model, 2), dropout)
        return out

    one, same, other = run(0), run(0), run(1)
    for task in TASKS:
        assert torch.equal(one[task], same[task])
        assert not torch.equal(one[task], other[task])


@pytest.mark.parametrize("text", ["full", "split@1", "split@1, feed:a>b", "feed~:a>b"])
def test_a_pass_is_the_same_without_gradients(text: str, tiny_encoder: Encoder) -> None:
    """With the same dropout: FAMO looks at a step's losses again."""
    model = tiny.network(text, TASKS, tiny_encoder, stir=0.1)

    def run() -> dict[str, Tensor]:
        dropout = tiny.dropout(0, 0.2)
        out: dict[str, Tensor] = model(tiny.pack([3, 5]), all_sequences(model, 2), dropout)
        return out

    learning = run()
    with torch.no_grad():
        again = run()
    assert all(torch.allclose(learning[task], again[task], atol=1e-6) for task in TASKS)


def test_bfloat16(tiny_encoder: Encoder) -> None:
    tasks = {n: t.model_copy(update={"pooling": p}) for (n, t), p in zip(
        TASKS.items(), ("pooler", "mean", "cls"), strict=True)}  # fmt: skip
    model = tiny.network(
        "split@1, pal:4, lowrank:2, lora:2, bottleneck:3, feed~:a>b, feed:a>c, late:S",
        tasks, tiny_encoder, stir=0.1,
    )  # fmt: skip
    pack, dropout = tiny.pack([3, 5, 5]), tiny.dropout(0, 0.1)
    wanted = model(pack, all_sequences(model, 3))
    with torch.autocast("cpu", torch.bfloat16):
        found = model(pack, all_sequences(model, 3))
        learning = model(pack, all_sequences(model, 3), dropout)
    for task, outputs in wanted.items():
        torch.testing.assert_close(found[task].float(), outputs, atol=0.1, rtol=0.1)
    torch.stack([weighted(out.float()) for out in learning.values()]).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    "text", ["full", "split@1", "split@1, pal:4, lora:2, feed:a>b", "pal:4, late:S", "separate"]
)
def test_filled_rows_change_nothing(
    text: str, tiny_encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bf16 every group of rows that learns is filled up, so that their numbers come again."""
    model = tiny.network(text, TASKS, tiny_encoder, stir=0.1)
    model.narrow = torch.bfloat16
    seen: list[int] = []
    for cell in model.cells.values():
        if isinstance(cell, Layer):
            cell.qkv.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))

    def run(multiple: int) -> tuple[dict[str, Tensor], list[Tensor]]:
        monkeypatch.setattr(row_kernels, "MULTIPLE", multiple)
        model.zero_grad()
        seen.clear()
        out: dict[str, Tensor] = model(tiny.pack([3, 5, 5]), all_sequences(model, 3))
        torch.stack([weighted(o.float()) for o in out.values()]).sum().backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        assert len(grads) > len(model.cells)
        return out, grads

    wanted, wanted_grads = run(1)
    assert any(n % 8 for n in seen)
    found, grads = run(8)
    assert seen
    assert not any(n % 8 for n in seen)
    for task, outputs in wanted.items():
        torch.testing.assert_close(found[task], outputs, atol=1e-2, rtol=1e-2)
    for grad, same in zip(grads, wanted_grads, strict=True):
        torch.testing.assert_close(grad, same, atol=1e-2, rtol=2e-2)


def test_only_what_learns_in_bf16_is_filled(tiny_encoder: Encoder) -> None:
    model = tiny.network("full", TASKS, tiny_encoder)
    seen: list[int] = []
    for cell in model.cells.values():
        if isinstance(cell, Layer):
            cell.qkv.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    model(tiny.pack([3, 5]), all_sequences(model, 2))
    model.narrow = torch.bfloat16
    with torch.no_grad():
        model(tiny.pack([3, 5]), all_sequences(model, 2))
    assert set(seen) == {8}
