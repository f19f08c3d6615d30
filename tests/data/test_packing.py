"""Packed without padding: every sequence where its task looks for it."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.data.packing import Batch, Pack, by_tokens, collate
from bough.data.tokens import Ints, tokenise
from tests import tiny
from tests.tiny import examples, unpacked


def test_a_pack_holds_the_chosen_sequences_in_order() -> None:
    tokenizer = tiny.tokenizer()
    one, _ = tokenise([("a tree",), ("who",), ("is it old",)], tokenizer, 40)
    two, _ = tokenise([("the leaf", "a root")], tokenizer, 40)
    pack = Pack.of([(one, np.array([2, 0, 2])), (two, np.array([0]))])
    assert pack.lengths == (5, 4, 5, 7)
    assert pack.tokens.dtype == torch.int64
    parts = unpacked(pack)
    assert parts[0] == parts[2]
    for part, (ids, types) in zip(
        parts,
        [
            (one.ids[7:], [0] * 5),
            (one.ids[:4], [0] * 4),
            (one.ids[7:], [0] * 5),
            (two.ids, [0, 0, 0, 0, 1, 1, 1]),
        ],
        strict=True,
    ):
        assert part == [ids.tolist(), types, list(range(len(ids)))]


def test_collate_knows_every_tasks_sequences() -> None:
    own = examples()
    chosen = {"twin": np.array([2, 0]), "single": np.array([1, 1, 2]), "joint": np.array([1])}
    batch: Batch = collate(own, chosen)
    assert list(batch.index) == ["twin", "single", "joint"]
    assert batch.index["twin"].tolist() == [[0, 1], [2, 3]]
    assert batch.index["single"].tolist() == [[4], [5], [6]]
    assert batch.index["joint"].tolist() == [[7]]
    assert batch.targets["twin"].tolist() == [3.0, 0.5]
    assert batch.targets["single"].tolist() == [0, 0, 1]
    assert "joint" not in batch.targets
    assert batch.tokens == sum(batch.pack.lengths) == len(batch.pack.tokens)
    for task, index in batch.index.items():
        alone = unpacked(collate(own, {task: chosen[task]}).pack)
        together = unpacked(batch.pack)
        assert [together[i] for i in index.flatten().tolist()] == alone


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 120))
def test_by_tokens_covers_all_and_keeps_the_budget(lengths: list[int], budget: int) -> None:
    sizes: Ints = np.array(lengths, np.int64)
    parts = by_tokens(sizes, budget)
    assert sorted(np.concatenate(parts).tolist() if parts else []) == list(range(len(lengths)))
    last = None
    for part in parts:
        assert len(part) == 1 or sizes[part].sum() <= budget
        assert last is None or sizes[part].max() <= last  # long ones first
        last = sizes[part].min()
