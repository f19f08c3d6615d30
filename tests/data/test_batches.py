"""Tokens once; every example once per pass, in new company each time; packed without padding."""

from __future__ import annotations

import io
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.data.batches import (
    Batch,
    Examples,
    ExampleSampler,
    Ints,
    Pack,
    by_tokens,
    collate,
    tokenise,
)
from bough.data.rows import Rows
from tests import tiny

CLS, SEP = 2, 3


def rows(texts: list[tuple[str, ...]], labels: list[int] | list[float] | None = None) -> Rows:
    numbers = list(range(len(texts)))
    return Rows(texts, labels, [str(n) for n in numbers], "memory", numbers)


def words(count: int) -> str:
    return " ".join((tiny.WORDS * 3)[:count])


# --- tokens ---------------------------------------------------------------------------------------


def test_texts_and_pairs_with_their_segments() -> None:
    texts: list[tuple[str, ...]] = [("a tree",), ("the leaf", "a root is"), ("who", "what")]
    sequences, cut = tokenise(texts, tiny.tokenizer(), 40)
    ids = {word: i + 4 for i, word in enumerate(tiny.WORDS)}
    assert cut.sum() == 0
    assert sequences.lengths.tolist() == [4, 8, 5]
    first, second, third = np.split(sequences.ids, sequences.bounds[1:-1])
    assert first.tolist() == [CLS, ids["a"], ids["tree"], SEP]
    wanted = [CLS, ids["the"], ids["leaf"], SEP, ids["a"], ids["root"], ids["is"], SEP]
    assert second.tolist() == wanted
    assert third.tolist() == [CLS, ids["who"], SEP, ids["what"], SEP]
    types = np.split(sequences.types, sequences.bounds[1:-1])
    assert [t.tolist() for t in types] == [[0] * 4, [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1]]


def test_families_without_segments_have_none() -> None:
    sequences, _ = tokenise([("a tree", "the leaf")], tiny.tokenizer("roberta"), 40)
    assert len(sequences.ids) == 8  # two separators between the texts
    assert not sequences.types.any()


def test_what_is_too_long_is_cut_and_counted() -> None:
    texts: list[tuple[str, ...]] = [
        (words(30),),
        (words(8),),  # with the special tokens just as long as may be
        (words(9),),
        (words(2), words(20)),
        (words(20), words(20)),
        (words(3), words(4)),
    ]
    sequences, cut = tokenise(texts, tiny.tokenizer(), 10)
    assert cut.sum() == 4
    assert sequences.lengths.tolist() == [10, 10, 10, 10, 10, 10]
    parts = np.split(sequences.types, sequences.bounds[1:-1])
    assert parts[3].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]  # the longer text gives way
    assert abs(parts[4].sum() - 5) <= 1  # two long ones share
    ends = sequences.ids[sequences.bounds[1:] - 1]
    assert ends.tolist() == [SEP] * 6
    again, cut = tokenise(texts, tiny.tokenizer(), 60)  # cutting is not remembered
    assert cut.sum() == 0
    assert again.lengths.max() == 43


def test_one_tokenizer_may_be_asked_for_several_lengths() -> None:
    tokenizer = tiny.tokenizer()
    text: list[tuple[str, ...]] = [(words(20),)]
    assert [tokenise(text, tokenizer, n)[0].lengths[0] for n in (10, 40, 5)] == [10, 22, 5]


def test_nothing_to_tokenise() -> None:
    sequences, cut = tokenise([], tiny.tokenizer(), 10)
    assert len(sequences) == 0
    assert cut.sum() == 0


# --- packs and batches ----------------------------------------------------------------------------


def unpacked(pack: Pack) -> list[list[list[int]]]:
    return [part.T.tolist() for part in pack.tokens.split(pack.lengths)]


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


def examples() -> dict[str, Examples]:
    tokenizer = tiny.tokenizer()
    sentences: list[tuple[str, ...]] = [("a tree",), ("who",), ("the leaf is green",)]
    pairs: list[tuple[str, ...]] = [("a", "b"), ("the root", "is old"), ("what", "where does it")]
    single, twin, joint = tiny.task(), tiny.task(twin=True, number=True), tiny.task(joint=True)
    return {
        "single": Examples.of(single, rows(sentences, [2, 0, 1]), tokenizer, 40),
        "twin": Examples.of(twin, rows(pairs, [0.5, 4.75, 3.0]), tokenizer, 40),
        "joint": Examples.of(joint, rows(pairs), tokenizer, 40),
    }


def test_examples_know_their_sequences_and_targets() -> None:
    own = examples()
    assert own["single"].seats.tolist() == [[0], [1], [2]]
    assert own["twin"].seats.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert own["joint"].seats.tolist() == [[0], [1], [2]]
    assert own["single"].lengths.tolist() == [4, 3, 6]
    assert own["twin"].lengths.tolist() == [6, 8, 8]
    assert own["single"].targets is not None
    assert own["single"].targets.dtype == torch.int64
    assert own["twin"].targets is not None
    assert own["twin"].targets.tolist() == [0.5, 4.75, 3.0]  # real values stay real
    assert own["joint"].targets is None
    assert len(Examples.of(tiny.task(twin=True), rows([]), tiny.tokenizer(), 9)) == 0


