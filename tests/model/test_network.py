"""A network's cells: where they start, who moves them, and each task's part of the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from bough.data.checked_rows import Rows
from bough.data.examples import Examples, ExampleSampler
from bough.data.packing import collate
from bough.errors import UserError
from bough.model.attention import Layout
from bough.model.losses import loss
from bough.model.network import Network, plan_of
from bough.model.pretrained import Encoder
from bough.plan.encoder_shape import FAMILIES
from bough.plan.plan import Cell, Plan
from bough.recipe.tasks import Task
from tests import tiny
from tests.plain_pass import (
    FEEDS,
    PLANS,
    TASKS,
    all_sequences,
    cell_of,
    gradients,
    keys,
    outputs_of,
    reach,
    weighted,
)
from tests.strategies import plans

# --- at the start ---------------------------------------------------------------------------------

FAMILY_ENCODERS = {name: tiny.encoder(name) for name in FAMILIES} | {
    "electra, small embeddings": tiny.encoder("electra", embedding=8)
}


@pytest.mark.parametrize("family", FAMILY_ENCODERS)
def test_every_plan_starts_as_the_pretrained_trunk(family: str) -> None:
    encoder = FAMILY_ENCODERS[family]
    pack = tiny.pack([5, 3, 3, 19, 7], pairs=True)
    places = tiny.trunk(encoder)
    states = tiny.encode(places, pack)
    starts = Layout(pack.lengths).on(states.device).starts
    means = torch.stack([part.mean(0) for part in states.split(pack.lengths)])
    pooled = places["pooler"](states[starts]) if encoder.shape.pooler else states[starts]
    wanted = {"a": pooled, "b": states[starts], "c": means}
    poolings = ("pooler" if encoder.shape.pooler else "cls", "cls", "mean")
    tasks = {
        name: task.model_copy(update={"pooling": pooling})
        for (name, task), pooling in zip(TASKS.items(), poolings, strict=True)
    }
    answers = None
    for text in PLANS:
        model = tiny.network(text, tasks, encoder)
        forward = model.trunk(pack, [tuple(tasks)] * 5, None)
        forward.run()
        for task, vectors in wanted.items():
            rows, index = forward.vectors()[task, task]
            error = (rows[index] - vectors).abs().max()
            assert error < 2e-6, f"{text}, {task}: {error}"
        if "feed" not in text:  # heads start alike under every plan
            outputs = model(pack, all_sequences(model, 5))
            answers = answers or outputs
            torch.testing.assert_close(outputs, answers, atol=5e-6, rtol=0)


def test_separate_trains_like_single_tasks(tiny_encoder: Encoder) -> None:
    rng = np.random.default_rng(0)

    def examples(task: Task, n: int) -> Examples:
        texts: list[tuple[str, ...]] = [
            (" ".join(rng.choice(tiny.WORDS, rng.integers(2, 9))),) for _ in range(n)
        ]
        real = task.kind == "regress"
        labels = (
            [float(x) for x in rng.uniform(0, 5, n)] if real else rng.integers(0, 2, n).tolist()
        )
        rows = Rows(texts, labels, [""] * n, "memory", list(range(n)))
        return Examples.of(task, rows, tiny_encoder.tokenizer, 40)

    def decks() -> dict[str, ExampleSampler]:
        return {n: ExampleSampler(e.lengths, 4, 3, [i]) for i, (n, e) in enumerate(data.items())}

    data = {name: examples(task, 30 + i) for i, (name, task) in enumerate(TASKS.items())}

    def train(model: Network, names: Sequence[str]) -> Network:
        dealt = decks()
        optimiser = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.01)
        for _ in range(50):
            batch = collate(data, {name: dealt[name].next(4) for name in names})
            outputs = model(batch.pack, batch.index)
            optimiser.zero_grad()
            total = [loss(TASKS[n], outputs[n], batch.targets[n]) for n in names]
            torch.stack(total).sum().backward()
            optimiser.step()
        return model

    together = train(tiny.network("separate", TASKS, tiny_encoder), tuple(TASKS))
    for name, task in TASKS.items():
        alone = train(tiny.network("full", {name: task}, tiny_encoder), (name,))
        fresh = tiny.network("full", {name: task}, tiny_encoder)
        mine = together.only(name).state_dict()
        for key, tensor in alone.state_dict().items():
            torch.testing.assert_close(mine[key], tensor, atol=1e-6, rtol=0)
        moved = [
            not torch.equal(a, b)
            for a, b in zip(alone.parameters(), fresh.parameters(), strict=True)
        ]
        assert all(moved)


def test_the_ends_of_a_split(tiny_encoder: Encoder) -> None:
    whole, deepest = (plan_of(text, TASKS, tiny_encoder.shape) for text in ("full", "split@2"))
    assert whole.rows() == deepest.rows()
    assert whole.users() == deepest.users()
    none = plan_of("split@0", TASKS, tiny_encoder.shape)
    shared = {cell.place for cell, users in none.users().items() if len(users) > 1}
    assert shared == {"embeddings"}
    pack = tiny.pack([4, 6])
    outputs = [tiny.network(text, TASKS, tiny_encoder)(pack, {"a": torch.tensor([[0], [1]])})
               for text in ("full", "split@2")]  # fmt: skip
    assert torch.equal(outputs[0]["a"], outputs[1]["a"])


def test_every_cell_has_its_own_weights(tiny_encoder: Encoder) -> None:
    """Copies where tasks part, one set where they do not; the encoder's stay as they were."""
    kept = {name: tensor.clone() for name, tensor in tiny_encoder.tensors.items()}
    model = tiny.network("split@1, lora:2", TASKS, tiny_encoder, stir=0.1)
    storages = [p.untyped_storage().data_ptr() for p in model.parameters()]
    assert len(set(storages)) == len(storages)
    assert not set(storages) & {
        t.untyped_storage().data_ptr() for t in tiny_encoder.tensors.values()
    }
    assert all(torch.equal(tensor, kept[name]) for name, tensor in tiny_encoder.tensors.items())
    assert all(not p.is_meta for p in model.parameters())


