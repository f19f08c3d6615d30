"""Texts of very different lengths, and when two answers are the same."""

from __future__ import annotations

import numpy as np

from bough.inference.answers import Answer
from bough.inference.model import Text

SHORT, LONG = "Fine.", "The train was late, the soup was cold and the film went on for ever. " * 3
TEXTS: list[Text] = [
    SHORT, (SHORT, LONG), LONG, ("Why?", "Why do dogs bark?"), "Not bad at all!", (LONG, SHORT),
    ("What is this?", "What is that?"), "ünïcödé 東京 🌳", "a b c d e f g h i j k l m n o p q r s",
]  # fmt: skip


def close(one: dict[str, Answer], other: dict[str, Answer]) -> bool:
    """The same but for the rounding of other batches."""
    return list(one) == list(other) and all(
        a.label == b.label
        and np.allclose(
            list((a.probabilities or {"": a.value or 0.0}).values()),
            list((b.probabilities or {"": b.value or 0.0}).values()),
            atol=1e-5,
        )
        for a, b in zip(one.values(), other.values(), strict=True)
    )
