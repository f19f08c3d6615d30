"""What can be seen of a column's cells."""

from __future__ import annotations

import pytest

from bough.data.drafting.column import Column, base, encodable
from tests.data.reading import texts


def test_texts_labels_and_ids_are_told_apart() -> None:
    text = Column.of("review", texts(40))
    assert (text.is_text, text.is_label, text.is_id) == (True, False, False)
    label = Column.of("stars", [i % 5 for i in range(40)])
    assert (label.is_text, label.is_label, label.is_id) == (False, True, False)
    number = Column.of("row", list(range(40)))
    assert (number.is_text, number.is_label, number.is_id) == (False, False, True)


def test_cells_that_hold_nothing_do_not_count() -> None:
    column = Column.of("score", ["1", "", None, "2.5", float("nan")])
    assert column.values == [1, 2.5]
    assert not column.whole


@pytest.mark.parametrize(
    ("cells", "separator", "labels"),
    [
        (["a|b", "b", "a|c", "c"] * 3, "|", ("a", "b", "c")),
        (['["a", "b"]', "[]"] * 3, "[", ("a", "b")),
        (["Rome, Italy", "Lyon, France"] * 3, "", ()),
    ],
)
def test_several_labels_in_a_cell(
    cells: list[str], separator: str, labels: tuple[str, ...]
) -> None:
    column = Column.of("tags", cells)
    assert column.separator == separator
    if separator:
        assert column.labels == labels


def test_names() -> None:
    assert base("Sentence_1") == base(" sentence ") == "sentence"
    assert encodable("é")
    assert not encodable("\udce9")