def test_a_network_asks_for_what_fits(tiny_encoder: Encoder) -> None:
    plan = plan_of("full", TASKS, tiny_encoder.shape)
    with pytest.raises(ValueError, match="the plan is for"):
        Network(plan, {"a": TASKS["a"]}, tiny_encoder.shape)
    pair = {"a": tiny.task(), "b": tiny.task(joint=True)}
    with pytest.raises(UserError, match="judges one text"):
        tiny.network("feed:b>a", pair, tiny_encoder)


def test_tasks_that_skip_the_pooler_have_none(tiny_encoder: Encoder) -> None:
    tasks: Mapping[str, Task] = {"a": tiny.task(), "b": tiny.task(pooling="mean")}
    model = tiny.network("separate", tasks, tiny_encoder)
    assert [c.key for c in model.plan.users() if c.place == "pooler"] == ["pooler/a"]
    none = tiny.network("full", {"b": tasks["b"]}, tiny_encoder)
    assert not [key for key in none.cells if key.startswith("pooler")]


# --- who learns -----------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans(max_tasks=3, max_layers=2, heads=4))
def test_tasks_are_independent_exactly_when_they_share_no_learning_cell(plan: Plan) -> None:
    tasks = {
        name: TASKS[name].model_copy(update={"pooling": "pooler" if name in plan.pooled else "cls"})
        for name in plan.tasks
    }
    encoder = tiny.encoder(layers=plan.layers, width=8, embedding=8, inner=8)
    model = tiny.network(plan, tasks, encoder, stir=0.3)
    with torch.no_grad():  # no late layer may be dead: what it hides would look independent
        for cell in model.plan.users():
            if cell.place.startswith("late"):
                model.cells[cell.key].get_parameter("linear.bias").add_(3)
    pack = tiny.pack([3, 4, 5])
    users, before = plan.users(), outputs_of(model, pack)
    kept = [parameter.detach().clone() for parameter in model.parameters()]

    def changed() -> set[str]:
        """The tasks that answer otherwise now; then all is as it was."""
        now = outputs_of(model, pack)
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), kept, strict=True):
                parameter.copy_(value)
        return {task for task in plan.tasks if not torch.equal(now[task], before[task])}

    for task in plan.tasks:
        own = {cell for cell, names in users.items() if names == (task,)} | {Cell("head", task)}
        with torch.no_grad():
            for cell in own:
                for parameter in model.cells[cell.key].parameters():
                    parameter.add_(0.1)
        readers = {t for t in plan.tasks if t == task or task in plan.sources(t)}
        assert changed() == readers

        learned = {cell for cell, names in users.items() if task in names and plan.learns(cell)}
        output = model(pack, {task: all_sequences(model, 3)[task]})[task]
        found = gradients(model, weighted(output))
        assert {cell_of(n) for n, g in found.items() if g is not None} == keys(learned)
        with torch.no_grad():
            for name, gradient in found.items():
                if gradient is not None:
                    model.get_parameter(name).sub_(0.02 * gradient.sign())
        assert changed() == {t for t in plan.tasks if reach(plan, t) & learned}
    assert changed() == set()


