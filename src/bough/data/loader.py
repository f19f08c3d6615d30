"""What a training step learns from: examples drawn, split for accumulation, and packed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from bough.data.examples import Examples
from bough.data.packing import Batch, collate
from bough.data.tokens import Ints


@dataclass(frozen=True)
class MicroBatch:
    """Examples that are worked on together; several are accumulated into one step."""

    batches: tuple[Batch, ...]  # one of all tasks, or one of each task
    shares: Mapping[str, float]  # how much of each task's examples of the step it holds

    @property
    def tokens(self) -> int:
        return sum(batch.tokens for batch in self.batches)


class Loader:
    """Batches, ready for the network, of the examples that `draw` names for each step."""

    def __init__(
        self,
        examples: Mapping[str, Examples],
        draw: Callable[[], Mapping[str, Ints]],
        accumulate: int = 1,
    ):
        self.examples = examples
        self.draw = draw
        self.accumulate = accumulate

    def next(self, apart: bool) -> list[MicroBatch]:
        """The next step's examples; `apart`: those of each task in a batch of their own."""
        drawn = self.draw()
        cut = {task: np.array_split(numbers, self.accumulate) for task, numbers in drawn.items()}
        out = []
        for i in range(self.accumulate):
            chosen = {task: parts[i] for task, parts in cut.items() if len(parts[i])}
            if chosen:
                groups = [{task: part} for task, part in chosen.items()] if apart else [chosen]
                shares = {task: len(part) / len(drawn[task]) for task, part in chosen.items()}
                batches = tuple(collate(self.examples, group) for group in groups)
                out.append(MicroBatch(batches, shares))
        return out
