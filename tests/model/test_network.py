"""The one pass: whatever the plan and the mix of tasks, each answers as on its own way alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from bough.data.examples import Examples, ExampleSampler
from bough.data.packing import Pack, collate
from bough.data.rows import Rows
from bough.errors import UserError
from bough.model.adapters import AdapterModule, Beside, Segment
from bough.model.attention import Layout
from bough.model.dropout import DropoutGenerator
from bough.model.forward import PackedForward
from bough.model.heads import exported
from bough.model.losses import loss
from bough.model.network import Network, plan_of
from bough.model.pretrained import Encoder
from bough.model.transformer import Embeddings, Layer
from bough.plan.encoder_shape import FAMILIES
from bough.plan.plan import Cell, Plan
from bough.recipe.tasks import Task
from tests import tiny
from tests.strategies import plans

TASKS = {"a": tiny.task(), "b": tiny.task(number=True), "c": tiny.task(labels=("no", "yes"))}
PLANS = [  # without late layers
    "full",
    "separate",
    "split@0",
    "split@1",
    "split@2",
    "split@1/b+c",
    "split@a:0,b:1,c:2",
    "row@1",
    "row@embeddings, row@2/a+b",
    "pal:8",
    "lowrank:4@2",
    "lora:2:qkvoif",
    "bottleneck:4, split@1/a+c",
    "pal:8/a+b, lora:2, bottleneck:3@1",
    "feed:a>b>c",
    "feed~:a>c, split@1, pal:4",
    "frozen",
    "frozen@1, separate, lora:2",
]


def seats(model: Network, sequences: int) -> dict[str, Tensor]:
    """Every task asks about all sequences; twins take neighbours."""
    return {
        name: torch.arange(sequences - sequences % 2).view(-1, 2)
        if task.twin
        else torch.arange(sequences).view(-1, 1)
        for name, task in model.tasks.items()
    }


def by_hand(model: Network, pack: Pack, chairs: Tensor, reader: str) -> Tensor:
    """One task's outputs, text after text, everything on its way computed for it alone."""
    plan, tasks = model.plan, model.tasks
    texts = pack.tokens.split(pack.lengths)

    def vector(task: str, number: int) -> Tensor:
        tokens, tables, n = texts[number], (), 0
        h = tokens
        for step in plan.way(task):
            module = model.cells[step.cell.key]
            if isinstance(module, Embeddings):
                h = module(*tokens.unbind(1), None)
                tables = () if module.relative is None else (module.relative.weight,)
            elif isinstance(module, Layer):
                n += 1
                beside = [model.cells[cell.key] for _, cell in step.adapters]
                modules = tuple(m for m in beside if isinstance(m, AdapterModule))
                tweaks = Beside(n, [Segment(modules, Layout((len(tokens),)))]) if modules else None
                h = module(h, Layout((len(tokens),), tables), None, False, tweaks)
                if n == plan.layers:
                    h = h.mean(0, keepdim=True) if tasks[task].pooling == "mean" else h[:1]
            else:
                h = module(h)
        return h

    def answer(task: str, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        imported = []
        for read in plan.reading(task):
            source = tasks[read.source]
            for part in [numbers] if source.paired else [[n] for n in numbers]:
                value = exported(source, tasks[task], *answer(read.source, part))
                imported.append(value if read.through else value.detach())
        head = model.cells[Cell("head", task).key]
        out: tuple[Tensor, Tensor] = head([vector(task, n) for n in numbers], imported, None)
        return out

    return torch.cat([answer(reader, row)[0] for row in chairs.tolist()])


def gradients(model: Network, value: Tensor) -> dict[str, Tensor | None]:
    """By parameter name; None where nothing arrived."""
    learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not value.requires_grad:
        return dict.fromkeys(learning)
    found = torch.autograd.grad(value, list(learning.values()), allow_unused=True)
    return dict(zip(learning, found, strict=True))


def weighted(outputs: Tensor) -> Tensor:
    weight = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(4))
    return (outputs * weight.to(outputs)).sum()


def cell_of(name: str) -> str:
    return name.split(".")[1]


def keys(cells: Iterable[Cell]) -> set[str]:
    return {cell.key for cell in cells}


def reach(plan: Plan, task: str) -> set[Cell]:
    """All cells that this task's answer depends on."""
    cells = set()
    for name in (task, *plan.sources(task)):
        cells.add(Cell("head", name))
        for step in plan.way(name):
            cells |= {step.cell, *(cell for _, cell in step.adapters)}
    return cells


@st.composite
def cases(draw: st.DrawFn) -> tuple[Plan, dict[str, Task]]:
    """A plan with tasks of all forms that can read each other as it says."""
    plan = draw(plans(max_tasks=3, max_layers=3, heads=4))
    form = draw(st.sampled_from(["single", "joint", "twin"]))
    tasks: dict[str, Task] = {}
    for name in plan.order():
        poolings = ["pooler"] if name in plan.pooled else ["cls", "mean"]
        # A task that reads nothing may judge single texts, whoever reads it.
        single = form == "single" or (not plan.reading(name) and draw(st.booleans()))
        tasks[name] = tiny.task(
            twin=not single and form == "twin",
            joint=not single and form == "joint",
            number=draw(st.booleans()),
            pooling=draw(st.sampled_from(poolings)),
            head=draw(st.sampled_from(["linear", "mlp"])),
            width=6,
            reads_as=draw(st.sampled_from(["logits", "probabilities", "hidden"])),
            fusion=draw(st.sampled_from(["concat", "attention"])),
        )
    return plan, {name: tasks[name] for name in plan.tasks}


