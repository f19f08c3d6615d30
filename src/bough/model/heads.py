"""From a text's vector to a task's outputs: pooling is over, pair features and the head follow.

A head may read other tasks' outputs (progressive sharing): those arrive as `imported`, already cut
off from the graph or not as the plan says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bough.errors import UserError
from bough.model.dropout import DropoutGenerator, drop
from bough.model.losses import output_form
from bough.recipe.tasks import Task

FUSED = 64  # width of the space in which imported outputs are attended
EDGE = 1e-6  # how near a share may come to 0 and 1, whose logits would be infinite


class Head(nn.Module):
    """One task's own output part: one or two vectors [n, d] -> [n, task.outputs]."""

    def __init__(self, task: Task, width: int, imports: Sequence[int] = ()):
        super().__init__()
        self.task = task
        self.norm = nn.LayerNorm(width, eps=1e-12) if task.norm else None
        self.project = nn.Linear(width, width) if task.project else None
        self.kinds = feature_sizes(task, width)
        size = sum(self.kinds)
        self.cosine = Cosine(task) if task.head.startswith("cosine") else None
        if self.cosine is not None:
            # A cosine head gives one number; what it reads from other tasks is added to it.
            self.fusion = None
            self.output = nn.Linear(sum(imports), 1) if imports else None
            self.hidden: nn.ModuleList | None = None
        else:
            attend = bool(imports) and task.fusion == "attention"
            self.fusion = Fusion(size, imports) if attend else None
            size += FUSED if attend else sum(imports)
            depth = task.depth if task.head == "mlp" else 1
            widths = [size, *[task.width] * (depth - 1)]
            self.hidden = nn.ModuleList(Dense(i, o) for i, o in pairwise(widths))
            self.output = nn.Linear(widths[-1], task.outputs)

    def forward(
        self,
        vectors: Sequence[Tensor],
        imported: Sequence[Tensor],
        dropout: DropoutGenerator | None,
    ) -> tuple[Tensor, Tensor]:
        """The outputs, and the hidden vector that they were read from."""
        rate = self.task.dropout
        if self.norm is not None:
            vectors = [self.norm(v) for v in vectors]
        if self.project is not None:
            vectors = [self.project(drop(v, dropout, rate)) for v in vectors]
        if self.cosine is not None:
            score = self.cosine(*vectors)
            if self.output is not None:
                score = score + self.output(torch.cat(list(imported), 1))
            return score, torch.cat(list(vectors), 1)
        x = drop(features(self.task, vectors), dropout, rate)
        if imported:
            x = torch.cat([x, *([self.fusion(x, imported)] if self.fusion else imported)], 1)
        assert self.hidden is not None
        assert self.output is not None
        for dense in self.hidden:
            x = drop(dense(x), dropout, rate)
        return self.output(x), x


class Dense(nn.Module):
    """ReLU(W x + b): a hidden layer of a head, and a late layer before the heads (system A)."""

    def __init__(self, width: int, out: int):
        super().__init__()
        self.linear = nn.Linear(width, out)

    def init_weights(self, generator: torch.Generator) -> None:
        """After fresh weights were drawn: start at the scale that ReLU keeps."""
        nn.init.kaiming_normal_(self.linear.weight, nonlinearity="relu", generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.linear(x))


class Cosine(nn.Module):
    """How alike two vectors are, as an output.

    `cosine` has a learned scale and bias. The two printed forms have none: `cosine-linear` is
    (cos + 1) / 2, and `cosine-sigmoid` is sigma(cos), which of a range 0-5 reaches 1.34-3.66 only.
    """

    def __init__(self, task: Task):
        super().__init__()
        self.form = task.head
        self.as_logit = task.loss_name == "bce"
        if self.form == "cosine":
            self.scale = nn.Parameter(torch.empty(1))
            self.bias = nn.Parameter(torch.empty(1))

    def init_weights(self) -> None:
        """Opposite vectors give the lowest answer and equal ones the highest."""
        if self.form == "cosine":
            scale, bias = (4.0, 0.0) if self.as_logit else (0.5, 0.5)
            nn.init.constant_(self.scale, scale)
            nn.init.constant_(self.bias, bias)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        cos = F.cosine_similarity(a, b, dim=1).unsqueeze(1)
        if self.form == "cosine":
            return self.scale * cos + self.bias
        share = (cos + 1) / 2 if self.form == "cosine-linear" else torch.sigmoid(cos)
        return torch.logit(share, eps=EDGE) if self.as_logit else share


