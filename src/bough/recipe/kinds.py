"""The kinds of tasks: what each answers, and what a recipe may say about it.

A kind is a word. What it means is told once in each folder that has to know, always as a `match`
that ends in `assert_never`, so that mypy names every place where a new kind has to say something.
Here are the rules for what is written in a recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["classify", "regress", "ordinal", "multilabel", "tag"]
SIGNED = ("pearson", "spearman", "mcc", "kappa")  # these run from -1 to 1
SHARES = ("accuracy", "f1", "f1-micro", "f1-weighted", "auroc", "entity_f1", "precision", "recall")
UNITS = ("rmse",)  # in the labels' own units, with a minus: more is better, as of all


@dataclass(frozen=True)
class KindRules:
    """What a recipe may say about tasks of one kind."""

    answer: str  # what such a task answers with
    losses: tuple[str, ...]  # that fit
    metrics: tuple[str, ...]  # that it is always judged by; the first counts if none is named
    more_metrics: tuple[str, ...]  # that a recipe may name, too
    keys: tuple[str, ...]  # of a task, that tasks of other kinds may not have
    found: tuple[str, ...]  # one of these is known before anything is learned or answered

    @property
    def classes(self) -> bool:
        """Whether the answers are named classes."""
        return "labels" in self.keys


_CLASSES = ("labels", "label_values", "class_weights", "smoothing", "temperature")
KINDS: Mapping[Kind, KindRules] = {
    "classify": KindRules(
        answer="one of two or more classes",
        losses=("ce", "bce", "ordinal", "mse"),
        metrics=("accuracy", "f1", "mcc"),
        more_metrics=("f1-micro", "f1-weighted", "auroc"),
        keys=_CLASSES,
        found=("labels",),
    ),
    "regress": KindRules(
        answer="a number",
        losses=("mse", "mae", "huber", "pearson"),
        metrics=("pearson", "spearman"),
        more_metrics=("rmse",),
        keys=("range", "scale"),
        found=("range", "scale"),
    ),
    "ordinal": KindRules(
        answer="one of several classes in an order",
        losses=("ordinal",),
        metrics=("kappa", "accuracy", "f1"),
        more_metrics=("f1-micro", "f1-weighted", "mcc", "spearman"),
        keys=_CLASSES,
        found=("labels",),
    ),
    "multilabel": KindRules(
        answer="any number of several labels",
        losses=("bce",),
        metrics=("f1-micro", "f1", "accuracy"),
        more_metrics=("f1-weighted", "auroc"),
        keys=("labels", "label_values", "smoothing", "temperature", "separator"),
        found=("labels",),
    ),
    "tag": KindRules(
        answer="spans of the text with their labels",
        losses=("ce",),
        metrics=("entity_f1", "precision", "recall"),
        more_metrics=(),
        keys=("labels", "label_values", "smoothing", "temperature", "scheme"),
        found=("labels",),
    ),
}
METRICS = frozenset((*SIGNED, *SHARES, *UNITS))
OWN_KEYS = tuple(dict.fromkeys(key for rules in KINDS.values() for key in rules.keys))


def kinds_with(key: str) -> list[Kind]:
    """The kinds whose tasks may have this key."""
    return [kind for kind, rules in KINDS.items() if key in rules.keys]
