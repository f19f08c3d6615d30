"""Parts that do not go together: the first is an error that leads to its key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from bough.recipe.validation import TASK_NAME, Consistent


class Span(Consistent):
    low: int
    high: int

    def _problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        if self.low > self.high:
            yield ("low",), "low is {above} high"
            yield ("high",), "never said"


def test_the_first_problem_is_the_error() -> None:
    assert Span(low=1, high=2).high == 2
    with pytest.raises(ValidationError) as caught:
        Span(low=3, high=2)
    (error,) = caught.value.errors()
    assert error["msg"] == "low is {above} high", "braces are not places to fill"
    assert error["ctx"]["at"] == ("low",)


def test_names_of_tasks() -> None:
    assert all(map(TASK_NAME.fullmatch, ("sst", "a-b_1", "0")))
    assert not any(map(TASK_NAME.fullmatch, ("", "a b", "a+b", "é", "a.b")))
