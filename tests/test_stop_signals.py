"""Signals are wishes within, and what they were before and after."""

from __future__ import annotations

import os
import signal
import threading

from bough.stop_signals import heard


def test_both_signals_are_heard_and_given_back() -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    count = [0]

    def note() -> None:
        count[0] += 1

    with heard(note):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    assert count == [2]
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_another_thread_leaves_them_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    within: list[object] = []

    def work() -> None:
        with heard(lambda: None):
            within.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert within == [before]
