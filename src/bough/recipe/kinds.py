"""The kinds of tasks: what each answers, and what a recipe may say about it.

A kind is a word. What it means is told once in each folder that has to know, always as a `match`
that ends in `assert_never`, so that mypy names every place where a new kind has to say something.
Here are the rules for what is written in a recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["classify", "regress", "tag"]


@dataclass(frozen=True)
class KindRules:
    """What a recipe may say about tasks of one kind."""

    answer: str  # what such a task answers with
    losses: tuple[str, ...]  # that fit
    metrics: tuple[str, ...]  # that it is judged by; the first counts if none is named
    keys: tuple[str, ...]  # of a task, that tasks of other kinds may not have
    found: str  # the key that must be known before anything is learned or answered

    @property
    def classes(self) -> bool:
        """Whether the answers are named classes."""
        return "labels" in self.keys


KINDS: Mapping[Kind, KindRules] = {
    "classify": KindRules(
        answer="one of two or more classes",
        losses=("ce", "bce", "ordinal", "mse"),
        metrics=("accuracy", "f1", "mcc"),
        keys=("labels", "label_values", "class_weights", "smoothing", "temperature"),
        found="labels",
    ),
    "regress": KindRules(
        answer="a number in a range",
        losses=("mse", "mae", "huber", "pearson"),
        metrics=("pearson", "spearman"),
        keys=("range",),
        found="range",
    ),
    "tag": KindRules(
        answer="spans of the text with their labels",
        losses=("ce",),
        metrics=("entity_f1", "precision", "recall"),
        keys=("labels", "label_values", "smoothing", "temperature", "scheme"),
        found="labels",
    ),
}
OWN_KEYS = tuple(dict.fromkeys(key for rules in KINDS.values() for key in rules.keys))


def kinds_with(key: str) -> list[Kind]:
    """The kinds whose tasks may have this key."""
    return [kind for kind, rules in KINDS.items() if key in rules.keys]
