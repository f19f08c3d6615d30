"""One task's examples: every one once per pass, in new company each time."""

from __future__ import annotations

import io
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.data.examples import Examples, ExampleSampler
from bough.data.packing import collate
from tests import tiny
from tests.tiny import examples, unpacked


def test_examples_know_their_sequences_and_targets() -> None:
    own = examples()
    assert own["single"].index.tolist() == [[0], [1], [2]]
    assert own["twin"].index.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert own["joint"].index.tolist() == [[0], [1], [2]]
    assert own["single"].lengths.tolist() == [4, 3, 6]
    assert own["twin"].lengths.tolist() == [6, 8, 8]
    assert own["single"].targets is not None
    assert own["single"].targets.dtype == torch.int64
    assert own["twin"].targets is not None
    assert own["twin"].targets.tolist() == [0.5, 4.75, 3.0]  # real values stay real
    assert own["joint"].targets is None
    assert len(Examples.of(tiny.task(twin=True), tiny.rows([]), tiny.tokenizer(), 9)) == 0


def test_a_sample_has_its_own_sequences_only() -> None:
    for task, own in examples().items():
        few = own.sample(2)
        assert few is not own
        assert len(few.sequences) == few.index.size, task
        kept = np.sort(np.random.default_rng(0).permutation(3)[:2])
        assert unpacked(collate({task: few}, {task: np.arange(2)}).pack) == unpacked(
            collate({task: own}, {task: kept}).pack
        )
        assert few.lengths.tolist() == own.lengths[kept].tolist()
        if own.targets is not None:
            assert few.targets is not None
            assert few.targets.tolist() == own.targets[torch.from_numpy(kept)].tolist()
        assert own.sample(3) is own.sample(None) is own


# --- the sampler ---------------------------------------------------------------------------------


def sampler_of(n: int = 100, batch: int = 8, window: int = 5, seed: int = 0) -> ExampleSampler:
    lengths = np.random.default_rng(n).integers(3, 60, n)
    return ExampleSampler(lengths, batch, window, [seed, 1])


@pytest.mark.parametrize("window", [0, 1, 2, 5, 1000])
def test_every_example_once_per_pass(window: int) -> None:
    sampler = sampler_of(window=window)
    drawn = np.concatenate([sampler.next(8) for _ in range(50)])
    passes = drawn.reshape(4, 100)
    for one in passes:
        assert sorted(one.tolist()) == list(range(100))
    for one, other in pairwise(passes):  # a new order every pass
        assert (one == other).mean() < 0.2
    assert sampler.passes == 4
    assert sampler.seen == 400


@pytest.mark.parametrize("window", [0, 5])
def test_who_meets_in_a_batch_changes_every_pass(window: int) -> None:
    sampler = sampler_of(n=96, window=window)
    met: list[set[frozenset[int]]] = []
    for _ in range(3):
        batches = [sampler.next(8).tolist() for _ in range(12)]
        met.append({frozenset((a, b)) for batch in batches for a in batch for b in batch if a < b})
    everything = 12 * 8 * 7 / 2
    for i, j in ((0, 1), (1, 2), (0, 2)):
        assert len(met[i] & met[j]) < 0.5 * everything


@pytest.mark.parametrize("n", [96, 100, 777])
def test_windows_group_similar_lengths_in_every_pass(n: int) -> None:
    def spread(window: int) -> list[float]:
        sampler = sampler_of(n=n, window=window)
        means = []
        for _ in range(3):
            batches = [sampler.next(8) for _ in range(n // 8)]
            means.append(float(np.mean([sampler.lengths[b].std() for b in batches])))
        return means

    for grouped, plain in zip(spread(10), spread(0), strict=True):
        assert grouped < 0.35 * plain


def test_windows_give_batches_in_random_order() -> None:
    sampler = sampler_of(n=800, window=100)
    means = [sampler.lengths[sampler.next(8)].mean() for _ in range(100)]
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
def test_a_restored_sampler_goes_on_bit_for_bit(
    n: int, batch: int, window: int, counts: list[int], stop: int
) -> None:
    sampler = sampler_of(n, batch, window)
    for count in counts[:stop]:
        assert len(sampler.next(count)) == count
    state = sampler.state()
    on = [sampler.next(count).tolist() for count in [*counts[stop:], n + 1]]
    other = sampler_of(n, batch, window, seed=7)
    other.restore(state)
    assert [other.next(count).tolist() for count in [*counts[stop:], n + 1]] == on
    assert other.seen == sampler.seen
    whole = sampler_of(n, batch, window)
    drawn = whole.next(3 * n)
    for one in drawn.reshape(3, n):
        assert sorted(one.tolist()) == list(range(n))


def test_a_state_survives_torch_save() -> None:
    sampler = sampler_of()
    sampler.next(13)
    file = io.BytesIO()
    torch.save(sampler.state(), file)
    file.seek(0)
    other = sampler_of(seed=3)
    other.restore(torch.load(file, weights_only=True))
    assert other.next(200).tolist() == sampler.next(200).tolist()


def test_samplers_follow_their_seed() -> None:
    assert sampler_of(seed=1).next(50).tolist() == sampler_of(seed=1).next(50).tolist()
    assert sampler_of(seed=1).next(50).tolist() != sampler_of(seed=2).next(50).tolist()


def test_an_empty_sampler_is_refused() -> None:
    with pytest.raises(ValueError, match="no examples"):
        ExampleSampler(np.zeros(0, np.int64), 8, 0, [0])
