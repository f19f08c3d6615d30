"""From a head's numbers, one row per word, to spans with their probabilities.

The rows are read as one chain: every sequence of tags has the product of its words' probabilities,
those that stand for no spans (I- after O) have none, and what is left is scaled to sum to 1. The
answer is the likeliest sequence (Viterbi), and a span's score is its probability in that chain
(forward and backward): that just these words, no more and no fewer, are a span of just this label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bough.spans.schemes import Scheme, Span
from bough.spans.words import Words

Floats = NDArray[np.float64]
_LEAST = 1e-30  # a probability below it is taken for it: its logarithm is a number
_NEVER = -1e30  # finite, so that no difference of two is undefined
_AT_ONCE = 256  # texts of similar length that are decoded together
_CELLS = 2**22  # numbers of all their words and tags, so that many words need no more memory


@dataclass(frozen=True)
class ScoredSpan:
    """A span, of words or of characters, and how sure the model is of it."""

    span: Span
    score: float


def marked(
    scheme: Scheme, shares: NDArray[np.floating], texts: Sequence[Words]
) -> list[list[ScoredSpan]]:
    """The spans of each text, in characters, by the probabilities of its words' tags."""
    bounds = np.cumsum([0, *map(len, texts)])
    found = decode(scheme, np.log(np.maximum(shares, _LEAST)), bounds)
    return [
        [ScoredSpan(words.in_text(item.span), item.score) for item in own]
        for words, own in zip(texts, found, strict=True)
    ]


class _Chain:
    """What may stand where: `begins` and `ends` as terms of logarithms, 0 or never, and what may
    follow what as numbers of tags.

    Tags are either begun after anything that has ended, which is the same for all of them, or go
    on with one label's span. So a step costs as much as there are tags, not their square.
    """

    def __init__(self, scheme: Scheme):
        self.scheme = scheme
        self.begins, self.ends = (
            np.where(np.array(allowed), 0.0, _NEVER) for allowed in (scheme.begins, scheme.ends)
        )
        self.begun, self.ended = (np.flatnonzero(term == 0) for term in (self.begins, self.ends))
        place = {tag: number for number, tag in enumerate(scheme.tags)}
        inside = [prefix for prefix in scheme.prefixes if prefix in "IE"]

        def numbers(prefix: str) -> NDArray[np.int64]:
            return np.array([place[f"{prefix}-{label}"] for label in scheme.labels], np.int64)

        self.going_on = [numbers(prefix) for prefix in inside]  # each label's, by prefix
        self.open = [numbers(prefix) for prefix in "BI"]  # what these may follow


def decode(
    scheme: Scheme, logits: NDArray[np.floating], bounds: Sequence[int] | NDArray[np.int64],
    temperature: float = 1.0,
) -> list[list[ScoredSpan]]:  # fmt: skip
    """The spans of each text; text i has the rows [bounds[i], bounds[i + 1]) of `logits`."""
    bounds = np.asarray(bounds, np.int64)
    lengths = np.diff(bounds)
    chain = _Chain(scheme)
    logs = _log_softmax(np.asarray(logits, np.float64) / temperature)
    out: list[list[ScoredSpan]] = [[] for _ in lengths]
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    at = 0
    while at < len(order):
        some = order[at : at + _AT_ONCE]
        while len(some) > 1 and len(some) * lengths[some[-1]] * logs.shape[1] > _CELLS:
            some = some[: len(some) // 2]
        at += len(some)
        for text, spans in zip(
            some.tolist(), _decoded(chain, _padded(logs, bounds, some), lengths[some]), strict=True
        ):
            out[text] = spans
    return out


def _padded(logs: Floats, bounds: NDArray[np.int64], texts: NDArray[np.int64]) -> Floats:
    """[texts, longest, tags]; behind a text's end all is O, surely, and changes nothing."""
    longest = int(np.diff(bounds)[texts].max())
    out = np.full((len(texts), longest, logs.shape[1]), _NEVER)
    out[:, :, 0] = 0
    for row, text in enumerate(texts.tolist()):
        start, end = bounds[text], bounds[text + 1]
        out[row, : end - start] = logs[start:end]
    return out


def _decoded(chain: _Chain, logs: Floats, lengths: NDArray[np.int64]) -> list[list[ScoredSpan]]:
    paths = _likeliest(chain, logs)
    with np.errstate(invalid="ignore"):  # broken weights give nan, which the answers tell
        forward, backward = _sums(chain, logs)
    total = _logsumexp(forward[:, -1] + chain.ends)
    out = []
    for row, length in enumerate(lengths.tolist()):
        path = paths[row, :length]
        out.append(
            [
                ScoredSpan(
                    span, _posterior(chain, logs[row], forward[row], backward[row], span,
                                     path, float(total[row]))
                )
                for span in chain.scheme.spans(path.tolist())
            ]
        )  # fmt: skip
    return out


def _likeliest(chain: _Chain, logs: Floats) -> NDArray[np.int64]:
    """The likeliest sequence of tags that stands for spans: [texts, words]."""
    texts, words, _ = logs.shape
    best = logs[:, 0] + chain.begins
    back = np.zeros(logs.shape, np.int64)
    rows = np.arange(texts)
    for word in range(1, words):
        before, here = best, back[:, word]
        ended = chain.ended[before[:, chain.ended].argmax(1)]
        here[:, chain.begun] = ended[:, None]
        best = np.empty_like(before)
        best[:, chain.begun] = before[rows, ended][:, None]
        begin, inside = (before[:, tags] for tags in chain.open)
        way = np.where(begin >= inside, *chain.open)
        for tags in chain.going_on:
            here[:, tags] = way
            best[:, tags] = np.maximum(begin, inside)
        best += logs[:, word]
    path = np.zeros((texts, words), np.int64)
    path[:, -1] = (best + chain.ends).argmax(1)
    for word in range(words - 1, 0, -1):
        path[:, word - 1] = back[rows, word, path[:, word]]
    return path


def _sums(chain: _Chain, logs: Floats) -> tuple[Floats, Floats]:
    """For each word and tag the logarithm of the sum over all that may come before, the word
    included, and over all that may come behind it, without it."""
    forward, backward = np.empty_like(logs), np.empty_like(logs)
    forward[:, 0] = logs[:, 0] + chain.begins
    backward[:, -1] = chain.ends
    for word in range(1, logs.shape[1]):
        before, here = forward[:, word - 1], forward[:, word]
        here[:, chain.begun] = _logsumexp(before[:, chain.ended])[:, None]
        inside = np.logaddexp(*(before[:, tags] for tags in chain.open))
        for tags in chain.going_on:
            here[:, tags] = inside
        here += logs[:, word]
    for word in range(logs.shape[1] - 2, -1, -1):
        behind, here = backward[:, word + 1] + logs[:, word + 1], backward[:, word]
        here[:] = _logsumexp(behind[:, chain.begun])[:, None] + chain.ends
        for tags in chain.open:
            for further in chain.going_on:
                here[:, tags] = np.logaddexp(here[:, tags], behind[:, further])
    return forward, backward


def _posterior(
    chain: _Chain, logs: Floats, forward: Floats, backward: Floats, span: Span,
    path: NDArray[np.int64], total: float,
) -> float:  # fmt: skip
    """The probability of just this span: of all sequences with its tags that do not go on."""
    last = span.end - 1
    inner = logs[np.arange(span.start + 1, span.end), path[span.start + 1 : span.end]].sum()
    behind = float(backward[last, path[last]])
    if span.end < len(logs):
        # Of all that may come behind, what begins anew: the span is to end here.
        rest = backward[span.end] + logs[span.end] + chain.begins + chain.ends[path[last]]
        behind = float(_logsumexp(rest))
    found = forward[span.start, path[span.start]] + inner + behind - total
    return float(np.exp(min(found, 0.0)))


def _log_softmax(x: Floats) -> Floats:
    return np.asarray(x - _logsumexp(x, 1)[:, None]) if len(x) else x


def _logsumexp(x: Floats, axis: int = -1) -> Floats:
    top = x.max(axis, keepdims=True)
    return np.asarray(np.log(np.exp(x - top).sum(axis)) + top.squeeze(axis))
