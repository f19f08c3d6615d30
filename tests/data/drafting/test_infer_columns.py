"""What columns are for: guessed from their names and values."""

from __future__ import annotations

from typing import Any

import pytest

from bough.data.drafting import infer_columns, infer_kind
from bough.data.drafting.column import Column
from tests.data.reading import texts, words


def guessed(columns: dict[str, list[Any]]) -> tuple[tuple[str, ...], str, str]:
    guess = infer_columns.columns(columns, "f.csv")
    label = Column.of(guess.label, columns[guess.label])
    return guess.text, guess.label, infer_kind.kind(label, "f.csv")[0]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"label": words(40, "1", "2"), "text": texts(40)}, (("text",), "label", "classify")),
        ({"id": list(range(40)), "review": texts(40), "stars": [i % 5 + 1 for i in range(40)]},
         (("review",), "stars", "classify")),
        ({"s1": texts(40), "s2": texts(40, 9), "gold": [i / 10 for i in range(40)]},
         (("s1", "s2"), "gold", "regress")),
        ({"premise": texts(40), "hypothesis": texts(40, 3), "label": words(40, "yes", "no")},
         (("premise", "hypothesis"), "label", "classify")),
        ({"text_a": texts(40), "text_b": texts(40, 3), "class": words(40, "0.0", "1.0")},
         (("text_a", "text_b"), "class", "classify")),
        ({"title": texts(40), "body": texts(40, 3), "topic": words(40, "x", "y", "z")},
         (("body",), "topic", "classify")),
        ({"what was said": texts(40), "grade": words(40, "A", "B")},
         (("what was said",), "grade", "classify")),
        ({"text": texts(40), "score": [i % 40 for i in range(40)]},
         (("text",), "score", "regress")),
        ({"text": texts(60), "label": [i % 30 for i in range(60)]},
         (("text",), "label", "classify")),
        ({"text": texts(40), "tags": words(40, "red|blue", "red", "green|red", "blue|green")},
         (("text",), "tags", "multilabel")),
        ({"text": texts(40), "label": words(40, '["a", "b"]', "[]", '["b"]')},
         (("text",), "label", "multilabel")),
        ({"text": texts(40), "label": words(40, "Rome, Italy", "Lyon, France")},
         (("text",), "label", "classify")),
        ({"text": texts(40), "label": [i % 2 == 0 for i in range(40)]},
         (("text",), "label", "classify")),
        ({"text": texts(40), "label": words(40, "very good indeed sir", "not good at all")},
         (("text",), "label", "classify")),
    ],
)  # fmt: skip
def test_guesses(columns: dict[str, list[Any]], expected: Any) -> None:
    assert guessed(columns) == expected
