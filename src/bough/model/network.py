"""The network: one module per cell of the plan, and the one forward pass over them.

Weights that several tasks share exist once, under one name, so there is nothing to tie and nothing
to lose when a model is saved and loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bough.data.packing import Pack
from bough.model import adapters
from bough.model.dropout import DropoutGenerator
from bough.model.forward import PackedForward, Route, call
from bough.model.heads import Cosine, Dense, Head, exported, import_sizes
from bough.model.pretrained import Encoder
from bough.model.transformer import Embeddings, Layer, Pooler
from bough.plan.encoder_shape import Shape
from bough.plan.plan import Cell, Plan
from bough.recipe.tasks import Task

FRESH = 0.02  # standard deviation of new weights, as BERT's


class Network(nn.Module):
    """All tasks' ways through one set of cells."""

    def __init__(self, plan: Plan, tasks: Mapping[str, Task], shape: Shape):
        """Empty cells on no device; `pretrained` or `load_state_dict` fills them."""
        super().__init__()
        if tuple(tasks) != plan.tasks:
            raise ValueError(f"the plan is for {plan.tasks}, the tasks are {tuple(tasks)}")
        self.plan = plan
        self.tasks = dict(tasks)
        self.shape = shape
        self.imports: dict[str, list[int]] = {}
        for name in plan.order():
            sources = [read.source for read in plan.reading(name)]
            self.imports[name] = import_sizes(name, sources, tasks, shape.width, self.imports)
        with torch.device("meta"):
            self.cells = nn.ModuleDict({c.key: self._cell(c) for c in plan.users()})
        self.unfreeze()

    def _cell(self, cell: Cell) -> nn.Module:
        kind = cell.place.split()[0]
        if kind == "embeddings":
            return Embeddings(self.shape)
        if kind == "layer":
            return Layer(self.shape)
        if kind == "pooler":
            return Pooler(self.shape)
        if kind == "late":
            return Dense(self.shape.width, self.shape.width)
        if kind == "head":
            return Head(self.tasks[cell.name], self.shape.width, self.imports[cell.name])
        adapter = next(a for a in self.plan.adapters if a.place == cell.place)
        return adapters.build(adapter, self.shape)

    @classmethod
    def pretrained(
        cls, plan: Plan, tasks: Mapping[str, Task], encoder: Encoder, seed: int
    ) -> Network:
        """Cells of the trunk start as copies of the encoder's; the others start fresh."""
        model = cls(plan, tasks, encoder.shape)
        for cell in plan.users():
            weights = encoder.weights(cell.place)
            if weights:
                copies = {name: tensor.clone() for name, tensor in weights.items()}
                model.cells[cell.key].load_state_dict(copies, assign=True)
            else:
                fresh(model.cells[cell.key], cell, seed)
        model.unfreeze()
        return model

    # The pass.

    def forward(
        self, pack: Pack, seats: Mapping[str, Tensor], dice: DropoutGenerator | None = None
    ) -> dict[str, Tensor]:
        """Each task's outputs for its examples: seats [n, 1 or 2] -> [n, outputs].

        A sequence may sit in several tasks' seats; what they share is computed once.
        """
        asked: list[list[str]] = [[] for _ in pack.lengths]
        for task, numbers in seats.items():
            for number in numbers.flatten().tolist():
                asked[number].append(task)
        walk = PackedForward(self.route, self.cells, pack, [tuple(tasks) for tasks in asked], dice)
        walk.run()
        return self.read_out(walk, seats, dice)

    def read_out(
        self, walk: PackedForward, seats: Mapping[str, Tensor], dice: DropoutGenerator | None
    ) -> dict[str, Tensor]:
        """Every task's head on the vectors of its own examples, sources first."""
        vectors = walk.vectors()
        return {task: self._head(task, numbers, vectors, dice) for task, numbers in seats.items()}

    def _head(
        self,
        reader: str,
        numbers: Tensor,
        vectors: Mapping[tuple[str, str], tuple[Tensor, Tensor]],
        dice: DropoutGenerator | None,
    ) -> Tensor:
        done: dict[tuple[str, int | None], tuple[Tensor, Tensor]] = {}

        def answer(task: str, columns: Sequence[int], lent: bool) -> tuple[Tensor, Tensor]:
            rows, index = vectors[task, reader]
            own = [rows[index[numbers[:, column]].to(rows.device)] for column in columns]
            imported = [
                self._imported(read.source, task, read.through, columns, done)
                for read in self.plan.reading(task)
            ]
            flat = [tensor for tensors in imported for tensor in tensors]
            head = self.cells[Cell("head", task).key]
            # Another task's head: its weights stay as they are, and it answers without dropout.
            out: tuple[Tensor, Tensor] = (
                call(head, "through", own, flat, None) if lent else head(own, flat, dice)
            )
            return out

        every = range(numbers.shape[1])
        for source in self.plan.sources(reader):
            if self.tasks[source].paired:
                done[source, None] = answer(source, every, True)
            else:
                for column in every:
                    done[source, column] = answer(source, [column], True)
        return answer(reader, every, False)[0]

    def _imported(
        self,
        source: str,
        reader: str,
        through: bool,
        columns: Sequence[int],
        done: Mapping[tuple[str, int | None], tuple[Tensor, Tensor]],
    ) -> list[Tensor]:
        keys: list[int | None] = [None] if self.tasks[source].paired else list(columns)
        out = []
        for key in keys:
            outputs, hidden = done[source, key]
            value = exported(self.tasks[source], self.tasks[reader], outputs, hidden)
            out.append(value if through else value.detach())
        return out

    # Who learns what.

    def freeze_trunk(self) -> None:
        """Hold the whole trunk fixed for a while."""
        self._let_learn(replace(self.plan, frozen=self.plan.layers))

    def unfreeze(self) -> None:
        """Let learn what the plan lets learn."""
        self._let_learn(self.plan)

    def _let_learn(self, plan: Plan) -> None:
        # A pooler that the encoder came without has nothing pretrained to hold on to.
        born = set() if self.shape.pooler else {"pooler"}
        learning = {c for c in plan.users() if plan.learns(c) or c.place in born}
        for cell in plan.users():
            self.cells[cell.key].requires_grad_(cell in learning)
        poolings = {name: task.pooling for name, task in self.tasks.items()}
        self.route = Route(plan, poolings, learning)

    def owned(self) -> dict[Cell, list[tuple[str, nn.Parameter]]]:
        """The learning parameters of each cell."""
        return {
            cell: [(n, p) for n, p in self.cells[cell.key].named_parameters() if p.requires_grad]
            for cell in self.plan.users()
        }

    def only(self, task: str) -> Network:
        """This task, and what it reads, as a model of its own."""
        plan = self.plan.only(task)
        model = Network(plan, {name: self.tasks[name] for name in plan.tasks}, self.shape)
        for name in plan.tasks:
            for mine, theirs in zip(plan.way(name), self.plan.way(name), strict=True):
                pairs = [(mine.cell, theirs.cell)]
                pairs += [
                    (a, b) for (_, a), (_, b) in zip(mine.adapters, theirs.adapters, strict=True)
                ]
                pairs.append((Cell("head", name), Cell("head", name)))
                for ours, source in pairs:
                    state = {k: v.clone() for k, v in self.cells[source.key].state_dict().items()}
                    model.cells[ours.key].load_state_dict(state, assign=True)
        return model


def fresh(module: nn.Module, cell: Cell, seed: int) -> None:
    """New weights in place of the empty ones, from the seed and the cell's own name.

    So a task's head starts the same under every plan, and plans can be compared in pairs.
    """
    digest = hashlib.sha256(f"{seed} {cell.key}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    module.to_empty(device="cpu")
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=FRESH, generator=generator)
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.LayerNorm):
            part.reset_parameters()
    for part in module.modules():
        if isinstance(part, Dense):
            part.restart(generator)
        elif isinstance(part, Cosine | adapters.Narrow | adapters.PAL):
            part.restart()


def plan_of(text: str | Mapping[str, Any], tasks: Mapping[str, Task], shape: Shape) -> Plan:
    """The plan that a recipe's text means for these tasks on this encoder."""
    pooled = [name for name, task in tasks.items() if task.pooling == "pooler"]
    return Plan.parse(text, tuple(tasks), shape.layers, heads=shape.heads, pooled=pooled)
