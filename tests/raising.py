"""A function that fails, to be put in another's place."""

from __future__ import annotations

from collections.abc import Callable


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail
