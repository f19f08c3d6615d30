"""Sequences packed end to end, without padding: what the encoder is given in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from bough.data.examples import CachedStates, Examples
from bough.data.tokens import Ints, Sequences, rows_of

TOKENS = 4096  # of a pass: enough for the processor, few enough for its caches and for memory


@dataclass(frozen=True)
class Pack:
    """Sequences ready for the encoder, in the order of the batch.

    Where the plan's first rows never learn, their states may be known: then `cached` has them,
    and the sequences go on from the plan's row `first`.
    """

    tokens: Tensor  # [tokens, 3 or 4]: id, segment, position; part of speech, if it is seen
    lengths: tuple[int, ...]
    words: tuple[tuple[int, ...], ...] = ()  # first tokens of each sequence's words, if any is read
    first: int = 0
    cached: tuple[tuple[int, CachedStates], ...] = ()  # number of the first sequence, states

    def to(self, device: torch.device) -> Pack:
        if self.tokens.device == device and not self.cached:
            return self
        return replace(
            self,
            tokens=self.tokens.to(device),
            cached=tuple((n, c._replace(rows=c.rows.to(device))) for n, c in self.cached),
        )

    @classmethod
    def of(cls, parts: Sequence[tuple[Sequences, Ints]]) -> Pack:
        """The chosen sequences of each part, part after part."""
        columns = 3 if all(sequences.tags is None for sequences, _ in parts) else 4
        places = [rows_of(sequences.bounds, chosen) for sequences, chosen in parts]
        packed = np.empty((sum(len(rows) for rows, _ in places), columns), np.int64)
        lengths: list[int] = []
        words: list[tuple[int, ...]] = []
        end = 0
        for (sequences, chosen), (rows, bounds) in zip(parts, places, strict=True):
            part = packed[end : end + len(rows)]
            end += len(rows)
            sizes = np.diff(bounds)
            part[:, 0] = sequences.ids[rows]
            part[:, 1] = sequences.types[rows]
            part[:, 2] = np.arange(len(rows)) - np.repeat(bounds[:-1], sizes)
            if sequences.tags is not None:
                part[:, 3] = sequences.tags[rows]
            lengths += sizes.tolist()
            words += _words(sequences, chosen)
        return cls(torch.from_numpy(packed), tuple(lengths), tuple(words) if any(words) else ())


def _words(sequences: Sequences, chosen: Ints) -> list[tuple[int, ...]]:
    if sequences.words is None:
        return [()] * len(chosen)
    index = sequences.words
    return [
        tuple(index.tokens[index.bounds[n] : index.bounds[n + 1]].tolist()) for n in chosen.tolist()
    ]


@dataclass(frozen=True)
class Batch:
    """A pack, and which of its sequences are whose examples: task -> [examples, 1 or 2]."""

    pack: Pack
    index: Mapping[str, Tensor]
    targets: Mapping[str, Tensor]
    taught: Mapping[str, Tensor] = field(default_factory=dict)  # of tasks that have a teacher
    labelled: Mapping[str, Tensor] = field(default_factory=dict)  # where some have no label

    @property
    def tokens(self) -> int:
        return sum(self.pack.lengths)


def collate(examples: Mapping[str, Examples], chosen: Mapping[str, Ints]) -> Batch:
    """The chosen examples of each task as one batch; a sequence that several of them read is there
    once, or as often as one of them has it."""
    first = {examples[task].first for task in chosen}
    if len(first) > 1:
        raise ValueError("either all tasks' states are known up to the same row, or none's")
    # Sequences -> (number, how often it was there before) -> place. Kept states are a task's own.
    packed: dict[object, dict[tuple[int, int], int]] = {}
    owners = {t: t if examples[t].cached else id(examples[t].sequences) for t in chosen}
    places: dict[str, list[int]] = {}
    for task, numbers in chosen.items():
        there, times = packed.setdefault(owners[task], {}), Counter[int]()
        places[task] = []
        for sequence in examples[task].index[numbers].reshape(-1).tolist():
            places[task].append(there.setdefault((sequence, times[sequence]), len(there)))
            times[sequence] += 1
    sizes = [len(there) for there in packed.values()]
    starts = dict(zip(packed, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
    parts: dict[object, tuple[Sequences, Ints]] = {}
    index = {}
    beside: dict[str, dict[str, Tensor]] = {"targets": {}, "taught": {}, "labelled": {}}
    cached: list[tuple[int, CachedStates]] = []
    for task, numbers in chosen.items():
        source, start = examples[task], starts[owners[task]]
        used = np.array([sequence for sequence, _ in packed[owners[task]]], np.int64)
        parts[owners[task]] = source.sequences, used
        cached += [(start, states.of(used)) for states in source.cached]
        index[task] = torch.tensor(places[task]).view(len(numbers), -1) + start
        for what, of_task in beside.items():
            known: Tensor | None = getattr(source, what)
            if known is not None:
                of_task[task] = known[torch.from_numpy(numbers)]
    pack = Pack.of(list(parts.values()))
    pack = replace(pack, first=first.pop() if first else 0, cached=tuple(cached))
    return Batch(pack, index, **beside)


def by_tokens(
    lengths: Ints, budget: int = TOKENS, kinds: Sequence[Hashable] | None = None
) -> list[Ints]:
    """All examples, long ones first, in parts of about `budget` tokens and of similar lengths.

    With `kinds`, one for each example, those of different kinds are in different parts.
    """
    parts: list[list[int]] = []
    latest: dict[Hashable, tuple[list[int], int]] = {}  # a kind's last part, and its tokens
    for number in np.argsort(-lengths, kind="stable").tolist():
        kind = None if kinds is None else kinds[number]
        part, total = latest.get(kind, ([], 0))
        size = int(lengths[number])
        if total and total + size > budget:
            part, total = [], 0
        if not part:
            parts.append(part)
        part.append(number)
        latest[kind] = part, total + size
    return [np.array(part, np.int64) for part in parts]


def packs(sequences: Sequences) -> Iterator[tuple[Ints, Pack]]:
    """All sequences in packs of similar lengths, each with its sequences' numbers."""
    for numbers in by_tokens(sequences.lengths):
        yield numbers, Pack.of([(sequences, numbers)])