# --- at the start ---------------------------------------------------------------------------------

FAMILY_ENCODERS = {name: tiny.encoder(name) for name in FAMILIES} | {
    "electra, small embeddings": tiny.encoder("electra", embedding=8)
}


@pytest.mark.parametrize("family", FAMILY_ENCODERS)
def test_every_plan_starts_as_the_pretrained_trunk(family: str) -> None:
    encoder = FAMILY_ENCODERS[family]
    pack = tiny.pack([5, 3, 3, 19, 7], pairs=True)
    places = tiny.trunk(encoder)
    states = tiny.walk(places, pack)
    starts = Layout(pack.lengths).starts
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
        walk = PackedForward(model.route, model.cells, pack, [tuple(tasks)] * 5, None)
        walk.run()
        for task, vectors in wanted.items():
            rows, index = walk.vectors()[task, task]
            error = (rows[index] - vectors).abs().max()
            assert error < 2e-6, f"{text}, {task}: {error}"
        if "feed" not in text:  # heads start alike under every plan
            outputs = model(pack, seats(model, 5))
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


# --- the packed pass is the plain one -------------------------------------------------------------


def check_against_hand(model: Network, pack: Pack) -> None:
    """Outputs, and each task's gradients: those of its own cells, and none elsewhere."""
    asked = seats(model, len(pack.lengths))
    users = model.plan.users()
    together = model(pack, asked)
    with torch.no_grad():
        torch.testing.assert_close(model(pack, asked), together, atol=1e-5, rtol=1e-4)
    for task, chairs in asked.items():
        wanted = by_hand(model, pack, chairs, task)
        torch.testing.assert_close(together[task], wanted, atol=1e-5, rtol=1e-4)
        alone = model(pack, {task: chairs})[task]
        torch.testing.assert_close(alone, wanted, atol=1e-5, rtol=1e-4)
        found, right = gradients(model, weighted(alone)), gradients(model, weighted(wanted))
        mine = keys(cell for cell, names in users.items() if task in names)
        for name, gradient in found.items():
            if cell_of(name) not in mine:
                assert gradient is None, f"{task} reaches {name}"
                continue
            other = right[name]
            assert (gradient is None) == (other is None), name
            if gradient is not None and other is not None:
                assert torch.allclose(gradient, other, atol=2e-4, rtol=1e-3), name


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.integers(0, 99))
def test_any_plan_equals_the_plain_pass(case: tuple[Plan, dict[str, Task]], seed: int) -> None:
    plan, tasks = case
    encoder = tiny.encoder("mpnet" if seed % 4 == 0 else "bert", layers=plan.layers, width=8,
                           embedding=8, inner=12)  # fmt: skip
    model = tiny.network(plan, tasks, encoder, seed, stir=0.2)
    check_against_hand(model, tiny.pack([3, 5, 3, 4], seed, pairs=True))


FEEDS = [
    "feed:a>b",
    "feed~:a>b",
    "feed:a>b>c",
    "feed~:a>b>c",
    "feed:a>b, feed~:b>c",
    "feed~:a>b, feed:b>c",
    "feed~:a>b, split@1",
    "feed:a>b, split@1",
    "feed~:a>b, separate",
    "feed~:a>b, row@1",
    "feed:a>b, row@1",
    "feed~:a>b, pal:4, lora:2, bottleneck:3",
    "feed:a>b, pal:4, lora:2, bottleneck:3",
    "feed~:a>b, pal:4/a+b, lora:2, late:SI",
    "feed~:a>b, split@1/b+c, lowrank:2, late:IS/a+c",
]


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
    for text in ("feed:sst>para>sts", "feed~:sst>para>sts", "feed~:sst>sts, split@1, pal:4"):
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
    torch.testing.assert_close(head_b.get_parameter("output.weight").grad[0], torch.cat([x, read]))


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


# --- independence ---------------------------------------------------------------------------------


