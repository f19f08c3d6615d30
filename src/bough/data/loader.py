"""What a training step learns from: rows drawn, shared out among processes, and packed.

All processes draw the same rows and each takes its own, so that nobody has to be told; by the
shares that go with them, their parts of a step add up to the whole like those of accumulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bough.data.examples import Examples
from bough.data.packing import Batch, collate
from bough.data.tokens import Ints
from bough.distributed import ALONE, Processes

OVERLAP = 0.5  # of the rows of the task that has fewer: then two tasks are drawn together


@dataclass(frozen=True)
class RowGroup:
    """Rows that are drawn together: one task's examples, or those of a table in which several
    tasks have labels. One pass over a row's text then serves all of its labels."""

    lengths: Ints  # tokens of each row
    places: Mapping[str, Ints]  # task -> its example in each row, -1 where it has none

    def __len__(self) -> int:
        return len(self.lengths)

    def of(self, rows: Ints) -> dict[str, Ints]:
        """The examples of each task in these rows; tasks without any are left out."""
        found = {task: places[rows] for task, places in self.places.items()}
        chosen = {task: numbers[numbers >= 0] for task, numbers in found.items()}
        return {task: numbers for task, numbers in chosen.items() if len(numbers)}


def row_groups(examples: Mapping[str, Examples]) -> dict[str, RowGroup]:
    """The tasks by what they are drawn with, under their names: `mood`, `topic+mood`.

    Tasks whose labels are in other rows of a table gain nothing from being drawn together, and
    would have fewer examples in a step than it is meant to take.
    """
    groups: list[list[str]] = []
    for task, source in examples.items():
        for group in groups:
            if examples[group[0]].sequences is not source.sequences:
                continue
            rows, there = _begun([source]), _begun([examples[other] for other in group])
            least = OVERLAP * min(rows.sum(), there.sum())
            if (rows & there).sum() >= least > 0:
                group.append(task)
                break
        else:
            groups.append([task])
    return {"+".join(group): _group({task: examples[task] for task in group}) for group in groups}


def _group(examples: Mapping[str, Examples]) -> RowGroup:
    number = _begun(list(examples.values())).cumsum() - 1  # of the row that a sequence begins
    lengths = np.zeros(number[-1] + 1, np.int64)
    places = {}
    for task, source in examples.items():
        at = number[source.index[:, 0]]
        places[task] = np.full(len(lengths), -1)
        places[task][at] = np.arange(len(source))
        lengths[at] = source.lengths
    return RowGroup(lengths, places)


def _begun(examples: Sequence[Examples]) -> NDArray[np.bool_]:
    """Which sequences are the first of some example's, of tasks that have theirs in common."""
    there = np.zeros(len(examples[0].sequences), np.bool_)
    for source in examples:
        there[source.index[:, 0]] = True
    return there


@dataclass(frozen=True)
class MicroBatch:
    """Examples that are in memory together; several are accumulated into one step."""

    batches: tuple[Batch, ...]  # one of all rows, or one of each group; none without an own example
    shares: Mapping[str, float]  # how much of each task's examples of the step it holds
    own: Mapping[str, float]  # and of those that all processes hold in this micro-batch

    @property
    def tokens(self) -> int:
        return sum(batch.tokens for batch in self.batches)


class Loader:
    """Batches, ready for the network, of the rows that `draw` names for each step."""

    def __init__(
        self,
        examples: Mapping[str, Examples],
        draw: Callable[[], Mapping[str, Ints]],
        accumulate: int = 1,
        processes: Processes = ALONE,
    ):
        self.examples = examples
        self.groups = row_groups(examples)
        self.draw = draw
        self.accumulate = accumulate
        self.processes = processes

    def next(self, apart: bool, most_tokens: int | None = None) -> list[MicroBatch]:
        """This process's rows of the next step; `apart`: each group's in a batch of its own.

        With `most_tokens` groups are in a micro-batch together as long as they have no more: then
        the longest texts of all tasks in one step take no more memory than other steps do.
        """
        drawn = self.draw()
        cut = {group: np.array_split(rows, self.accumulate) for group, rows in drawn.items()}
        whole = self._sizes(drawn)
        out = []
        for i in range(self.accumulate):
            everywhere = {group: parts[i] for group, parts in cut.items() if len(parts[i])}
            if everywhere:
                dealt = {
                    group: self.processes.share(part, turn)
                    for turn, (group, part) in enumerate(everywhere.items(), i)
                }
                for together in self._together(dealt, most_tokens):
                    part = {group: dealt[group] for group in together}
                    here = self._sizes(part)
                    all_processes = self._sizes({group: everywhere[group] for group in together})
                    shares = {task: size / whole[task] for task, size in here.items()}
                    own = {task: here.get(task, 0) / size for task, size in all_processes.items()}
                    out.append(MicroBatch(self._packed(part, apart), shares, own))
        return out

    def _together(self, rows: Mapping[str, Ints], most_tokens: int | None) -> list[list[str]]:
        """The groups by micro-batch, in their order."""
        if most_tokens is None:
            return [[*rows]]
        parts: list[list[str]] = []
        tokens = 0
        for group, chosen in rows.items():
            size = int(self.groups[group].lengths[chosen].sum())
            if not parts or tokens + size > most_tokens:
                parts.append([])
                tokens = 0
            parts[-1].append(group)
            tokens += size
        return parts

    def _packed(self, rows: Mapping[str, Ints], apart: bool) -> tuple[Batch, ...]:
        each = [self.groups[group].of(chosen) for group, chosen in rows.items()]
        batches = [each_task for each_task in each if each_task]
        if not apart and batches:
            batches = [_joined(batches)]
        return tuple(collate(self.examples, chosen) for chosen in batches)

    def _sizes(self, rows: Mapping[str, Ints]) -> dict[str, int]:
        """How many examples of each task these rows are."""
        chosen = _joined(self.groups[group].of(part) for group, part in rows.items())
        return {task: len(numbers) for task, numbers in chosen.items()}


def _joined(chosen: Iterable[Mapping[str, Ints]]) -> dict[str, Ints]:
    return {task: numbers for part in chosen for task, numbers in part.items()}
