"""What a plan is made of: names in rows, adapters beside layers, heads that read other heads."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Names = tuple[str | None, ...]  # one per task, in task order; None: nothing here for this task
Kind = Literal["pal", "lowrank", "lora", "bottleneck"]

KINDS: tuple[Kind, ...] = ("pal", "lowrank", "lora", "bottleneck")
MATRICES = "qkvoif"  # query, key, value, output of the attention; into and out of the inner width


@dataclass(frozen=True)
class Adapter:
    """A small module beside the layers `first` to `last`, once per name."""

    kind: Kind
    size: int
    first: int
    last: int
    names: Names
    heads: int = 0  # pal only
    matrices: str = ""  # lora only: letters of MATRICES

    @property
    def place(self) -> str:
        """Where it stands; the heads are part of it when they are not the usual ones."""
        usual = self.kind != "pal" or self.heads == pal_heads(self.size, 12)
        form = f"x{self.heads}" * (not usual) + f":{self.matrices}" * bool(self.matrices)
        return f"{self.kind}:{self.size}{form}@{span(self.first, self.last)}"

    @property
    def label(self) -> str:
        """The place as the printed table says it."""
        return self.place.replace(":", " ").replace("@", " @ ")


@dataclass(frozen=True)
class Read:
    """One head reads another's output, and what of its gradient goes the other way.

    None: nothing. 0: the gradient passes that head, which stays as it is, into the trunk. More: it
    also moves that head, by this share.
    """

    source: str
    share: float | None = None

    @property
    def through(self) -> bool:
        """Whether the reader's gradient passes the head that it reads."""
        return self.share is not None

    @property
    def sign(self) -> str:
        """What stands behind `feed` in a plan's line."""
        return "" if self.share is None else f"~{self.share:g}" if self.share else "~"


@dataclass(frozen=True)
class ParsedPlan:
    """What a line says, row by row: the fields of a plan beside its tasks and layers."""

    embeddings: Names
    layer: tuple[Names, ...]
    pooler: Names
    late: tuple[Names, ...]
    adapters: tuple[Adapter, ...]
    reads: tuple[tuple[Read, ...], ...]
    frozen: int | None


def named(tasks: Sequence[str], labels: Iterable[Hashable]) -> Names:
    """Names of the groups of tasks with equal labels: "all", or the members in task order."""
    members: dict[Hashable, list[str]] = {}
    labels = tuple(labels)
    for task, label in zip(tasks, labels, strict=True):
        members.setdefault(label, []).append(task)
    names = {k: "all" if len(m) == len(tasks) else "+".join(m) for k, m in members.items()}
    return tuple(None if label is None else names[label] for label in labels)


def pal_heads(size: int, heads: int) -> int:
    """The most attention heads, up to the trunk's, that divide a PAL of this size.

    0 for a large size that only very few divide: 326 is a slip, and wants to be 324.
    """
    most = next(h for h in range(min(size, heads), 0, -1) if size % h == 0)
    return most if size < 16 or most >= min(4, heads) else 0


def span(first: int, last: int) -> str:
    """Layers as text: 4-6, or 5."""
    return f"{first}-{last}" if last > first else f"{first}"


def adapter_order(a: Adapter) -> tuple[int, int, int, int, str, int]:
    """Where an adapter stands in a plan, however the line put it."""
    return (KINDS.index(a.kind), a.size, a.first, a.last, a.matrices, a.heads)
