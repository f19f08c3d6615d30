"""One task's examples as tokens, and in which order they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from bough.data.checked_rows import Rows
from bough.data.prepared.table import PreparedTable
from bough.data.prepared.task_tables import plain_tokenizer
from bough.data.tokens import Ints, Sequences, WordIndex, rows_of, tokenise
from bough.parts_of_speech.taggers import Tagger
from bough.recipe.tasks import Task
from bough.spans.schemes import NO_WORD, Scheme, Span
from bough.spans.words import as_objects


class CachedStates(NamedTuple):
    """The states of sequences at a row of the plan, known from an earlier pass."""

    task_uses: tuple[tuple[str, str], ...]  # who goes on from them: (task, consumer)
    origin: tuple[str, str]
    rows: Tensor  # [all rows, d]
    bounds: Ints  # sequence i is rows[bounds[i] : bounds[i + 1]]

    def of(self, chosen: Ints) -> CachedStates:
        """The states of the chosen sequences."""
        rows, bounds = rows_of(self.bounds, chosen)
        return self._replace(rows=self.rows[torch.from_numpy(rows)], bounds=bounds)


@dataclass(frozen=True)
class Examples:
    """One task's split, tokenised: example i is the sequences `index[i]`."""

    sequences: Sequences
    index: Ints  # [examples, 1], or [examples, 2] for twin pairs
    targets: Tensor | None  # as the loss takes them, one row per example
    cut: int  # sequences that were longer than the encoder or the recipe allows
    first: int = 0  # the plan's row whose states `cached` has
    cached: tuple[CachedStates, ...] = ()
    spans: tuple[tuple[Span, ...], ...] | None = None  # what a tag task's answers are held against
    words: WordIndex | None = None  # a tag task's, example by example
    taught: Tensor | None = None  # [examples, classes or 1]: what the task's teachers answer
    labelled: Tensor | None = None  # which have a label, where not all do

    @classmethod
    def of(
        cls,
        task: Task,
        rows: Rows,
        tokenizer: Tokenizer,
        longest: int,
        tagger: Tagger | None = None,
    ) -> Examples:
        alone = replace(rows, lines=list(range(len(rows))))
        return examples_of({"": task}, {"": alone}, tokenizer, longest, tagger)[""]

    def __len__(self) -> int:
        return len(self.index)

    @property
    def truth(self) -> NDArray[Any] | None:
        """What the answers are held against, one per example."""
        if self.spans is not None:
            return as_objects(self.spans)
        return None if self.targets is None else self.targets.numpy()

    @property
    def out_of_reach(self) -> int:
        """Spans that no answer can give back: they end inside a word, or behind what is read."""
        if self.spans is None or self.words is None:
            return 0
        return sum(self.words.words(n).in_words(own)[1] for n, own in enumerate(self.spans))

    @property
    def lengths(self) -> Ints:
        """Tokens of each example."""
        lengths: Ints = self.sequences.lengths[self.index].sum(1)
        return lengths

    def with_unlabelled(self, others: Examples) -> Examples:
        """These and others without labels, whose targets mean nothing."""
        assert self.targets is not None
        assert not self.cached
        assert not others.cached
        nothing = torch.zeros(len(others), *self.targets.shape[1:], dtype=self.targets.dtype)
        known = torch.arange(len(self) + len(others)) < len(self)
        return replace(
            self,
            sequences=self.sequences.followed_by(others.sequences),
            index=np.concatenate([self.index, others.index + len(self.sequences)]),
            targets=torch.cat([self.targets, nothing]),
            cut=self.cut + others.cut,
            labelled=known,
        )

    @property
    def labels(self) -> Tensor | None:
        """The targets of those that have a label."""
        if self.targets is None or self.labelled is None:
            return self.targets
        return self.targets[self.labelled]

    def sample(self, most: int | None) -> Examples:
        """No more than so many examples, always the same ones, and no sequences but theirs."""
        if most is None or len(self) <= most:
            return self
        return self.of_numbers(np.sort(np.random.default_rng(0).permutation(len(self))[:most]))

    def of_numbers(self, kept: Ints) -> Examples:
        """These examples, and no sequences but theirs."""
        chosen = torch.from_numpy(kept)
        used, index = np.unique(self.index[kept], return_inverse=True)
        return replace(
            self,
            sequences=self.sequences.of(used),
            index=index.reshape(len(kept), -1),
            targets=None if self.targets is None else self.targets[chosen],
            spans=None if self.spans is None else tuple(self.spans[i] for i in kept),
            words=None if self.words is None else self.words.of(kept),
            cached=tuple(states.of(used) for states in self.cached),
            taught=None if self.taught is None else self.taught[chosen],
            labelled=None if self.labelled is None else self.labelled[chosen],
        )


