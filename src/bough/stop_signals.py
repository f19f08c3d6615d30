"""Ctrl-C and SIGTERM heard as a wish to stop, which is granted when the work at hand is done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def heard(note: Callable[[], None]) -> Iterator[None]:
    """Within, each of the two signals calls `note` and does nothing else."""
    if threading.current_thread() is not threading.main_thread():  # which alone may listen
        yield
        return

    def call(number: int, frame: FrameType | None) -> None:
        note()

    old = {number: signal.signal(number, call) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
