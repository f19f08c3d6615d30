"""A user's mistake: one sentence that names the place and the value and says what to do.

The command line prints it without a traceback and exits with 2; a library user catches it as
`bough.UserError`. Faults of bough itself stay ordinary exceptions.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class UserError(Exception):
    """Something the user can fix; the message says in one sentence where and how.

    Example:
        >>> try:
        ...     bough.load("runs/frist")
        ... except bough.UserError as error:
        ...     print(error)
        runs/frist: no such run or model folder; did you mean 'runs/first'?
    """


def nearest(word: str, known: Iterable[str], before: str = "") -> str:
    """`; did you mean 'x'?` when a known word is close, else nothing; `before` is what has to stand
    before the word, such as its folder."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.65)
    return f"; did you mean {before + close[0]!r}?" if close else ""


def shorten(value: object, most: int = 60) -> str:
    """The value as a message shows it."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print whole numbers of thousands of digits
        text = f"a {type(value).__name__} too long to print"
    return text if len(text) <= most else text[: most - 3] + "..."


def listed(names: Sequence[str], most: int = 10) -> str:
    """Names in a sentence, the first of many."""
    shown = ", ".join(name if len(name) <= 40 else name[:37] + "..." for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
