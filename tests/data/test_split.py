"""Rows set aside: always the same, each class its share, no text on both sides."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

from bough.data.checked_rows import Rows
from bough.data.split import Whole, split_off
from tests.data.reading import texts


def by_class(label: int) -> int:
    return label


def as_rows(parts: list[str], labels: list[int]) -> Rows:
    size = len(parts)
    return Rows([(text,) for text in parts], labels, [str(i) for i in range(size)], "f.csv",
                list(range(2, size + 2)))  # fmt: skip


def test_rows_aside_do_not_depend_on_the_order_and_keep_the_classes() -> None:
    parts, labels = texts(1000), [int(i % 10 == 0) for i in range(1000)]
    train_rows, dev = split_off(as_rows(parts, labels), by_class)
    assert sorted(train_rows + dev) == list(range(1000))
    assert len(dev) == 100
    assert sum(labels[n] for n in dev) == 10
    turned = split_off(as_rows(parts[::-1], labels[::-1]), by_class)[1]
    assert {parts[n] for n in dev} == {parts[::-1][n] for n in turned}


def test_equal_texts_stay_on_one_side() -> None:
    parts = texts(50) * 4
    train_rows, dev = split_off(as_rows(parts, [i % 2 for i in range(200)]), by_class)
    assert dev
    assert not {parts[n] for n in train_rows} & {parts[n] for n in dev}


def test_a_pair_turned_round_stays_on_its_side() -> None:
    parts = [(one, two) for one, two in zip(texts(60), texts(60, 3), strict=True)]
    parts += [(two, one) for one, two in parts]
    rows = replace(as_rows([""] * 120, [i % 2 for i in range(120)]), texts=parts)
    train_rows, dev = split_off(rows, by_class)
    assert dev
    assert not {frozenset(parts[n]) for n in train_rows} & {frozenset(parts[n]) for n in dev}


def test_tasks_on_one_file_set_the_same_texts_aside_whatever_is_missing() -> None:
    parts = texts(400)
    whole = split_off(as_rows(parts, [0, 1] * 200), by_class, 400)[1]
    part = split_off(as_rows(parts[150:], [0, 1, 1, 0, 1] * 50), by_class, 400)[1]
    assert {parts[n] for n in whole} & set(parts[150:]) == {parts[150 + n] for n in part}


def test_a_line_that_ends_within_a_text_stays_in_it() -> None:
    rows = as_rows(["one\rtwo", "three"], [0, 1])
    whole = Whole(rows, ("text",), ("label",), {2: {"label": "no"}, 3: {"label": "yes"}})
    written = io.StringIO(whole.csv([0, 1]), newline="")
    assert list(csv.reader(written)) == [
        ["id", "text", "label"], ["0", "one\rtwo", "no"], ["1", "three", "yes"],
    ]  # fmt: skip