class Fusion(nn.Module):
    """A small attention: the own features ask, the imported outputs answer."""

    def __init__(self, size: int, imports: Sequence[int]):
        super().__init__()
        self.ask = nn.Linear(size, FUSED)
        self.keys = nn.ModuleList(nn.Linear(n, FUSED) for n in imports)
        self.values = nn.ModuleList(nn.Linear(n, FUSED) for n in imports)

    def forward(self, x: Tensor, imported: Sequence[Tensor]) -> Tensor:
        query = self.ask(x)
        keys = torch.stack([k(i) for k, i in zip(self.keys, imported, strict=True)], 1)
        values = torch.stack([v(i) for v, i in zip(self.values, imported, strict=True)], 1)
        shares = torch.softmax((keys @ query.unsqueeze(2)).squeeze(2) * FUSED**-0.5, 1)
        return (shares.unsqueeze(1) @ values).squeeze(1)


def features(task: Task, vectors: Sequence[Tensor]) -> Tensor:
    """What the head sees of one text, or of the two texts of a twin pair."""
    if len(vectors) == 1:
        return vectors[0]
    a, b = vectors
    seen = {
        "concat": lambda: torch.cat([a, b], 1),
        "sum": lambda: a + b,
        "product": lambda: a * b,
        "difference": lambda: (a - b).abs(),
        "cosine": lambda: F.cosine_similarity(a, b, dim=1).unsqueeze(1),
    }
    return torch.cat([seen[name]() for name in task.features], 1)


def feature_sizes(task: Task, width: int) -> list[int]:
    """Of each kind of feature that the head sees, how many numbers it is."""
    if not task.twin:
        return [width]
    sizes = {"concat": 2 * width, "cosine": 1}
    return [sizes.get(name, width) for name in task.features]


def feature_size(task: Task, width: int) -> int:
    return sum(feature_sizes(task, width))


def hidden_size(task: Task, width: int, imports: Sequence[int] = ()) -> int:
    """Width of what a reader with `reads_as: hidden` gets from this task's head."""
    if task.head.startswith("cosine"):
        return 2 * width
    if task.head == "mlp" and task.depth > 1:
        return task.width
    fused = FUSED if imports and task.fusion == "attention" else sum(imports)
    return feature_size(task, width) + fused


def import_sizes(reader: str, sources: Sequence[str], tasks: Mapping[str, Task], width: int,
                 imports: Mapping[str, Sequence[int]]) -> list[int]:  # fmt: skip
    """Widths of what `reader` imports from each source, one entry per reading.

    A single-text source is read once on a joint pair and once on each text of a twin pair; a
    pair source needs a reader of the same form. `imports` has what the sources import themselves.
    """
    task = tasks[reader]
    for name in (reader, *sources) if sources else ():
        if tasks[name].kind == "tag":
            raise UserError(
                f"task {name!r} answers word by word and the others once for a text, so it can "
                "neither read them nor be read; leave it out of `feed`"
            )
    if sources and task.head.startswith("cosine") and task.fusion == "attention":
        raise UserError(
            f"task {reader!r}: head {task.head!r} adds what it reads to its own number and cannot "
            "use fusion 'attention'; take head linear or mlp, or fusion concat"
        )
    sizes = []
    for source in sources:
        other = tasks[source]
        if other.paired and not task.paired:
            raise UserError(
                f"task {reader!r} judges one text and cannot read {source!r}, which judges pairs; "
                f"feed {reader}>{source} instead"
            )
        if other.paired and other.twin != task.twin:
            mine, its = ("twin" if t.twin else "joint" for t in (task, other))
            raise UserError(
                f"task {reader!r} (pair: {mine}) cannot read {source!r} (pair: {its}); "
                "give both the same `pair`"
            )
        hidden = task.reads_as == "hidden"
        size = hidden_size(other, width, imports[source]) if hidden else other.outputs
        sizes += [size] * (2 if task.twin and not other.paired else 1)
    return sizes


def exported(task: Task, reader: Task, outputs: Tensor, hidden: Tensor) -> Tensor:
    """What `reader` gets of `task`'s head."""
    if reader.reads_as == "hidden":
        return hidden
    return outputs if reader.reads_as == "logits" else output_form(task).shares(outputs)