def output_rows(examples: Examples) -> int:
    """Rows of a head's outputs for all examples: one for each, or for each word."""
    return len(examples) if examples.words is None else len(examples.words.tokens)


def output_places(examples: Examples, chosen: Ints) -> Tensor:
    """Which of these rows are the chosen examples'."""
    words = examples.words
    return torch.from_numpy(chosen if words is None else rows_of(words.bounds, chosen)[0])


def examples_of(
    tasks: Mapping[str, Task],
    rows: Mapping[str, Rows],
    tokenizer: Tokenizer,
    longest: int,
    tagger: Tagger | None = None,
) -> dict[str, Examples]:
    """The examples of tasks that read the same columns of one table: its texts are tokenised once,
    and each task has those that it has labels for."""
    twin = next(iter(tasks.values())).twin
    table = next(iter(rows.values())).table
    known = tagger is None and all(part.table is table for part in rows.values())
    if known and table and table.tokens_of == (plain_tokenizer(tokenizer), longest, twin):
        return {name: _prepared(tasks[name], rows[name], table) for name in tasks}
    lines = sorted({line for part in rows.values() for line in part.lines})
    place = {line: number for number, line in enumerate(lines)}
    texts: list[tuple[str, ...]] = [()] * len(lines)
    tagging = any(task.kind == "tag" for task in tasks.values())
    # A tag task has its texts as they are written, blanks and all.
    for name in sorted(tasks, key=lambda name: tasks[name].kind == "tag"):
        part = rows[name]
        for line, parts in zip(part.lines, part.texts, strict=True):
            texts[place[line]] = parts
    apart: list[tuple[str, ...]] = [(text,) for pair in texts for text in pair]
    sequences, cut = tokenise(apart if twin else texts, tokenizer, longest, tagging, tagger)
    every = np.arange(len(sequences)).reshape(-1, 2 if twin else 1)
    out = {}
    for name, task in tasks.items():
        part = rows[name]
        index = every[[place[line] for line in part.lines]]
        words: WordIndex | None = None
        if task.kind == "tag":
            assert sequences.words is not None
            words = sequences.words.of(index[:, 0])
        targets = None if part.labels is None else _targets(task, part.labels, words)
        spans = None if words is None or part.labels is None else tuple(part.labels)
        lost = int(cut[index].sum())
        out[name] = Examples(sequences, index, targets, lost, spans=spans, words=words)
    return out


def _prepared(task: Task, rows: Rows, table: PreparedTable) -> Examples:
    """Rows of a table whose texts were tokenised as they were read."""
    assert table.sequences is not None
    width = 2 if task.twin else 1
    numbers = np.arange(len(rows)) if rows.numbers is None else rows.numbers
    index = numbers[:, None] * width + np.arange(width)
    targets = None if rows.labels is None else _targets(task, rows.labels, None)
    made = Examples(table.sequences, index, targets, int(table.cut[index].sum()))
    return made.of_numbers(np.arange(len(made))) if rows.unused else made


def _targets(task: Task, labels: Sequence[Any], words: WordIndex | None) -> Tensor:
    """The labels as a loss takes them, an example each."""
    match task.kind:
        case "classify" | "ordinal":
            return torch.tensor(np.asarray(labels), dtype=torch.long)
        case "multilabel":
            targets = torch.zeros(len(labels), task.classes)
            for row, places in enumerate(labels):
                targets[row, list(places)] = 1
            return targets
        case "regress":
            return torch.tensor(np.asarray(labels), dtype=torch.float32)
        case "tag":
            assert words is not None
            return _word_targets(task.tags, labels, words)
        case _:
            assert_never(task.kind)


def _word_targets(scheme: Scheme, labels: Sequence[Sequence[Span]], words: WordIndex) -> Tensor:
    """The tag of each word, [examples, most words]; -1 where a text has no more words."""
    out = torch.full((len(labels), int(words.counts.max(initial=0))), NO_WORD, dtype=torch.int16)
    for number, spans in enumerate(labels):
        own = words.words(number)
        tags = scheme.of_spans(own.in_words(spans)[0], len(own))
        out[number, : len(own)] = torch.tensor(tags, dtype=torch.int16)
    return out


class ExampleSampler:
    """Which of a task's examples come next: every one once per pass, shuffled anew for each.

    With a window of w batches, each pass is cut into stretches of w batches whose examples are
    sorted by length and come as whole batches in random order: a batch then has texts of similar
    length (fast), while which texts meet in a batch still changes every pass. All state is the
    generator, the order of this pass and the place in it.
    """

    def __init__(self, lengths: Ints, batch: int, window: int, seed: Sequence[int]):
        if not len(lengths):
            raise ValueError("there are no examples to sample")
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

    def next(self, count: int) -> Ints:
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
