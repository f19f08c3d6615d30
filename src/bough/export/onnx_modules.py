"""The network on one bucket, as torch modules that can be traced: what the ONNX graphs compute.

A *bucket* is n texts of equal length, so there is no padding and no mask, and n and the length can
stay open. The cells are the network's own, called as its forward pass calls them; only the way from
cell to cell is written here, because the trace must not see single texts. Tasks whose paths begin
alike share that beginning, which is in the graph once.

The two texts of a twin pair differ in length and come in two buckets: for those tasks `TextsModule`
gives each text's vector, and `PairsModule` has the heads that join them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from bough.inference.onnx_names import SIDES, joined, pairs_form, read_name, texts_form, vector_name
from bough.model.adapters import AdapterModule, Segment, SegmentAdapters
from bough.model.attention import Bucket, Layout, LayoutTensors
from bough.model.families.parts import EmbeddingsModule, LayerModule
from bough.model.families.position_bias import position_bucket
from bough.model.heads import exported
from bough.model.network import Network
from bough.model.routing import READ, WORDS, RowUse
from bough.plan.plan import Cell

Path = tuple[RowUse, ...]
Answer = tuple[Tensor, Tensor]  # a head's outputs, and what they were read from


class TextsModule(nn.Module):
    """From token ids to every task's outputs, or to the vectors of twin tasks."""

    def __init__(self, network: Network):
        super().__init__()
        self.cells = network.cells
        self.plan, self.tasks, self.shape = network.plan, network.tasks, network.shape
        self.paths: dict[str, Path] = {
            t: tuple(network.routing.in_evaluation[t, t]) for t in self.tasks
        }
        self.joined = {t: joined(network, t) for t, task in self.tasks.items() if task.twin}
        self.outputs = list(texts_form(network)[1])
        self.biases = nn.ParameterDict(
            {
                key: nn.Parameter(self._position_table(cell.position_table()), False)
                for key, cell in self.cells.items()
                if isinstance(cell, EmbeddingsModule) and cell.relative is not None
            }
        )

    def _position_table(self, table: Tensor) -> Tensor:
        """As the layers are given it; DeBERTa's find their rows of it without a logarithm."""
        mpnet = self.shape.network == "bert"
        return _by_distance(table, self.shape.longest) if mpnet else table.detach()

    def forward(self, ids: Tensor, types: Tensor) -> tuple[Tensor, ...]:
        """Token ids and segments [n, length] -> what `outputs` names, each [n, ...]."""
        done: dict[Path, Tensor] = {}
        out: dict[str, Tensor] = {}
        heads: dict[str, Answer] = {}
        for task in self.plan.order():
            path = self.paths[task]
            for row in range(len(path)):
                here = path[: row + 1]
                if here not in done:
                    states = done[here[:-1]] if row else ids
                    done[here] = self._pass(here, states, ids, types)
            vector = out[vector_name(task)] = done[path]
            imported = {
                read.source: exported(
                    self.tasks[read.source], self.tasks[task], *heads[read.source]
                )
                for read in self.plan.reading(task)
                if read.source in heads
            }
            if task in self.joined:
                out |= {read_name(task, source): value for source, value in imported.items()}
            else:
                head = self.cells[Cell("head", task).key]
                heads[task] = head([vector], list(imported.values()), None)
                out[task] = heads[task][0]
        return tuple(out[name] for name in self.outputs)

    def _pass(self, path: Path, states: Tensor, ids: Tensor, types: Tensor) -> Tensor:
        """The last row of a path, from the states before it."""
        row, use = len(path) - 1, path[-1]
        n, length = ids.shape
        if use.cell is None:
            return states
        if use.cell.place == READ:
            if self._cls_only(path[:-1]):
                return states
            texts = states.view(n, length, self.shape.width)
            if use.cell.name == WORDS:
                return texts  # every token's: which begin a word, whoever runs the graph knows
            return texts.mean(1) if use.cell.name == "mean" else texts[:, 0]
        module = self.cells[use.cell.key]
        if isinstance(module, EmbeddingsModule):
            positions = torch.arange(length).repeat(n)
            out: Tensor = module(ids.flatten(), types.flatten(), positions, None)
            return out
        if not isinstance(module, LayerModule):
            vectors: Tensor = module(states)
            return vectors
        assert path[0].cell is not None
        key = path[0].cell.key
        layout = BucketLayout((length,), (self.biases[key],) if key in self.biases else (), texts=n)
        modules = [self.cells[cell.key] for cell, _ in use.adapters]
        adapters = [adapter for adapter in modules if isinstance(adapter, AdapterModule)]
        # The bias by position is the layer's own: adapters attend without it.
        segment = Segment(tuple(adapters), replace(layout, biases=()))
        added = SegmentAdapters(row, [segment]) if adapters else None
        rows: Tensor = module(states, layout, None, self._cls_only(path), added)
        return rows

    def _cls_only(self, path: Path) -> bool:
        """Whether all that come this way read only the first token of the last layer."""
        here = [task for task, other in self.paths.items() if other[: len(path)] == path]
        return len(path) > self.plan.layers and all(
            self.tasks[t].pooling not in ("mean", WORDS) for t in here
        )


class PairsModule(nn.Module):
    """From what was read of the two texts of twin pairs to those tasks' outputs."""

    def __init__(self, network: Network):
        super().__init__()
        self.plan, self.tasks = network.plan, network.tasks
        self.inputs = list(pairs_form(network)[0])
        self.outputs = [task for task in self.plan.order() if self.tasks[task].twin]
        keys = [Cell("head", task).key for task in self.outputs]
        self.cells = nn.ModuleDict({key: network.cells[key] for key in keys})

    def forward(self, vectors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """What `inputs` names, each [n, ...] -> what `outputs` names, each [n, ...]."""
        given = dict(zip(self.inputs, vectors, strict=True))
        heads: dict[str, Answer] = {}
        for task in self.outputs:
            imported: list[Tensor] = []
            for source in (read.source for read in self.plan.reading(task)):
                if self.tasks[source].paired:
                    value = exported(self.tasks[source], self.tasks[task], *heads[source])
                    imported.append(value)
                else:
                    imported += [given[f"{read_name(task, source)}.{side}"] for side in SIDES]
            both = [given[f"{vector_name(task)}.{side}"] for side in SIDES]
            heads[task] = self.cells[Cell("head", task).key](both, imported, None)
        return tuple(heads[task][0] for task in self.outputs)


@dataclass(frozen=True)
class BucketLayout(Layout):
    """Where `texts` texts of one length lie; both numbers may be symbols of a trace."""

    traced = True

    texts: int = 1

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        return (Bucket(self.texts, *self.lengths),)

    def on(self, device: torch.device) -> LayoutTensors:
        return BucketTensors(self, device)


class BucketTensors(LayoutTensors):
    def __init__(self, layout: BucketLayout, device: torch.device):
        super().__init__(layout.lengths, layout.bias_of, device)
        ((self.texts, self.length, _),) = layout.buckets

    @property
    def starts(self) -> Tensor:
        return torch.arange(self.texts) * self.length

    @property
    def positions(self) -> Tensor:
        return torch.arange(self.length).repeat(self.texts)


def _by_distance(table: Tensor, longest: int) -> Tensor:
    """MPNet's bias with a row for every distance there can be, so that none is in a bucket.

    The logarithm that chooses a bucket stands at whole numbers for some distances: another
    runtime's last bit would choose the next one.
    """
    distance = torch.arange(2 * longest)
    return table.detach()[position_bucket(torch.cat([distance, -distance]), len(table))]
