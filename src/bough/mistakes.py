"""A user's mistake: one sentence that names the place and the value and says what to do.

The command line prints it without a traceback and exits with 2; a library user catches it as
`bough.Mistake`. Faults of bough itself stay ordinary exceptions.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class Mistake(Exception):
    """Something the user can mend; the message says where and how."""


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` when a known word is close, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f"; did you mean {close[0]!r}?" if close else ""