def test_a_sample_has_its_own_sequences_only() -> None:
    for task, own in examples().items():
        few = own.sample(2)
        assert few is not own
        assert len(few.sequences) == few.seats.size, task
        kept = np.sort(np.random.default_rng(0).permutation(3)[:2])
        assert unpacked(collate({task: few}, {task: np.arange(2)}).pack) == unpacked(
            collate({task: own}, {task: kept}).pack
        )
        assert few.lengths.tolist() == own.lengths[kept].tolist()
        if own.targets is not None:
            assert few.targets is not None
            assert few.targets.tolist() == own.targets[torch.from_numpy(kept)].tolist()
        assert own.sample(3) is own.sample(None) is own


def test_collate_seats_every_task() -> None:
    own = examples()
    chosen = {"twin": np.array([2, 0]), "single": np.array([1, 1, 2]), "joint": np.array([1])}
    batch: Batch = collate(own, chosen)
    assert list(batch.seats) == ["twin", "single", "joint"]
    assert batch.seats["twin"].tolist() == [[0, 1], [2, 3]]
    assert batch.seats["single"].tolist() == [[4], [5], [6]]
    assert batch.seats["joint"].tolist() == [[7]]
    assert batch.targets["twin"].tolist() == [3.0, 0.5]
    assert batch.targets["single"].tolist() == [0, 0, 1]
    assert "joint" not in batch.targets
    assert batch.tokens == sum(batch.pack.lengths) == len(batch.pack.tokens)
    for task, seats in batch.seats.items():
        alone = unpacked(collate(own, {task: chosen[task]}).pack)
        together = unpacked(batch.pack)
        assert [together[i] for i in seats.flatten().tolist()] == alone


# --- the deck -------------------------------------------------------------------------------------


def deck(n: int = 100, batch: int = 8, window: int = 5, seed: int = 0) -> ExampleSampler:
    lengths = np.random.default_rng(n).integers(3, 60, n)
    return ExampleSampler(lengths, batch, window, [seed, 1])


@pytest.mark.parametrize("window", [0, 1, 2, 5, 1000])
def test_every_example_once_per_pass(window: int) -> None:
    cards = deck(window=window)
    dealt = np.concatenate([cards.deal(8) for _ in range(50)])
    passes = dealt.reshape(4, 100)
    for one in passes:
        assert sorted(one.tolist()) == list(range(100))
    for one, other in pairwise(passes):  # a new order every pass
        assert (one == other).mean() < 0.2
    assert cards.passes == 4
    assert cards.seen == 400


@pytest.mark.parametrize("window", [0, 5])
def test_who_meets_in_a_batch_changes_every_pass(window: int) -> None:
    cards = deck(n=96, window=window)
    met: list[set[frozenset[int]]] = []
    for _ in range(3):
        batches = [cards.deal(8).tolist() for _ in range(12)]
        met.append({frozenset((a, b)) for batch in batches for a in batch for b in batch if a < b})
    everything = 12 * 8 * 7 / 2
    for i, j in ((0, 1), (1, 2), (0, 2)):
        assert len(met[i] & met[j]) < 0.5 * everything


@pytest.mark.parametrize("n", [96, 100, 777])
def test_windows_group_similar_lengths_in_every_pass(n: int) -> None:
    def spread(window: int) -> list[float]:
        cards = deck(n=n, window=window)
        means = []
        for _ in range(3):
            batches = [cards.deal(8) for _ in range(n // 8)]
            means.append(float(np.mean([cards.lengths[b].std() for b in batches])))
        return means

    for grouped, plain in zip(spread(10), spread(0), strict=True):
        assert grouped < 0.35 * plain


def test_windows_deal_batches_in_random_order() -> None:
    cards = deck(n=800, window=100)
    means = [cards.lengths[cards.deal(8)].mean() for _ in range(100)]
    steps = np.diff(means)
    assert (steps > 0).mean() == pytest.approx(0.5, abs=0.15)  # not from short to long


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 40),
    batch=st.integers(1, 9),
    window=st.integers(0, 4),
    counts=st.lists(st.integers(0, 50), max_size=12),
    stop=st.integers(0, 12),
)
def test_a_restored_deck_goes_on_bit_for_bit(
    n: int, batch: int, window: int, counts: list[int], stop: int
) -> None:
    cards = deck(n, batch, window)
    for count in counts[:stop]:
        assert len(cards.deal(count)) == count
    state = cards.state()
    on = [cards.deal(count).tolist() for count in [*counts[stop:], n + 1]]
    other = deck(n, batch, window, seed=7)
    other.restore(state)
    assert [other.deal(count).tolist() for count in [*counts[stop:], n + 1]] == on
    assert other.seen == cards.seen
    whole = deck(n, batch, window)
    dealt = whole.deal(3 * n)
    for one in dealt.reshape(3, n):
        assert sorted(one.tolist()) == list(range(n))


def test_a_state_survives_torch_save() -> None:
    cards = deck()
    cards.deal(13)
    file = io.BytesIO()
    torch.save(cards.state(), file)
    file.seek(0)
    other = deck(seed=3)
    other.restore(torch.load(file, weights_only=True))
    assert other.deal(200).tolist() == cards.deal(200).tolist()


def test_decks_follow_their_seed() -> None:
    assert deck(seed=1).deal(50).tolist() == deck(seed=1).deal(50).tolist()
    assert deck(seed=1).deal(50).tolist() != deck(seed=2).deal(50).tolist()


def test_an_empty_deck_is_refused() -> None:
    with pytest.raises(ValueError, match="no examples"):
        ExampleSampler(np.zeros(0, np.int64), 8, 0, [0])


# --- parts of equal work --------------------------------------------------------------------------


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
