"""The small grammar in which the demo's sentences are written.

A source is a text file of families. A family opens with `# name`, then lists its slots, then its
sections, each a block of lines that say the same thing in different words:

    # journey directed              a mark such as `directed` is read by the task's generator
    vehicle 1.5: train = rail; bus  the slot's weight; `;` parts concepts, `=` their synonyms,
                                    `|` groups of concepts that are further apart
    where?: at the lake; by the sea a slot that may also stay empty
    = ask the way
    How do I get from {city} to {city2} by {vehicle}?
    What is the [best|quickest] way to {city2} from {city} by {vehicle}?

`{city2}` is a second draw from the list `city`; lists above the first family serve all of them;
`[a|b]` is free choice. A `*` before a family, a concept or a line keeps it back for dev, so that
dev asks for more than what training has shown. A line that starts with `//` is a remark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal, Protocol, TypeVar

Split = Literal["train", "dev"]
SPLITS: tuple[Split, Split] = ("train", "dev")
SOURCES = Path(__file__).parent / "sources"


class Kept(Protocol):
    @property
    def kept(self) -> bool: ...


Item = TypeVar("Item", bound=Kept)


@dataclass(frozen=True)
class Concept:
    words: tuple[str, ...]
    group: int
    kept: bool


@dataclass(frozen=True)
class Line:
    text: str
    kept: bool

    @property
    def slots(self) -> list[str]:
        return re.findall(r"\{(\w+)\}", self.text)


@dataclass(frozen=True)
class Slot:
    concepts: tuple[Concept, ...]
    weight: float
    optional: bool


@dataclass(frozen=True)
class Family:
    name: str
    marks: frozenset[str]
    kept: bool
    slots: dict[str, Slot]
    sections: dict[str, list[Line]] = field(default_factory=dict)

    def slot(self, name: str) -> Slot:
        return self.slots[name.rstrip("23")]

    def used(self) -> list[str]:
        """The names of all slots that the lines of this family mention, in order."""
        lines = [line for section in self.sections.values() for line in section]
        return list(dict.fromkeys(name for line in lines for name in line.slots))


Meaning = dict[str, Concept | None]  # what fills each slot; None: left empty
Row = tuple[str, ...]  # the texts and the label


def read(*names: str) -> list[Family]:
    """The families of these sources, in order."""
    return [family for name in names for family in _families(name)]


def written(name: str, split: Split) -> list[Row]:
    """The hand-written lines of the split as rows, the label last."""
    lines = [text for text in _lines(name) if text.startswith("*") == (split == "dev")]
    parts = [[part.strip() for part in text.lstrip("* ").split(" | ")] for text in lines]
    return [(*texts, label) for label, *texts in parts]


def _lines(name: str) -> Iterator[str]:
    for text in (SOURCES / name).read_text(encoding="utf-8").splitlines():
        if text.strip() and not text.startswith("//"):
            yield text.strip()


def _families(name: str) -> Iterator[Family]:
    common: dict[str, Slot] = {}
    family: Family | None = None
    section: list[Line] | None = None
    for text in _lines(name):
        if text.startswith("#"):
            if family:
                yield family
            title, *marks = text.lstrip("# *").split()
            kept = text.lstrip("# ").startswith("*")
            family, section = Family(title, frozenset(marks), kept, dict(common)), None
        elif text.startswith("= ") and family:
            section = family.sections.setdefault(text[2:], [])
        elif section is not None:
            section.append(Line(text.lstrip("* "), text.startswith("*")))
        else:
            slot_name, slot = _slot(text)
            (family.slots if family else common)[slot_name] = slot
    if family:
        yield family


def _slot(text: str) -> tuple[str, Slot]:
    match = re.fullmatch(r"(\w+)(\??)(?: ([\d.]+))?: (.+)", text)
    if not match:
        raise ValueError(f"not a slot of the form `name weight: a; b`: {text!r}")
    name, optional, weight, values = match.groups()
    concepts = tuple(
        Concept(tuple(w.strip() for w in part.strip().lstrip("*").split("=")), group, "*" in part)
        for group, parts in enumerate(values.split("|"))
        for part in parts.split(";")
    )
    return name, Slot(concepts, float(weight or 1), bool(optional))


def usable(items: Sequence[Item], split: Split) -> list[Item]:
    return [item for item in items if split == "dev" or not item.kept]


def choose(rng: Random, items: Sequence[Item], split: Split, share: float = 0.4) -> Item:
    """One item: in train never a kept one; in dev, if there are any, this share is kept ones."""
    seen = [item for item in items if not item.kept]
    kept = [item for item in items if item.kept]
    if split == "dev" and kept and (not seen or rng.random() < share):
        return rng.choice(kept)
    return rng.choice(seen)


def draw(rng: Random, family: Family, split: Split) -> Meaning:
    """Fill every slot of the family, two draws from one list never alike."""
    meaning: Meaning = {}
    for name in family.used():
        slot = family.slot(name)
        taken = [meaning[other] for other in meaning if other.rstrip("23") == name.rstrip("23")]
        free = [concept for concept in slot.concepts if concept not in taken]
        empty = slot.optional and rng.random() < 0.25
        meaning[name] = None if empty else choose(rng, free, split)
    return meaning


def exchange(meaning: Meaning) -> None:
    """Let two draws from one list change places."""
    for name in meaning:
        if name + "2" in meaning:
            meaning[name], meaning[name + "2"] = meaning[name + "2"], meaning[name]


def fill(rng: Random, text: str, meaning: Meaning | None = None) -> str:
    """The line with its choices made and its slots filled."""
    while match := re.search(r"\[([^\[\]]*)\]", text):
        text = text[: match.start()] + rng.choice(match[1].split("|")) + text[match.end() :]
    for name in re.findall(r"\{(\w+)\}", text):
        concept = (meaning or {})[name]
        text = text.replace("{" + name + "}", rng.choice(concept.words) if concept else "")
    return text


def tidy(text: str) -> str:
    """Spaces, commas, a or an, and a capital at each beginning."""
    text = re.sub(r"\s+", " ", text).strip(" ,")
    text = re.sub(r" +([,.;:?!])", r"\1", text)
    text = re.sub(r"\b([Aa])n? (?=(?!one|uni|use|usu|uk|eu)[aeiou]|hour|honest)", r"\1n ", text)
    return re.sub(r"(^|[.?!] )([a-z])", lambda match: match[1] + match[2].upper(), text)


def content(text: str) -> set[str]:
    """The words that carry the meaning, roughly: all but the short ones."""
    return {word for word in re.findall(r"[a-z]+", text.lower()) if len(word) > 3}
