"""What a plan costs on an encoder of a given shape, before anything is built: parameters, bytes to
serve, work per example, and the steps that several tasks asking about one text need. No torch.

Work is counted in matrix products, two operations per multiplication and addition; norms,
activations and table look-ups are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bough.plan.encoder_shape import Shape
from bough.plan.family_settings import deberta_distances
from bough.plan.plan import Adapter, Cell, Plan, Step


@dataclass(frozen=True)
class Cost:
    """Static cost of a plan. Heads are counted as linear ones on the trunk's width."""

    parameters: int
    trunk_parameters: int  # all but the heads; late layers and adapters included
    learning_parameters: int  # those that training moves
    task_parameters: dict[str, int]  # what one task alone needs, with the tasks that it reads
    adapter_parameters: dict[str, int]  # of these, in adapters on its own path
    bytes_to_serve: int  # all weights, as fp32
    length: int  # tokens of the example below
    flops_per_example: dict[str, int]  # one example for one task
    flops_together: int  # one text for all tasks, shared activations computed once
    steps: tuple[int, ...]  # computed when the first 1, 2, ... tasks ask about one text

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"steps": list(self.steps)}

    def __str__(self) -> str:
        alone = sum(self.flops_per_example.values())
        lines = [
            f"parameters   {_short(self.parameters)} ({self.parameters:,}), "
            f"{_short(self.trunk_parameters)} without heads, "
            f"{_short(self.learning_parameters)} learn",
            f"to serve     {self.bytes_to_serve / 2**20:,.0f} MiB as fp32",
            f"one text     {_short(self.flops_together)}FLOP for all tasks at once, "
            f"{_short(alone)}FLOP one by one ({self.length} tokens)",
            f"steps        {', '.join(map(str, self.steps))} when "
            + ("the task asks" if len(self.steps) == 1 else f"1 to {len(self.steps)} tasks ask")
            + " about one text",
        ]
        width = max(map(len, self.flops_per_example))
        for task, flops in self.flops_per_example.items():
            extra = self.adapter_parameters[task]
            adapters = f", {extra:,} in adapters" if extra else ""
            parameters = f"{_short(self.task_parameters[task])} parameters alone{adapters}"
            lines.append(f"  {task:{width}}  {parameters}, {_short(flops)}FLOP")
        return "\n".join(lines)


def cost(
    plan: Plan,
    shape: Shape,
    outputs: Mapping[str, int] | None = None,
    length: int = 64,
    *,
    means: Collection[str] = (),
) -> Cost:
    """The cost of the plan; `outputs` says how many numbers each head gives (default: one).

    Of the last layer only the first token's row is computed, except for tasks in `means`, which
    read the mean over all tokens, or words.
    """
    if plan.layers != shape.layers:
        raise ValueError(f"the plan is for {plan.layers} layers, the encoder has {shape.layers}")
    outputs = dict.fromkeys(plan.tasks, 1) | dict(outputs or {})
    sizes = cell_parameters(plan, shape, outputs)
    # A linear head multiplies once with each of its weights, but not with its biases.
    heads = {task: sizes[Cell("head", task)] - outputs[task] for task in plan.tasks}
    total = sum(sizes.values())
    task_parameters, adapter_parameters, flops = {}, {}, {}
    for task in plan.tasks:
        needed = (task, *plan.sources(task))
        cells = {cell for t in needed for cell in _cells(plan, t)}
        adapters = {cell for step in plan.path(task) for _, cell in step.adapters}
        task_parameters[task] = sum(sizes[cell] for cell in cells)
        adapter_parameters[task] = sum(sizes[cell] for cell in adapters)
        products = sum(heads[t] for t in needed)
        flops[task] = _work(plan, shape, needed, products, length, means)
    return Cost(
        parameters=total,
        trunk_parameters=sum(n for cell, n in sizes.items() if cell.place != "head"),
        learning_parameters=sum(n for cell, n in sizes.items() if plan.learns(cell)),
        task_parameters=task_parameters,
        adapter_parameters=adapter_parameters,
        bytes_to_serve=4 * total,
        length=length,
        flops_per_example=flops,
        flops_together=_work(plan, shape, plan.tasks, sum(heads.values()), length, means),
        steps=tuple(plan.distinct_steps(plan.tasks[: k + 1]) for k in range(len(plan.tasks))),
    )


