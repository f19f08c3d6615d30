"""The generator of the demo's data: the same files byte for byte, and what its grammar promises."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from bough import demo
from tools.demo_data import generate, grammar


def test_the_generator_writes_the_files_byte_for_byte(tmp_path: Path) -> None:
    generate.write(tmp_path)
    names = sorted(path.name for path in demo.folder().glob("*.csv"))
    assert names == sorted(
        f"{task}-{split}.csv" for task in generate.TASKS for split in grammar.SPLITS
    )
    for name in names:
        assert (tmp_path / name).read_bytes() == (demo.folder() / name).read_bytes(), name


def test_train_never_uses_what_is_kept_for_dev() -> None:
    names = [
        path.name
        for path in grammar.SOURCES.glob("*.txt")
        if not path.stem.endswith(("written", "frames"))
    ]
    rng = Random(0)
    for family in grammar.read(*names):
        for _ in range(20):
            filled = [concept for concept in grammar.draw(rng, family, "train").values() if concept]
            assert not any(concept.kept for concept in filled)
        for section in family.sections.values():
            assert grammar.usable(section, "train"), family.name
            assert not grammar.choose(rng, section, "train").kept


def test_all_ways_to_ask_a_question_name_the_same_things() -> None:
    for family in grammar.read("questions-daily.txt", "questions-world.txt"):
        for name, lines in family.sections.items():
            assert len({frozenset(line.slots) for line in lines}) == 1, (family.name, name)
            assert not {"directed", "symmetric"} <= family.marks


def test_hand_written_lines_are_many() -> None:
    for name in generate.TASKS:
        assert (
            sum(len(grammar.written(f"{name}-written.txt", split)) for split in grammar.SPLITS)
            >= 60
        )


def test_a_line_is_filled_and_tidied() -> None:
    concept = grammar.Concept(("apple",), 0, False)
    meaning: grammar.Meaning = {"fruit": concept, "where": None}
    text = grammar.fill(
        Random(0), "a {fruit} [fell|fell] {where}, once. it was a hour ago .", meaning
    )
    assert grammar.tidy(text) == "An apple fell, once. It was an hour ago."


def test_a_slot_that_cannot_be_read_is_shown() -> None:
    with pytest.raises(ValueError, match="not a slot"):
        grammar._slot("colour red, blue")
