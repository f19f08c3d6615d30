"""What a network must answer, computed plainly: text by text, each task on its own path alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

from bough.data.packing import Pack
from bough.model.adapters import AdapterModule, Segment, SegmentAdapters
from bough.model.attention import Layout
from bough.model.families.parts import EmbeddingsModule, LayerModule
from bough.model.heads import exported
from bough.model.network import Network
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
FEEDS = [
    "feed:a>b",
    "feed~:a>b",
    "feed:a>b>c",
    "feed~:a>b>c",
    "feed~0.25:a>b>c",
    "feed~0.25:a>b, feed~:b>c",
    "feed~0.5:a>b, feed~0.25:b>c, split@1",
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


def all_sequences(model: Network, sequences: int) -> dict[str, Tensor]:
    """Every task asks about all sequences; twins take neighbours."""
    return {
        name: torch.arange(sequences - sequences % 2).view(-1, 2)
        if task.twin
        else torch.arange(sequences).view(-1, 1)
        for name, task in model.tasks.items()
    }


def by_hand(model: Network, pack: Pack, sequences: Tensor, reader: str) -> Tensor:
    """One task's outputs, text after text, everything on its path computed for it alone."""
    plan, tasks = model.plan, model.tasks
    texts = pack.tokens.split(pack.lengths)

    def vector(task: str, number: int) -> Tensor:
        tokens, n = texts[number], 0
        tables: tuple[Tensor, ...] = ()
        h = tokens
        for step in plan.path(task):
            module = model.cells[step.cell.key]
            if isinstance(module, EmbeddingsModule):
                h = module(*tokens.unbind(1), None)
                tables = () if module.relative is None else (module.position_table(),)
            elif isinstance(module, LayerModule):
                n += 1
                cells = [model.cells[cell.key] for _, cell in step.adapters]
                modules = tuple(cell for cell in cells if isinstance(cell, AdapterModule))
                segments = [Segment(modules, Layout((len(tokens),)))]
                adapters = SegmentAdapters(n, segments) if modules else None
                h = module(h, Layout((len(tokens),), tables), None, False, adapters)
                if n == plan.layers:
                    h = h.mean(0, keepdim=True) if tasks[task].pooling == "mean" else h[:1]
            else:
                h = module(h)
        out: Tensor = h
        return out

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

    return torch.cat([answer(reader, row)[0] for row in sequences.tolist()])


def gradients(model: Network, value: Tensor) -> dict[str, Tensor | None]:
    """By parameter name; None where nothing arrived."""
    learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not value.requires_grad:
        return dict.fromkeys(learning)
    arrived = torch.autograd.grad(value, list(learning.values()), allow_unused=True)
    return dict(zip(learning, arrived, strict=True))


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
        for step in plan.path(name):
            cells |= {step.cell, *(cell for _, cell in step.adapters)}
    return cells


def outputs_of(model: Network, pack: Pack) -> dict[str, Tensor]:
    with torch.no_grad():
        outputs: dict[str, Tensor] = model(pack, all_sequences(model, len(pack.lengths)))
        return outputs


def check_against_hand(model: Network, pack: Pack) -> None:
    """Outputs, and each task's gradients: those of the cells that it moves, and none elsewhere."""
    asked = all_sequences(model, len(pack.lengths))
    users = model.plan.users()
    together = model(pack, asked)
    with torch.no_grad():
        torch.testing.assert_close(model(pack, asked), together, atol=1e-5, rtol=1e-4)
    for task, sequences in asked.items():
        wanted = by_hand(model, pack, sequences, task)
        torch.testing.assert_close(together[task], wanted, atol=1e-5, rtol=1e-4)
        alone = model(pack, {task: sequences})[task]
        torch.testing.assert_close(alone, wanted, atol=1e-5, rtol=1e-4)
        packed, right = gradients(model, weighted(alone)), gradients(model, weighted(wanted))
        mine = keys(cell for cell, names in users.items() if task in names)
        for name, gradient in packed.items():
            if cell_of(name) not in mine:
                assert gradient is None, f"{task} reaches {name}"
                continue
            other = right[name]
            assert (gradient is None) == (other is None), name
            if gradient is not None and other is not None:
                place, _, source = cell_of(name).partition("/")
                if place == "head" and source != task:  # read, and moved by a share
                    other = other * model.plan.moves(task, source)
                assert torch.allclose(gradient, other, atol=2e-4, rtol=1e-3), name


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