def outputs_of(model: Network, pack: Pack) -> dict[str, Tensor]:
    with torch.no_grad():
        found: dict[str, Tensor] = model(pack, seats(model, len(pack.lengths)))
        return found


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans(max_tasks=3, max_layers=2, heads=4))
def test_tasks_are_independent_exactly_when_they_share_no_learning_cell(plan: Plan) -> None:
    tasks = {
        name: TASKS[name].model_copy(update={"pooling": "pooler" if name in plan.pooled else "cls"})
        for name in plan.tasks
    }
    encoder = tiny.encoder(layers=plan.layers, width=8, embedding=8, inner=8)
    model = tiny.network(plan, tasks, encoder, stir=0.3)
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
        own = {cell for cell, names in users.items() if names == (task,)}
        with torch.no_grad():
            for cell in own:
                for parameter in model.cells[cell.key].parameters():
                    parameter += 0.1
        readers = {t for t in plan.tasks if t == task or task in plan.sources(t)}
        assert changed() == readers

        learned = {cell for cell, names in users.items() if task in names and plan.learns(cell)}
        output = model(pack, {task: seats(model, 3)[task]})[task]
        found = gradients(model, weighted(output))
        assert {cell_of(n) for n, g in found.items() if g is not None} == keys(learned)
        with torch.no_grad():
            for name, gradient in found.items():
                if gradient is not None:
                    model.get_parameter(name).sub_(0.02 * gradient.sign())
        assert changed() == {t for t in plan.tasks if reach(plan, t) & learned}
    assert changed() == set()


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
        model(pack, seats(model, 4))
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
    chairs = {
        "c": torch.tensor([[5], [0]]),
        "a": torch.tensor([[1], [2], [4]]),
        "b": torch.tensor([[3]]),
    }
    mixed = model(pack, chairs)
    total = gradients(model, torch.stack([weighted(out) for out in mixed.values()]).sum())
    added: dict[str, Tensor] = {}
    for task, numbers in chairs.items():
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


# --- who learns -----------------------------------------------------------------------------------


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
    out = model(tiny.pack([3, 4]), seats(model, 2))
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
    pooler = model.route.places.index("pooler")
    assert model.route.fixed == pooler  # what lies before it is fixed
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


@pytest.mark.parametrize(
    ("text", "fixed"),
    [("full", 0), ("frozen", 5), ("frozen@1", 2), ("frozen@0", 1), ("frozen, pal:4@2", 2)],
)
def test_fixed_rows_take_no_dropout(text: str, fixed: int, tiny_encoder: Encoder) -> None:
    """embeddings, layer 1, layer 2, read, pooler."""
    tasks = {name: task.model_copy(update={"dropout": 0.0}) for name, task in TASKS.items()}
    model = tiny.network(text, tasks, tiny_encoder)
    assert model.route.fixed == fixed
    pack, dice = tiny.pack([5, 4]), DropoutGenerator(torch.Generator().manual_seed(0), 0.5)
    walks = [PackedForward(model.route, model.cells, pack, [("a",)] * 2, d) for d in (None, dice)]
    plain, dropped = ([group.rows for group in walk.run(fixed)] for walk in walks)
    assert all(torch.equal(a, b) for a, b in zip(plain, dropped, strict=True))
    same = torch.equal(model(pack, seats(model, 2), dice)["a"], model(pack, seats(model, 2))["a"])
    assert same == (fixed == 5)


def test_dropout_is_reproducible(tiny_encoder: Encoder) -> None:
    model = tiny.network("split@1, pal:4, feed~:a>b", TASKS, tiny_encoder, stir=0.1)

    def run(seed: int) -> dict[str, Tensor]:
        dice = DropoutGenerator(torch.Generator().manual_seed(seed), 0.2)
        out: dict[str, Tensor] = model(tiny.pack([3, 5]), seats(model, 2), dice)
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
        dice = DropoutGenerator(torch.Generator().manual_seed(0), 0.2)
        out: dict[str, Tensor] = model(tiny.pack([3, 5]), seats(model, 2), dice)
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
    pack, dice = tiny.pack([3, 5, 5]), DropoutGenerator(torch.Generator().manual_seed(0), 0.1)
    wanted = model(pack, seats(model, 3))
    with torch.autocast("cpu", torch.bfloat16):
        found = model(pack, seats(model, 3))
        learning = model(pack, seats(model, 3), dice)
    for task, outputs in wanted.items():
        torch.testing.assert_close(found[task].float(), outputs, atol=0.1, rtol=0.1)
    torch.stack([weighted(out.float()) for out in learning.values()]).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


# --- parts and the whole --------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*PLANS, *FEEDS[4:], "late:IS/a+b, split@1"])
def test_one_task_alone_answers_the_same(text: str, tiny_encoder: Encoder) -> None:
    model = tiny.network(text, TASKS, tiny_encoder, stir=0.2)
    pack = tiny.pack([3, 6, 4])
    before = outputs_of(model, pack)
    for task in TASKS:
        alone = model.only(task)
        assert set(alone.tasks) == {task, *model.plan.sources(task)}
        chairs = {task: torch.arange(3).view(3, 1)}
        with torch.no_grad():
            torch.testing.assert_close(
                alone(pack, chairs)[task], before[task], atol=1e-5, rtol=1e-4
            )
        needed = {p for cell in reach(model.plan, task) for p in model.cells[cell.key].parameters()}
        assert sum(p.numel() for p in alone.parameters()) == sum(p.numel() for p in needed)
        with torch.no_grad():  # a copy: moving it moves nothing here
            for parameter in alone.parameters():
                parameter += 1
    assert all(torch.equal(value, before[name]) for name, value in outputs_of(model, pack).items())


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
