"""The network: one module per cell of the plan, and the one forward pass over them.

Weights that several tasks share exist once, under one name, so there is nothing to tie and nothing
to lose when a model is saved and loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bough.data.packing import Pack
from bough.model import adapters
from bough.model.attention import gather_rows
from bough.model.dropout import DropoutGenerator
from bough.model.families import build
from bough.model.families.parts import EmbeddingsModule
from bough.model.forward import PackedForward
from bough.model.frozen_call import call_frozen
from bough.model.heads import Cosine, Dense, Head, exported, import_sizes
from bough.model.pretrained import Encoder
from bough.model.routing import Routing, TaskUse
from bough.model.transformer import Pooler
from bough.plan.encoder_shape import Shape
from bough.plan.plan import Cell, Plan, Read
from bough.recipe.tasks import Task

FRESH = 0.02  # standard deviation of new weights, as BERT's


class Network(nn.Module):
    """All tasks' paths through one set of cells."""

    def __init__(self, plan: Plan, tasks: Mapping[str, Task], shape: Shape):
        """Empty cells on no device; `pretrained` or `load_state_dict` fills them."""
        super().__init__()
        if tuple(tasks) != plan.tasks:
            raise ValueError(f"the plan is for {plan.tasks}, the tasks are {tuple(tasks)}")
        if any(task.pooling == "auto" for task in tasks.values()):
            raise ValueError("a task's pooling is auto; EncoderPooling.resolve says which it is")
        self.plan = plan
        self.narrow: torch.dtype | None = None  # the trunk's rows and products; weights stay wide
        self.tasks = dict(tasks)
        self.shape = shape
        self.imports: dict[str, list[int]] = {}
        for name in plan.order():
            sources = [read.source for read in plan.reading(name)]
            self.imports[name] = import_sizes(name, sources, tasks, shape.width, self.imports)
        with build.empty_weights():
            self.cells = nn.ModuleDict({c.key: self._cell(c) for c in plan.users()})
        self.unfreeze()

    def _cell(self, cell: Cell) -> nn.Module:
        kind, _, number = cell.place.partition(" ")
        if kind == "embeddings":
            return build.embeddings(self.shape)
        if kind == "layer":
            return build.layer(self.shape, int(number))
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
        self,
        pack: Pack,
        sequence_index: Mapping[str, Tensor],
        dropout: DropoutGenerator | None = None,
    ) -> dict[str, Tensor]:
        """Each task's outputs for its examples, [n, outputs]; of a tag task for all words of its
        examples, one example after another.

        `sequence_index` has each example's sequences in the pack, task -> [n, 1 or 2]. Several
        tasks may name the same sequence; what they share is computed once.
        """
        asked: list[list[str]] = [[] for _ in pack.lengths]
        for task, sequences in sequence_index.items():
            for number in sequences.flatten().tolist():
                asked[number].append(task)
        tasks = [tuple(names) for names in asked]
        trunk = self.trunk(pack, tasks, dropout)
        trunk.run()
        vectors = trunk.vectors()
        return {
            task: self._outputs(task, sequences, vectors, pack, dropout)
            for task, sequences in sequence_index.items()
        }

    def trunk(
        self,
        pack: Pack,
        asked: Sequence[tuple[str, ...]],
        dropout: DropoutGenerator | None,
        routing: Routing | None = None,
    ) -> PackedForward:
        """A pass through the trunk, ready to run, for the tasks asked about each sequence."""
        way = self.routing if routing is None else routing
        return PackedForward(way, self.cells, pack, asked, dropout, self.narrow)

    def _outputs(
        self,
        consumer: str,
        sequences: Tensor,
        vectors: Mapping[TaskUse, tuple[Tensor, Tensor]],
        pack: Pack,
        dropout: DropoutGenerator | None,
    ) -> Tensor:
        """The outputs of a task's head on its examples, those that it reads computed first."""
        done: dict[tuple[str, int | None], tuple[Tensor, Tensor]] = {}

        def call_head(task: str, columns: Sequence[int]) -> tuple[Tensor, Tensor]:
            rows, index = vectors[task, consumer]
            if len(pack.lengths) == len(rows) == 1:  # a text alone
                inputs = [rows]
            else:
                firsts = [index[sequences[:, column]] for column in columns]
                if self.tasks[task].kind == "tag":  # each word's, text after text
                    texts = sequences[:, 0].tolist()
                    counts = [len(pack.words[n]) if pack.words else 0 for n in texts]
                    firsts = [gather_rows(firsts[0].tolist(), counts)]
                inputs = [rows[first.to(rows.device)] for first in firsts]
            imported = [
                value
                for read in self.plan.reading(task)
                for value in self._imported(read, task, columns, done)
            ]
            head = self.cells[Cell("head", task).key]
            # Another task's head: its weights stay as they are (or move by what the plan says), and
            # it answers without dropout.
            out: tuple[Tensor, Tensor] = (
                head(inputs, imported, dropout)
                if task == consumer
                else call_frozen(
                    head, inputs, imported, None, share=self.plan.moves(consumer, task)
                )
            )
            return out

        columns = range(sequences.shape[1])
        for source in self.plan.sources(consumer):
            if self.tasks[source].paired:
                done[source, None] = call_head(source, columns)
            else:
                for column in columns:
                    done[source, column] = call_head(source, [column])
        return call_head(consumer, columns)[0]

    def _imported(
        self,
        read: Read,
        reader: str,
        columns: Sequence[int],
        done: Mapping[tuple[str, int | None], tuple[Tensor, Tensor]],
    ) -> Iterator[Tensor]:
        source = self.tasks[read.source]
        keys: Sequence[int | None] = [None] if source.paired else columns
        for key in keys:
            value = exported(source, self.tasks[reader], *done[read.source, key])
            yield value if read.through else value.detach()

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
        self.routing = Routing(plan, poolings, learning)

    def owned(self) -> dict[Cell, list[tuple[str, nn.Parameter]]]:
        """The learning parameters of each cell."""
        return {
            cell: [(n, p) for n, p in self.cells[cell.key].named_parameters() if p.requires_grad]
            for cell in self.plan.users()
        }

    def lookups(self) -> list[nn.Embedding]:
        """The tables of words: a batch reads few rows of them, and nothing else."""
        return [module.words for module in self.modules() if isinstance(module, EmbeddingsModule)]

    def only(self, task: str) -> Network:
        """This task, and what it reads, as a model of its own."""
        plan = self.plan.only(task)
        model = Network(plan, {name: self.tasks[name] for name in plan.tasks}, self.shape)
        copies = {Cell("head", name): Cell("head", name) for name in plan.tasks}
        for name in plan.tasks:
            for step, source in zip(plan.path(name), self.plan.path(name), strict=True):
                copies[step.cell] = source.cell
                adapters = zip(step.adapters, source.adapters, strict=True)
                copies |= {copy: cell for (_, copy), (_, cell) in adapters}
        for copy, cell in copies.items():
            state = {k: v.clone() for k, v in self.cells[cell.key].state_dict().items()}
            model.cells[copy.key].load_state_dict(state, assign=True)
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
            part.init_weights(generator)
        elif isinstance(part, Cosine | adapters.Narrow | adapters.PAL):
            part.init_weights()


def plan_of(text: str | Mapping[str, Any], tasks: Mapping[str, Task], shape: Shape) -> Plan:
    """The plan that a recipe's text means for these tasks on this encoder."""
    pooled = [name for name, task in tasks.items() if task.pooling == "pooler"]
    return Plan.parse(text, tuple(tasks), shape.layers, heads=shape.heads, pooled=pooled)
