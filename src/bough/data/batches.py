"""Texts to tokens, once; then which examples come next, and packed without padding.

A *sequence* is one run of tokens through the encoder: a text, a joint pair, or one text of a twin
pair. A *batch* packs the sequences of all its examples, of all tasks, end to end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from bough.data.rows import Rows
from bough.recipe.tasks import Task

Ints = NDArray[np.int64]
Text = str | tuple[str, str]


def text_of(parts: Sequence[str]) -> Text:
    """The text, or the pair, that these one or two parts make."""
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])


@dataclass(frozen=True)
class Sequences:
    """Token ids and segment ids of many sequences, end to end."""

    ids: NDArray[np.int32]
    types: NDArray[np.int8]
    bounds: Ints  # sequence i is ids[bounds[i] : bounds[i + 1]]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def lengths(self) -> Ints:
        return np.diff(self.bounds)

    def of(self, chosen: Ints) -> Sequences:
        """The chosen sequences alone."""
        sizes = self.lengths[chosen]
        rows = _ranges(self.bounds[chosen], sizes)
        bounds = np.concatenate([np.zeros(1, np.int64), sizes.cumsum()])
        return Sequences(self.ids[rows], self.types[rows], bounds)


def tokenise(
    texts: Sequence[tuple[str, ...]], tokenizer: Tokenizer, longest: int
) -> tuple[Sequences, NDArray[np.bool_]]:
    """Each text, or joint pair, as one sequence; and which were cut to the longest length.

    A pair that is too long loses tokens from the longer text first.
    """
    tokenizer.enable_truncation(longest, strategy="longest_first")
    encodings = tokenizer.encode_batch_fast([text_of(parts) for parts in texts])
    lengths = np.fromiter((len(e.ids) for e in encodings), np.int64, len(encodings))
    bounds = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
    ids = np.empty(bounds[-1], np.int32)
    types = np.empty(bounds[-1], np.int8)
    for encoding, start, end in zip(encodings, bounds, bounds[1:], strict=False):
        ids[start:end] = encoding.ids
        types[start:end] = encoding.type_ids
    cut = np.fromiter((bool(e.overflowing) for e in encodings), np.bool_, len(encodings))
    return Sequences(ids, types, bounds), cut


class CachedStates(NamedTuple):
    """The states of sequences after some rows of the plan, for the task uses that share them."""

    task_uses: tuple[tuple[str, str], ...]  # (task, consumer), as in the model's routing
    origin: tuple[str, str]  # what gave them their position bias, as in the forward pass
    rows: Tensor  # [all rows, d]
    bounds: Ints  # sequence i is rows[bounds[i] : bounds[i + 1]]

    def of(self, chosen: Ints) -> CachedStates:
        """The rows of the chosen sequences."""
        sizes = np.diff(self.bounds)[chosen]
        rows = self.rows[torch.from_numpy(_ranges(self.bounds[chosen], sizes))]
        bounds = np.concatenate([np.zeros(1, np.int64), sizes.cumsum()])
        return self._replace(rows=rows, bounds=bounds)


@dataclass(frozen=True)
class Pack:
    """Sequences ready for the encoder, in the order of the batch.

    Where the plan's first rows never learn, their states may be known: then `reached` has them,
    and the sequences go on from the plan's row `first`.
    """

    tokens: Tensor  # [tokens, 3]: id, segment, position
    lengths: tuple[int, ...]
    first: int = 0
    reached: tuple[tuple[int, CachedStates], ...] = ()  # number of the first sequence, states

    def to(self, device: torch.device) -> Pack:
        return replace(
            self,
            tokens=self.tokens.to(device),
            reached=tuple((n, r._replace(rows=r.rows.to(device))) for n, r in self.reached),
        )

    @classmethod
    def of(cls, parts: Sequence[tuple[Sequences, Ints]]) -> Pack:
        """The chosen sequences of each part, part after part."""
        ids, types, lengths = [], [], []
        for sequences, chosen in parts:
            size = sequences.lengths[chosen]
            rows = _ranges(sequences.bounds[chosen], size)
            ids.append(sequences.ids[rows])
            types.append(sequences.types[rows])
            lengths.append(size)
        every = np.concatenate(lengths) if lengths else np.zeros(0, np.int64)
        tokens = np.stack(
            [
                np.concatenate(ids).astype(np.int64),
                np.concatenate(types).astype(np.int64),
                _ranges(np.zeros(len(every), np.int64), every),
            ],
            axis=1,
        )
        return cls(torch.from_numpy(tokens), tuple(every.tolist()))


def _ranges(starts: Ints, sizes: Ints) -> Ints:
    """start, start + 1, ... of each size, one after another."""
    before: Ints = sizes.cumsum() - sizes
    return np.arange(sizes.sum(), dtype=np.int64) + np.repeat(starts - before, sizes)


@dataclass(frozen=True)
class Batch:
    """A pack, and which of its sequences are whose examples: task -> [examples, 1 or 2]."""

    pack: Pack
    seats: Mapping[str, Tensor]
    targets: Mapping[str, Tensor]

    @property
    def tokens(self) -> int:
        return sum(self.pack.lengths)


@dataclass(frozen=True)
class Examples:
    """One task's split, tokenised: example i is the sequences `seats[i]`."""

    sequences: Sequences
    seats: Ints  # [examples, 1], or [examples, 2] for twin pairs
    targets: Tensor | None  # class indices, or values in the label's own range
    cut: int  # sequences that were longer than the encoder or the recipe allows
    first: int = 0  # the plan's row before which `reached` has the states
    reached: tuple[CachedStates, ...] = ()

    @classmethod
    def of(cls, task: Task, rows: Rows, tokenizer: Tokenizer, longest: int) -> Examples:
        apart: list[tuple[str, ...]] = [(text,) for pair in rows.texts for text in pair]
        sequences, cut = tokenise(apart if task.twin else rows.texts, tokenizer, longest)
        seats = np.arange(len(sequences)).reshape(-1, 2 if task.twin else 1)
        kind = torch.long if task.kind == "classify" else torch.float32
        targets = None if rows.labels is None else torch.tensor(rows.labels, dtype=kind)
        return cls(sequences, seats, targets, int(cut.sum()))

    def __len__(self) -> int:
        return len(self.seats)

    @property
    def lengths(self) -> Ints:
        """Tokens of each example."""
        lengths: Ints = self.sequences.lengths[self.seats].sum(1)
        return lengths

    def sample(self, most: int | None) -> Examples:
        """No more than so many examples, always the same ones, and no sequences but theirs."""
        if most is None or len(self) <= most:
            return self
        kept = np.sort(np.random.default_rng(0).permutation(len(self))[:most])
        targets = None if self.targets is None else self.targets[torch.from_numpy(kept)]
        used, seats = np.unique(self.seats[kept], return_inverse=True)
        return replace(
            self,
            sequences=self.sequences.of(used),
            seats=seats.reshape(most, -1),
            targets=targets,
            reached=tuple(states.of(used) for states in self.reached),
        )


