"""Sentence pairs with a similarity from 0 (unrelated) to 5 (the same said in other words).

The score is what is left of five points after the edits that lead from one sentence to the other:
each slot that was changed or dropped takes its share, by its weight and by how far apart
the two fillings are; another event in the same scene takes two fifths. Other words and another
order for the same meaning take nothing.
"""

from __future__ import annotations

from random import Random

from tools.demo_data.grammar import (
    Family,
    Line,
    Meaning,
    Row,
    Split,
    choose,
    content,
    draw,
    exchange,
    fill,
    read,
    tidy,
    usable,
    written,
)

FIELDS = ("sentence1", "sentence2", "score")
# How many slots are changed, and whether the event is another one: the mixture of edits.
EDITS = ((0, False),) * 4 + ((1, False),) * 6 + ((2, False),) * 4 + ((3, False),) * 2 + (
    (0, True), (0, True), (1, True), (1, True), (9, True), (9, True),
)  # fmt: skip
UNRELATED = 0.2  # share of pairs from two scenes
EVENT = 0.6  # what is left if the event is another one


def rows(rng: Random, split: Split, size: int, seen: set[str]) -> list[Row]:
    """The hand-written pairs of the split and generated ones."""
    found = written("similarity-written.txt", split)
    taken = set(seen)
    seen.update(text for row in found for text in row[:2])
    scenes, headlines = read("similarity-scenes.txt"), read("similarity-headlines.txt")
    pairs: set[tuple[str, str]] = set()
    while len(found) < size:
        families = scenes if rng.random() < 0.6 else headlines
        family = choose(rng, families, split, 0.25)
        if rng.random() < UNRELATED:
            first, second, score = _unrelated(rng, families, family, split)
        else:
            first, second, score = _related(rng, family, split)
        if first == second or taken & {first, second} or (first, second) in pairs:
            continue
        pairs.add((first, second))
        seen.update((first, second))
        found.append((first, second, f"{round(score * 5) / 5:.1f}"))
    return found


def _unrelated(
    rng: Random, families: list[Family], family: Family, split: Split
) -> tuple[str, str, float]:
    other = choose(rng, [item for item in families if item.name != family.name], split, 0.25)
    first, second = (
        tidy(fill(rng, _line(rng, item, split).text, draw(rng, item, split)))
        for item in (family, other)
    )
    return first, second, 0.2 * min(3, len(content(first) & content(second)))


def _related(rng: Random, family: Family, split: Split) -> tuple[str, str, float]:
    slots, event = rng.choice(EDITS)
    meaning = draw(rng, family, split)
    section = rng.choice(list(family.sections))
    line = choose(rng, family.sections[section], split)
    if event:
        section = rng.choice([name for name in family.sections if name != section])
    other_line = choose(rng, family.sections[section], split)
    if other_line == line and slots == 0:
        others = [item for item in usable(family.sections[section], split) if item != line]
        other_line = rng.choice(others or [line])
    other = dict(meaning)
    names = [name for name in line.slots if name in other_line.slots]
    if slots and "directed" in family.marks and rng.random() < 0.5:
        exchange(other)
        slots -= 1
    for name in rng.sample(names, min(slots, len(names))):
        _change(rng, family, split, other, name)
    share = EVENT if event else 1.0
    share *= _alike(family, _said(line, meaning), _said(other_line, other))
    first, second = tidy(fill(rng, line.text, meaning)), tidy(fill(rng, other_line.text, other))
    return first, second, 5 * share


def _line(rng: Random, family: Family, split: Split) -> Line:
    return choose(rng, family.sections[rng.choice(list(family.sections))], split)


def _said(line: Line, meaning: Meaning) -> Meaning:
    return {name: meaning[name] for name in line.slots if meaning[name]}


def _change(rng: Random, family: Family, split: Split, meaning: Meaning, name: str) -> None:
    slot = family.slot(name)
    others = [item for item in slot.concepts if item not in meaning.values()]
    if slot.optional and meaning[name] and rng.random() < 0.5:
        meaning[name] = None
    elif usable(others, split):
        meaning[name] = choose(rng, others, split)


def _alike(family: Family, one: Meaning, two: Meaning) -> float:
    """The share of the meaning that two fillings have in common."""
    share = 1.0
    for name in {**one, **two}:
        a, b, weight = one.get(name), two.get(name), family.slot(name).weight
        if a is None or b is None:
            share *= 1 - 0.6 * weight / 5
        elif a != b:
            share *= 1 - (0.75 if a.group == b.group else 1.0) * weight / 5
    return share
