"""Numbers to spans: the likeliest sequence and a span's probability, against all sequences."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.spans.decoding import decode
from bough.spans.schemes import Scheme, SchemeName


def chain(scheme: Scheme, logits: np.ndarray) -> dict[tuple[int, ...], float]:
    """Every sequence of tags that stands for spans, and its probability: by counting them all."""
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    found = {}
    for path in product(range(len(scheme)), repeat=len(logits)):
        follows = all(scheme.follows[a][b] for a, b in pairwise(path))
        if follows and scheme.begins[path[0]] and scheme.ends[path[-1]]:
            found[path] = float(np.prod([shares[i, tag] for i, tag in enumerate(path)]))
    total = sum(found.values())
    return {path: share / total for path, share in found.items()}


@pytest.mark.parametrize(
    ("name", "labels", "words"),
    [("bio", "ab", 4), ("bioes", "a", 4), ("bioes", "ab", 3), ("bio", "a", 1)],
)
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), temperature=st.sampled_from([0.5, 1.0, 3.0]))
def test_the_likeliest_spans_and_their_probabilities(
    name: SchemeName, labels, words, seed, temperature
):
    scheme = Scheme(name, tuple(labels))
    logits = np.random.default_rng(seed).normal(size=(words, len(scheme))) * 2
    every = chain(scheme, logits / temperature)
    best = max(every, key=lambda path: every[path])
    (found,) = decode(scheme, logits, [0, words], temperature)
    assert [item.span for item in found] == scheme.spans(best)
    for item in found:
        right = sum(share for path, share in every.items() if item.span in scheme.spans(path))
        assert item.score == pytest.approx(right, abs=1e-9)


def test_texts_of_all_lengths_are_decoded_as_if_alone():
    scheme = Scheme("bio", ("a", "b", "c"))
    lengths = [3, 0, 17, 1, 5, 0, 8, 300]
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    logits = np.random.default_rng(0).normal(size=(sum(lengths), len(scheme))) * 3
    together = decode(scheme, logits, bounds)
    for i, length in enumerate(lengths):
        (alone,) = decode(scheme, logits[bounds[i] : bounds[i + 1]], [0, length])
        assert [item.span for item in together[i]] == [item.span for item in alone]
        scores = [[item.score for item in part] for part in (together[i], alone)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-9)
    assert together[1] == []
    assert together[7]


def test_an_i_after_o_is_never_answered():
    scheme = Scheme("bio", ("a",))
    logits = np.array([[5.0, 0, 0], [0, 1.0, 5.0]])  # O, then I-a by far
    (found,) = decode(scheme, logits, [0, 2])
    tags = scheme.of_spans([item.span for item in found], 2)
    assert scheme.follows[tags[0]][tags[1]]


def test_sure_numbers_give_sure_spans():
    scheme = Scheme("bio", ("a",))
    logits = np.array([[-1e4, 1e4, -1e4], [-1e4, -1e4, 1e4], [1e4, -1e4, -1e4]])
    (found,) = decode(scheme, logits, [0, 3])
    assert [(item.span, item.score) for item in found] == [((0, 2, "a"), 1.0)]