def parts(chosen: Mapping[str, Ints], number: int) -> list[dict[str, Ints]]:
    """A step's examples in parts that are worked on one after the other."""
    cut = {name: np.array_split(which, number) for name, which in chosen.items()}
    every = ({name: own[i] for name, own in cut.items() if len(own[i])} for i in range(number))
    return [part for part in every if part]


def collate(examples: Mapping[str, Examples], chosen: Mapping[str, Ints]) -> Batch:
    """The chosen examples of each task as one batch."""
    parts, seats, targets = [], {}, {}
    reached: list[tuple[int, CachedStates]] = []
    at = 0
    for task, which in chosen.items():
        own = examples[task]
        used = own.seats[which]
        parts.append((own.sequences, used.reshape(-1)))
        reached += [(at, states.of(used.reshape(-1))) for states in own.reached]
        seats[task] = torch.arange(at, at + used.size).view(used.shape)
        at += used.size
        if own.targets is not None:
            targets[task] = own.targets[torch.from_numpy(which)]
    first = {examples[task].first for task in chosen}
    if len(first) > 1:
        raise ValueError("either all tasks' states are known up to the same row, or none's")
    pack = replace(Pack.of(parts), first=first.pop() if first else 0, reached=tuple(reached))
    return Batch(pack, seats, targets)


class ExampleSampler:
    """One task's examples in the order they are dealt: shuffled anew for every pass.

    With a window of w batches, each pass is cut into stretches of w batches whose examples are
    sorted by length and dealt as whole batches in random order: a batch then has texts of similar
    length (fast), while which texts meet in a batch still changes every pass. All state is the
    generator, the order of this pass and the place in it.
    """

    def __init__(self, lengths: Ints, batch: int, window: int, seed: Sequence[int]):
        if not len(lengths):
            raise ValueError("there are no examples to deal")
        self.lengths = lengths
        self.batch = batch
        self.window = window
        self.rng = np.random.Generator(np.random.PCG64(list(seed)))
        self.order = self._shuffle(0)
        self.at = 0
        self.seen = 0

    @property
    def passes(self) -> float:
        """How often every example has been seen, in the mean."""
        return self.seen / len(self.lengths)

    def deal(self, count: int) -> Ints:
        """The next `count` examples, into the next passes if need be."""
        taken = []
        self.seen += count
        while count:
            if self.at == len(self.order):
                self.order, self.at = self._shuffle(count % self.batch), 0
            part = self.order[self.at : self.at + count]
            taken.append(part)
            self.at += len(part)
            count -= len(part)
        return np.concatenate(taken) if taken else np.zeros(0, np.int64)

    def _shuffle(self, missing: int) -> Ints:
        """A new order; its first `missing` examples complete the batch that the last pass began.

        With that, and a short batch last, whole batches stay whole from pass to pass.
        """
        order = self.rng.permutation(len(self.lengths))
        if self.window < 2:
            return order
        out = [order[:missing]]
        stretch = self.window * self.batch
        for start in range(missing, len(order), stretch):
            part = order[start : start + stretch]
            part = part[np.argsort(self.lengths[part], kind="stable")]
            batches = [part[i : i + self.batch] for i in range(0, len(part), self.batch)]
            whole = len(part) // self.batch
            out += [batches[i] for i in self.rng.permutation(whole)] + batches[whole:]
        return np.concatenate(out)

    def state(self) -> dict[str, Any]:
        return {
            "rng": self.rng.bit_generator.state,
            "order": torch.from_numpy(self.order.copy()),
            "at": self.at,
            "seen": self.seen,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.rng.bit_generator.state = state["rng"]
        self.order = state["order"].numpy().copy()
        self.at, self.seen = state["at"], state["seen"]


def by_tokens(lengths: Ints, budget: int) -> list[Ints]:
    """All examples, long ones first, in parts of about `budget` tokens and of similar lengths."""
    order = np.argsort(-lengths, kind="stable")
    parts: list[Ints] = []
    start = total = 0
    for i, n in enumerate(lengths[order]):
        if total and total + n > budget:
            parts.append(order[start:i])
            start, total = i, 0
        total += int(n)
    if start < len(order):
        parts.append(order[start:])
    return parts
