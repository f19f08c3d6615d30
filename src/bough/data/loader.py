"""What a training step learns from: examples drawn, shared out among processes, and packed.

All processes draw the same examples and each takes its own, so that nobody has to be told; by the
shares that go with them, their parts of a step add up to the whole like those of accumulation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from bough.data.examples import Examples
from bough.data.packing import Batch, collate
from bough.data.tokens import Ints
from bough.distributed import ALONE, Processes


@dataclass(frozen=True)
class MicroBatch:
    """Examples that are worked on together; several are accumulated into one step."""

    batches: tuple[Batch, ...]  # one of all tasks, or one of each task; none without an own example
    shares: Mapping[str, float]  # how much of each task's examples of the step it holds
    own: Mapping[str, float]  # and of those that all processes hold in this micro-batch

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
        processes: Processes = ALONE,
    ):
        self.examples = examples
        self.draw = draw
        self.accumulate = accumulate
        self.processes = processes

    def next(self, apart: bool) -> list[MicroBatch]:
        """This process's examples of the next step; `apart`: each task's in a batch of its own."""
        drawn = self.draw()
        cut = {task: np.array_split(numbers, self.accumulate) for task, numbers in drawn.items()}
        out = []
        for i in range(self.accumulate):
            everywhere = {task: parts[i] for task, parts in cut.items() if len(parts[i])}
            if everywhere:
                dealt = {
                    task: self.processes.share(part, turn)
                    for turn, (task, part) in enumerate(everywhere.items(), i)
                }
                chosen = {task: part for task, part in dealt.items() if len(part)}
                groups = [{task: part} for task, part in chosen.items()] if apart else [chosen]
                batches = tuple(collate(self.examples, group) for group in groups if group)
                shares = {task: len(part) / len(drawn[task]) for task, part in chosen.items()}
                own = {task: len(dealt[task]) / len(part) for task, part in everywhere.items()}
                out.append(MicroBatch(batches, shares, own))
        return out
