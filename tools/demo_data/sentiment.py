"""Sentiment in five levels: opinions on films, meals, gadgets, journeys, books and services.

The level follows from how a text is built, not from its words alone: the main clause of a contrast
has the last word and mixed evidence is never extreme, a denial turns a mild claim round, and a
plain fact beside an opinion changes nothing. Where a mild and a strong clause of the same sign
stand side by side readers differ, and so do the labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tools.demo_data.grammar import (
    Family,
    Row,
    Split,
    choose,
    content,
    draw,
    fill,
    read,
    tidy,
    written,
)

LEVELS = ("very negative", "negative", "neutral", "positive", "very positive")
FIELDS = ("text", "label")


def rows(rng: Random, split: Split, size: int, seen: set[str]) -> list[Row]:
    """The hand-written lines of the split and generated ones, as many of each level."""
    found = written("sentiment-written.txt", split)
    seen.update(row[0] for row in found)
    writer = Writer(rng, split)
    for number in range(size - len(found)):
        level = number % 5 - 2
        text = writer.write(level)
        while text is None or text in seen:
            text = writer.write(level)
        seen.add(text)
        found.append((text, LEVELS[level + 2]))
    return found


class Writer:
    """Writes opinions, now on one thing and now on another. Levels run from -2 to 2."""

    def __init__(self, rng: Random, split: Split):
        self.rng, self.split = rng, split
        self.things = read("sentiment-leisure.txt", "sentiment-goods.txt")
        self.frames = {family.name: family for family in read("sentiment-frames.txt")}
        opinion = (self.alone, self.together, self.aside, self.verdict, self.degree)
        mixed = (self.contrast, self.contrast, self.contrast, self.report, self.report)
        middling = (self.alone, self.aside, self.balance, self.balance, self.verdict, self.degree)
        self.ways: dict[int, tuple[Callable[[Family, int], str | None], ...]] = {
            0: (self.fact, self.facts, *middling),
            1: opinion + mixed,
            2: opinion,
        }

    def write(self, level: int) -> str | None:
        """One text of this level, or None if the clauses drawn do not go together."""
        way = self.rng.choice(self.ways[abs(level)])
        return way(self.rng.choice(self.things), level)

    def clause(self, thing: Family, section: str) -> str:
        return choose(self.rng, thing.sections[section], self.split).text

    def opinion(self, thing: Family, level: int) -> str:
        return self.clause(thing, LEVELS[level + 2])

    def frame(self, family: str, section: str, a: str, b: str = "") -> str | None:
        if content(a) & content(b):
            return None  # twice the same thing: "the acting is stiff, but the acting is superb"
        line = choose(self.rng, self.frames[family].sections[section], self.split)
        return tidy(fill(self.rng, line.text).replace("<a>", a).replace("<b>", b))

    def alone(self, thing: Family, level: int) -> str | None:
        clause = self.opinion(thing, level)
        mood = "strong" if abs(level) == 2 else "mild" if clause.startswith("the ") else "any"
        return self.frame("alone", self.rng.choice(("any", mood)), clause)

    def together(self, thing: Family, level: int) -> str | None:
        other = level
        if level != -1 and self.rng.random() < 0.15:  # the neighbouring levels overlap
            other = {-2: -1, 1: 2, 2: 1}[level]
        return self.frame("together", "any", self.opinion(thing, other), self.opinion(thing, level))

    def aside(self, thing: Family, level: int) -> str | None:
        fact = self.clause(thing, "fact")
        return self.frame("together", "fact", fact, self.opinion(thing, level))

    def fact(self, thing: Family, level: int) -> str | None:
        return self.frame("alone", "fact", self.clause(thing, "fact"))

    def facts(self, thing: Family, level: int) -> str | None:
        fact, other = self.clause(thing, "fact"), self.clause(thing, "fact")
        return self.frame("together", "fact", fact, other)

    def contrast(self, thing: Family, level: int) -> str | None:
        # Nobody shrugs off a disaster: what is bad in a contrast is only mildly bad.
        good, bad = self.opinion(thing, self.rng.choice((1, 1, 2))), self.opinion(thing, -1)
        main, other = (good, bad) if level > 0 else (bad, good)
        if self.rng.random() < 0.4:
            return self.frame("contrast", "first", main, other)
        return self.frame("contrast", "last", other, main)

    def balance(self, thing: Family, level: int) -> str | None:
        good, bad = self.opinion(thing, 1), self.opinion(thing, -1)
        return self.frame("contrast", "balance", good, bad)

    def report(self, thing: Family, level: int) -> str | None:
        truth = self.rng.choice(("right", "wrong"))
        claim = self.opinion(thing, level if truth == "right" else -level)
        return self.frame("report", truth, claim) if claim.startswith("the ") else None

    def verdict(self, thing: Family, level: int, kind: str = "verdict") -> str | None:
        family = replace(self.frames[kind], slots=self.frames[kind].slots | thing.slots)
        line = choose(self.rng, family.sections[LEVELS[level + 2]], self.split)
        verdict = fill(self.rng, line.text, draw(self.rng, family, self.split))
        if level and self.rng.random() < 0.5:
            return self.frame("judged", "reasoned", verdict, self.opinion(thing, level))
        return self.frame("judged", "bare", verdict)

    def degree(self, thing: Family, level: int) -> str | None:
        return self.verdict(thing, level, "degree")