def cell_parameters(
    plan: Plan, shape: Shape, outputs: Mapping[str, int] | None = None
) -> dict[Cell, int]:
    """Weights and biases of every cell."""
    d = shape.width
    outputs = dict.fromkeys(plan.tasks, 1) | dict(outputs or {})
    adapters = {adapter.place: adapter for adapter in plan.adapters}
    sizes = {}
    for cell in plan.users():
        place, _, number = cell.place.partition(" ")
        if place == "embeddings":
            size = shape.embedding_parameters
        elif place == "layer":
            size = shape.layer_parameters(int(number))
        elif place == "pooler":
            size = shape.pooler_parameters
        elif place == "late":
            size = d * (d + 1)
        elif place == "head":
            read = sum(outputs[r.source] for r in plan.reading(cell.name))
            size = outputs[cell.name] * (d + read + 1)
        else:
            size = _adapter_parameters(adapters[cell.place], shape)
        sizes[cell] = size
    return sizes


def _adapter_parameters(adapter: Adapter, shape: Shape) -> int:
    s, d, layers = adapter.size, shape.width, adapter.last - adapter.first + 1
    if adapter.kind == "pal":
        return 2 * s * d + layers * 3 * s * s  # the projections serve all layers
    if adapter.kind == "lowrank":
        return layers * 2 * s * d
    if adapter.kind == "lora":
        return layers * sum(s * ends for ends in _ends(adapter, shape).values())
    return layers * (2 * s * d + s + d)


def _ends(adapter: Adapter, shape: Shape) -> dict[str, int]:
    """Input and output width, added up, of each matrix that a LoRA changes."""
    d = shape.width
    other = {"i": shape.up, "f": shape.inner}
    return {m: d + other.get(m, d) for m in adapter.matrices}


def _cells(plan: Plan, task: str) -> set[Cell]:
    path = plan.path(task)
    adapters = {cell for step in path for _, cell in step.adapters}
    return {Cell("head", task), *(step.cell for step in path), *adapters}


def _work(
    plan: Plan, shape: Shape, tasks: Sequence[str], heads: int, length: int, means: Collection[str]
) -> int:
    """Operations when these tasks are answered on one text of so many tokens."""
    products = heads
    for step, together in plan.walked(tasks):
        last = step.cell.place == f"layer {shape.layers}"
        whole = not last or not set(together).isdisjoint(means)
        products += _step(step, shape, length, length if whole else 1)
    return 2 * products


def _step(step: Step, shape: Shape, length: int, rows: int) -> int:
    """Multiplications of one step on `length` tokens, of which `rows` are wanted after it."""
    d, (place, _, number) = shape.width, step.cell.place.partition(" ")
    if place == "embeddings":
        return length * shape.embedding * d if shape.embedding != d else 0
    if place != "layer":
        return d * d
    products = 2 * length * d * d + rows * (2 * d * d + d * (shape.up + shape.inner))
    products += 2 * d * _pairs(length, rows, shape.reach(int(number)))
    if shape.network == "deberta":
        # Of each distance a query and a key; tokens with every distance there can be, or, where
        # only the first one asks, each with its own.
        distances = deberta_distances(shape.relative, length, shape.longest)
        products += 2 * distances * d * d + 2 * d * length * (2 * length if rows == length else 1)
    for adapter, _ in step.adapters:
        s = adapter.size
        if adapter.kind == "pal":
            products += length * (s * d + 2 * s * s) + rows * (s * s + 2 * length * s + s * d)
        elif adapter.kind == "lora":
            for matrix, ends in _ends(adapter, shape).items():
                products += (length if matrix in "kv" else rows) * s * ends
        else:
            products += rows * 2 * s * d
    return products


def _pairs(length: int, rows: int, reach: int | None) -> int:
    """How many tokens the first `rows` tokens of a text see, all together."""
    if reach is None:
        return rows * length
    return sum(min(length, row + reach + 1) - max(0, row - reach) for row in range(rows))


def _short(number: int) -> str:
    """12.34 M and the like."""
    for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return f"{number}"
