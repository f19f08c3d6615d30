"""What is odd about labelled rows is said, by line; what is not is left alone."""

from __future__ import annotations

import random
import time

import pytest

from bough.data.audit import _slips, class_counts, notes
from bough.data.checked_rows import Rows
from bough.recipe.tasks import Task


def task(labels: tuple[str, ...]) -> Task:
    return Task(kind="classify", text="text", labels=labels)


def rows(labels: tuple[str, ...], given: list[str], start: int = 0) -> Rows:
    """A row of its own for each class name, from line 2 on."""
    texts: list[tuple[str, ...]] = [(f"text {start + n}",) for n in range(len(given))]
    lines = list(range(2, len(given) + 2))
    numbers = [labels.index(name) for name in given]
    return Rows(texts, numbers, [str(n) for n in lines], "mood.csv", lines)


def told(labels: tuple[str, ...], train: list[str], dev: list[str] | None = None) -> list[str]:
    splits = {"train": rows(labels, train)}
    if dev is not None:
        splits["dev"] = rows(labels, dev, 1000)
    return list(notes(task(labels), splits))


def test_classes_come_with_their_counts() -> None:
    labels = ("anger", "joy")
    assert told(labels, ["joy"] * 3 + ["anger"] * 2) == [
        "2 classes in 5 train rows: anger (2), joy (3)"
    ]
    many = tuple(f"class {chr(97 + n)}{n}" for n in range(20))
    given = [name for n, name in enumerate(many) for _ in range(n + 2)]
    said = class_counts(task(many), rows(many, given))
    assert said.startswith("class t19 (21), class s18 (20), class r17 (19), ..., ")
    assert said.endswith("class a0 (2)")


def test_a_misspelt_class_is_named_by_its_line() -> None:
    labels = ("jooy", "joy", "sad")
    _, said = told(labels, ["joy"] * 30 + ["sad"] * 20 + ["jooy"])
    assert said == (
        "class 'jooy' (one row, the first in line 52) is nearly 'joy' (30 rows); "
        "if it is a slip, correct it in mood.csv"
    )


def test_thousands_of_classes_are_looked_through_at_once() -> None:
    """Every two of them would be 25 million pairs."""
    drawn = random.Random(0)
    names = {"".join(drawn.choices("abcdefghijklmnop", k=12)) for _ in range(5000)}
    slip = min(names)[:-1]
    counts = {**dict.fromkeys(sorted(names), 50), slip: 1}
    began = time.process_time()
    assert [*_slips(counts)] == [(slip, min(names))]
    assert time.process_time() - began < 5  # a second at the most; a minute and more pair by pair


@pytest.mark.parametrize(
    ("rare", "common", "odd"),
    [
        ("postive", "positive", True),
        ("psoitive", "positive", True),
        ("positiv", "positive", True),
        ("posutive", "positive", True),
        ("Positive", "positive", True),
        ("very-good", "very good", True),
        ("negative", "positive", False),
        ("not entailment", "entailment", False),
        ("1", "11", False),
        ("10", "11", False),
        ("no", "on", False),
    ],
)
def test_what_is_nearly_equal(rare: str, common: str, odd: bool) -> None:
    labels = (rare, common)
    said = told(labels, [common] * 30 + [rare] * 3)
    assert any("is nearly" in line for line in said) == odd


def test_names_that_differ_by_a_letter_may_be_meant() -> None:
    assert len(told(("cat", "rat"), ["cat"] * 30 + ["rat"] * 25)) == 1
    assert len(told(("Cat", "cat"), ["Cat"] * 30 + ["cat"] * 25)) == 2, "these may not"


def test_rare_and_missing_classes() -> None:
    labels = ("alone", "fine", "never", "odd")
    said = told(labels, ["fine"] * 9 + ["alone"] + ["odd"] * 5, ["fine"] * 3)[1:]
    assert said == [
        "class 'alone' has one train row (mood.csv line 11), from which nothing can be learned",
        "no train row has the class never; it cannot be learned",
        "no dev row has the class alone, odd; nothing says how well it is learned",
    ]


def test_rows_on_both_sides_are_counted() -> None:
    number = Task(kind="regress", text=("one", "two"), range=(0, 5))

    def pairs(*texts: tuple[str, ...]) -> Rows:
        numbers = list(range(len(texts)))
        return Rows(list(texts), [1.0] * len(texts), [""] * len(texts), "sts.csv", numbers)

    train = pairs(("a", "b"), ("c", "d"), ("e", "e"))
    dev = pairs(("a", "b"), ("d", "c"), ("x", "y"), ("e", "e"))
    (said,) = notes(number, {"train": train, "dev": dev})
    assert said == (
        "3 of 4 dev rows have texts of train rows (1 with the two texts swapped); "
        "its dev score flatters the model"
    )
    (said,) = notes(number, {"train": train, "test": pairs(("a", "b"))})
    assert said == "1 of 1 test rows have texts of train rows; its test score flatters the model"
    assert not list(notes(number, {"train": train, "dev": pairs(("b", "c"))}))
    assert not list(notes(number, {"dev": dev}))
