"""Question pairs: do both ask the same thing?

The same question comes back in another form, with synonyms, or with its parts in another order
where order does not matter. A different one is a near miss: one detail is another, two roles are
exchanged, or something else is asked about the same matter. Both kinds range from almost the same
words to hardly any in common, so that counting common words does not tell them apart.
"""

from __future__ import annotations

from random import Random

from tools.demo_data.grammar import (
    Concept,
    Family,
    Line,
    Meaning,
    Row,
    Split,
    choose,
    draw,
    exchange,
    fill,
    read,
    tidy,
    usable,
    written,
)

LABELS = ("different", "same")
FIELDS = ("question1", "question2", "label")


def rows(rng: Random, split: Split, size: int, seen: set[str]) -> list[Row]:
    """The hand-written pairs of the split and generated ones, two in five the same."""
    found = written("questions-written.txt", split)
    taken = set(seen)
    seen.update(text for row in found for text in row[:2])
    families = read("questions-daily.txt", "questions-world.txt")
    same = round(0.4 * size) - sum(label == "same" for *_, label in found)
    for number in range(size - len(found)):
        label = "same" if number < same else "different"
        pair = ("", "")
        while pair[0] == pair[1] or taken & set(pair) or (*pair, label) in found:
            pair = _pair(rng, choose(rng, families, split, 0.25), split, label)
        seen.update(pair)
        found.append((*pair, label))
    return found


def _pair(rng: Random, family: Family, split: Split, label: str) -> tuple[str, str]:
    meaning = draw(rng, family, split)
    asked = rng.choice(list(family.sections))
    line = choose(rng, family.sections[asked], split)
    other, lines = dict(meaning), family.sections[asked]
    if label == "same":
        if "symmetric" in family.marks and rng.random() < 0.7:
            exchange(other)
    else:
        kind = rng.choices(("detail", "matter", "both", "roles"), (30, 15, 45, 10))[0]
        if kind in ("matter", "both") and len(family.sections) > 1:
            lines = family.sections[rng.choice([name for name in family.sections if name != asked])]
        if kind == "roles" and "directed" in family.marks:
            exchange(other)
        elif kind != "matter" or lines is family.sections[asked]:
            for _ in range(2 if kind == "both" else 1):
                _change(rng, family, split, other, line, meaning)
    # Keeping the line makes the words alike, taking another makes them differ.
    rest = [item for item in usable(lines, split) if item != line]
    if line in lines and (not rest or rng.random() < (0.4 if label == "same" else 0.3)):
        rest = [line]
    second = choose(rng, rest, split)
    return tidy(fill(rng, line.text, meaning)), tidy(fill(rng, second.text, other))


def _change(
    rng: Random, family: Family, split: Split, meaning: Meaning, line: Line, first: Meaning
) -> None:
    """Put a concept into one slot of the line that neither question has had so far."""
    free: dict[str, list[Concept]] = {}
    had = [*meaning.values(), *first.values()]
    for name in line.slots:
        others = [item for item in family.slot(name).concepts if item not in had]
        if usable(others, split):
            free[name] = others
    if free:
        name = rng.choice(list(free))
        meaning[name] = choose(rng, free[name], split)
    else:
        exchange(meaning)
