"""Numbers to spans: the likeliest sequence and a span's probability, against all sequences."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.spans import decoding
from bough.spans.decoding import decode
from bough.spans.schemes import Scheme, SchemeName, Span


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


def logsumexp(x: np.ndarray, axis: int) -> np.ndarray:
    top = x.max(axis, keepdims=True)
    return np.asarray(np.log(np.exp(x - top).sum(axis)) + top.squeeze(axis))


def dense(scheme: Scheme, logits: np.ndarray) -> list[tuple[Span, float]]:
    """The same with every tag held against every other: plain, and too dear for many labels."""
    follows, begins, ends = (
        np.where(np.array(allowed), 0.0, -1e30)
        for allowed in (scheme.follows, scheme.begins, scheme.ends)
    )
    logs = logits - logsumexp(logits, 1)[:, None]
    best, backs, forward, backward = logs[0] + begins, [], [logs[0] + begins], [ends]
    for word in logs[1:]:
        ways = best[:, None] + follows
        backs.append(ways.argmax(0))
        best = ways.max(0) + word
        forward.append(logsumexp(forward[-1][:, None] + follows, 0) + word)
    path = [int((best + ends).argmax())]
    for back in reversed(backs):
        path.insert(0, int(back[path[0]]))
    for word in logs[:0:-1]:
        backward.insert(0, logsumexp(follows + (backward[0] + word), 1))
    total = logsumexp(forward[-1] + ends, 0)
    out = []
    for span in scheme.spans(path):
        tags = path[span.start : span.end]
        share = forward[span.start][tags[0]]
        share += sum(logs[i, tag] for i, tag in enumerate(tags[1:], span.start + 1))
        behind = ends[tags[-1]]
        if span.end < len(logs):
            behind += logsumexp(backward[span.end] + logs[span.end] + begins, 0)
        out.append((span, float(np.exp(min(share + behind - total, 0.0)))))
    return out


@settings(max_examples=60)
@given(
    name=st.sampled_from(["bio", "bioes"]),
    labels=st.integers(1, 7),
    words=st.integers(1, 15),
    seed=st.integers(0, 10**6),
    ties=st.booleans(),
)
def test_as_if_every_tag_were_held_against_every_other(name: SchemeName, labels, words, seed, ties):
    scheme = Scheme(name, tuple("abcdefg"[:labels]))
    rng = np.random.default_rng(seed)
    shape = (words, len(scheme))
    logits = rng.integers(0, 3, shape).astype(float) if ties else rng.normal(size=shape) * 3
    (found,) = decode(scheme, logits, [0, words])
    expected = dense(scheme, logits)
    assert [item.span for item in found] == [span for span, _ in expected]
    assert [item.score for item in found] == pytest.approx([share for _, share in expected])


def test_memory_does_not_grow_with_the_square_of_the_tags():
    scheme = Scheme("bioes", tuple(f"l{n}" for n in range(100)))
    logits = np.random.default_rng(0).normal(size=(256 * 3, len(scheme)))
    tracemalloc.start()
    decode(scheme, logits, np.arange(257) * 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * 2**20


@pytest.mark.parametrize("cells", [2**22, 1000, 1])
def test_texts_of_all_lengths_are_decoded_as_if_alone(cells, monkeypatch):
    monkeypatch.setattr(decoding, "_CELLS", cells)
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
