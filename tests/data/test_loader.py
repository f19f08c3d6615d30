"""What a step learns from: every drawn example once, together or apart by task, in shares of 1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bough.data.examples import Examples, examples_of
from bough.data.loader import Loader, MicroBatch, row_groups
from bough.data.tokens import Ints
from bough.distributed import Processes
from tests import tiny

DRAWN: dict[str, Ints] = {"single": np.array([2, 0, 1, 1, 0]), "twin": np.array([1])}


def texts(parts: list[MicroBatch], task: str) -> list[list[list[list[int]]]]:
    """The sequences of each of a task's examples, in the order in which they come."""
    out = []
    for part in parts:
        for batch in part.batches:
            sequences = tiny.unpacked(batch.pack)
            index = batch.index[task].tolist() if task in batch.index else []
            out += [[sequences[place] for place in places] for places in index]
    return out


@pytest.mark.parametrize("accumulate", [1, 2, 3, 7])
def test_every_drawn_example_comes_once(accumulate: int) -> None:
    examples = tiny.examples()
    whole = Loader(examples, lambda: DRAWN).next(apart=False)
    assert len(whole) == 1
    for apart in (False, True):
        parts = Loader(examples, lambda: DRAWN, accumulate).next(apart)
        assert len(parts) == min(accumulate, 5), "a part without examples is left out"
        for task, drawn in DRAWN.items():
            assert texts(parts, task) == texts(whole, task)
            assert sum(part.shares.get(task, 0) for part in parts) == pytest.approx(1)
            for part in parts:
                own = sum(len(batch.targets.get(task, ())) for batch in part.batches)
                assert part.shares.get(task, 0) == own / len(drawn)
        assert sum(part.tokens for part in parts) == whole[0].tokens


def test_apart_is_a_batch_of_each_task() -> None:
    (together,) = Loader(tiny.examples(), lambda: DRAWN).next(apart=False)
    (apart,) = Loader(tiny.examples(), lambda: DRAWN).next(apart=True)
    assert [list(batch.index) for batch in together.batches] == [["single", "twin"]]
    assert [list(batch.index) for batch in apart.batches] == [["single"], ["twin"]]


@pytest.mark.parametrize("apart", [False, True])
def test_a_micro_batch_has_no_more_tokens_than_it_may(apart: bool) -> None:
    """Unless one task alone has more; those that fit are together, if in batches of their own."""
    examples = tiny.examples()
    loader = Loader(examples, lambda: {**DRAWN, "joint": np.array([0, 2])})
    (whole,) = loader.next(apart)
    sizes = {
        name: int(rows.lengths[drawn].sum())
        for (name, rows), drawn in zip(loader.groups.items(), loader.draw().values(), strict=True)
    }
    assert sum(sizes.values()) == whole.tokens
    names = list(sizes)
    for most in (0, sizes[names[0]] + sizes[names[1]], whole.tokens):
        parts = loader.next(apart, most)
        assert [task for part in parts for task in part.own] == list(whole.own), "in this order"
        for part in parts:
            assert part.tokens <= most or len(part.own) == 1
            assert dict(part.shares) == dict.fromkeys(part.own, 1.0)
        for task in examples:
            assert texts(parts, task) == texts([whole], task)
        wanted = {0: 3, whole.tokens: 1}.get(most, 2)
        assert len(parts) == wanted


def test_each_step_draws_once() -> None:
    draws = iter([DRAWN, {"joint": np.array([0, 2])}])
    loader = Loader(tiny.examples(), lambda: next(draws), accumulate=2)
    assert set(loader.next(True)[0].shares) == {"single", "twin"}
    assert [dict(part.shares) for part in loader.next(True)] == [{"joint": 0.5}] * 2


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("count", [2, 4, 7])
def test_processes_share_a_step_out(count: int, accumulate: int) -> None:
    """Every example is one process's, all agree on the micro-batches, and shares add up to 1."""
    examples = tiny.examples()
    whole = Loader(examples, lambda: DRAWN, accumulate).next(apart=True)
    each = [
        Loader(examples, lambda: DRAWN, accumulate, Processes(rank, count)).next(apart=True)
        for rank in range(count)
    ]
    for number, part in enumerate(whole):
        parts = [steps[number] for steps in each]
        assert all(set(other.own) == set(part.own) for other in parts)
        for task in part.own:
            assert sorted(texts(parts, task)) == sorted(texts([part], task))
            assert sum(other.own[task] for other in parts) == pytest.approx(1)
            shares = [other.shares.get(task, 0) for other in parts]
            assert sum(shares) == pytest.approx(part.shares[task])
    assert sum(part.tokens for steps in each for part in steps) == sum(p.tokens for p in whole)


# --- rows that several tasks have labels for ----------------------------------------------------


def a_table(**lines: range) -> dict[str, Examples]:
    """Tasks on one table of eight texts, each with labels in these rows."""
    texts: list[tuple[str, ...]] = [(" ".join(tiny.WORDS[: i + 1]),) for i in range(8)]
    rows = {
        name: replace(tiny.rows([texts[i] for i in own], [i % 3 for i in own]), lines=[*own])
        for name, own in lines.items()
    }
    return examples_of(dict.fromkeys(lines, tiny.task()), rows, tiny.tokenizer(), 40)


def test_tasks_of_one_table_are_drawn_together_where_their_labels_meet() -> None:
    every = a_table(a=range(8), b=range(2, 6), c=range(5))
    assert list(row_groups(every)) == ["a+b+c"]
    group = row_groups(every)["a+b+c"]
    assert group.lengths.tolist() == [i + 3 for i in range(8)]
    found = group.of(np.array([0, 7, 4]))
    assert {task: numbers.tolist() for task, numbers in found.items()} == {
        "a": [0, 7, 4], "b": [2], "c": [0, 4]
    }  # fmt: skip
    assert list(group.of(np.array([7]))) == ["a"]
    assert list(row_groups(a_table(a=range(4), b=range(3, 8)))) == ["a", "b"]
    assert list(row_groups(tiny.examples())) == ["single", "twin", "joint"]


def test_a_row_is_packed_once_for_all_its_labels() -> None:
    every = a_table(a=range(8), b=range(2, 6))
    (part,) = Loader(every, lambda: {"a+b": np.array([0, 3, 5, 3])}).next(apart=True)
    (batch,) = part.batches
    assert batch.pack.lengths == (3, 6, 8, 6)
    assert {task: index[:, 0].tolist() for task, index in batch.index.items()} == {
        "a": [0, 1, 2, 3], "b": [1, 2, 3]
    }  # fmt: skip
    assert {task: targets.tolist() for task, targets in batch.targets.items()} == {
        "a": [0, 0, 2, 0], "b": [0, 2, 0]
    }  # fmt: skip


@pytest.mark.parametrize("count", [2, 3])
def test_processes_share_a_table_by_its_rows(count: int) -> None:
    every = a_table(a=range(8), b=range(2, 6))
    drawn = {"a+b": np.array([6, 0, 3, 5, 1, 2, 7])}
    loaders = [Loader(every, lambda: drawn, 2, Processes(rank, count)) for rank in range(count)]
    steps = [loader.next(apart=False) for loader in loaders]
    for parts in zip(*steps, strict=True):
        for task in parts[0].own:
            assert sum(part.own[task] for part in parts) == pytest.approx(1)
        for part in parts:
            for batch in part.batches:  # a row's labels are where its text is
                assert len(batch.pack.lengths) == len(batch.index["a"])
    for task in ("a", "b"):
        shares = [part.shares.get(task, 0) for step in steps for part in step]
        assert sum(shares) == pytest.approx(1)
