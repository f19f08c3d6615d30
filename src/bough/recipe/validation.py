"""What checks of settings share: errors that lead to a key, and what a task may be called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Self

from pydantic import BaseModel, model_validator
from pydantic_core import PydanticCustomError

TASK_NAME = re.compile(r"[A-Za-z0-9_-]+")


def misfit(sentence: str, *at: str | int) -> PydanticCustomError:
    """What a validator raises about settings that do not go together, and the key to fix."""
    # The sentence is passed as a value, because braces in it would be taken for places to fill.
    return PydanticCustomError("misfit", "{sentence}", {"sentence": sentence, "at": at})


def one_or_several(value: object) -> object:
    """A list may be left out where it would have one name."""
    return (value,) if isinstance(value, str) else value


class Consistent(BaseModel):
    """Settings whose parts must go together; the first that do not is an error."""

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        for path, sentence in self._problems():
            raise misfit(sentence, *path)
        return self

    def _problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """What does not go together: where to fix it, and a sentence."""
        raise NotImplementedError