@pytest.mark.parametrize("text", ["full", "split@1", "pal:4, lora:2", "late:IS, split@1/a+b"])
def test_absent_tasks_get_no_gradient_at_all(text: str, tiny_encoder: Encoder) -> None:
    """Not zero: an optimiser would still decay and move them."""
    model = tiny.network(text, TASKS, tiny_encoder)
    out = model(tiny.pack([3, 4]), {"a": torch.tensor([[0]]), "b": torch.tensor([[1]])})
    (weighted(out["a"]) + weighted(out["b"])).backward()
    for cell, users in model.plan.users().items():
        for parameter in model.cells[cell.key].parameters():
            assert (parameter.grad is None) == (users == ("c",)), cell
            assert parameter.grad is None or parameter.grad.isfinite().all()


@pytest.mark.parametrize(
    "text",
    ["frozen", "frozen@1", "frozen@0, split@1", "frozen, pal:4, late:S", "frozen@1, separate"],
)
def test_frozen_cells_get_none_either(text: str, tiny_encoder: Encoder) -> None:
    model = tiny.network(text, TASKS, tiny_encoder)
    out = model(tiny.pack([3, 4]), all_sequences(model, 2))
    torch.stack([weighted(o) for o in out.values()]).sum().backward()
    for cell in model.plan.users():
        for parameter in model.cells[cell.key].parameters():
            assert (parameter.grad is not None) == model.plan.learns(cell), cell
    owned = {cell for cell, parameters in model.owned().items() if parameters}
    assert owned == {cell for cell in model.plan.users() if model.plan.learns(cell)}


def test_a_fresh_pooler_learns_on_a_frozen_trunk() -> None:
    model = tiny.network("frozen", TASKS, tiny.encoder("electra"))
    learning = {cell_of(n) for n, p in model.named_parameters() if p.requires_grad}
    assert learning == {"pooler/all", "head/a", "head/b", "head/c"}
    pooler = model.routing.rows.index("pooler")
    assert model.routing.frozen_rows == pooler  # what lies before it is fixed
    again = Network(model.plan, TASKS, model.shape)  # as when it is loaded
    assert {cell_of(n) for n, p in again.named_parameters() if p.requires_grad} == learning
    assert {cell_of(n) for n, p in model.only("a").named_parameters() if p.requires_grad} == {
        "pooler/all",
        "head/a",
    }


def test_holding_the_trunk_for_a_while(tiny_encoder: Encoder) -> None:
    model = tiny.network("frozen@1, pal:4, late:S", TASKS, tiny_encoder)

    def learning() -> set[str]:
        return {cell_of(n) for n, p in model.named_parameters() if p.requires_grad}

    usual = learning()
    assert usual == keys(cell for cell in model.plan.users() if model.plan.learns(cell))
    model.freeze_trunk()
    assert learning() == {k for k in usual if not k.startswith(("layer", "pooler"))}
    model.unfreeze()
    assert learning() == usual


# --- parts and the whole --------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*PLANS, *FEEDS[4:], "late:IS/a+b, split@1"])
def test_one_task_alone_answers_the_same(text: str, tiny_encoder: Encoder) -> None:
    model = tiny.network(text, TASKS, tiny_encoder, stir=0.2)
    pack = tiny.pack([3, 6, 4])
    before = outputs_of(model, pack)
    for task in TASKS:
        alone = model.only(task)
        assert set(alone.tasks) == {task, *model.plan.sources(task)}
        sequences = {task: torch.arange(3).view(3, 1)}
        with torch.no_grad():
            torch.testing.assert_close(
                alone(pack, sequences)[task], before[task], atol=1e-5, rtol=1e-4
            )
        needed = {p for cell in reach(model.plan, task) for p in model.cells[cell.key].parameters()}
        assert sum(p.numel() for p in alone.parameters()) == sum(p.numel() for p in needed)
        with torch.no_grad():  # a copy: moving it moves nothing here
            for parameter in alone.parameters():
                parameter.add_(1)
    assert all(torch.equal(value, before[name]) for name, value in outputs_of(model, pack).items())
