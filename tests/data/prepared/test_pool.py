"""Processes that prepare parts."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from bough.data.prepared import pool
from bough.data.prepared.part import Reading
from bough.data.tables import Table
from tests import tiny

READING = Reading(("text",), tokenizer=tiny.tokenizer().to_str(), longest=9)


def tables(count: int = 30) -> Iterator[Table]:
    for n in range(count):
        texts = [f"the {word} tree" for word in tiny.WORDS[:50]]
        yield Table("t.csv", "line", ("text",), {"text": texts}, list(range(50 * n, 50 * n + 50)))


def test_they_come_back_in_order() -> None:
    alone = list(pool.read_parts(tables(), READING, several=False))
    together = list(pool.read_parts(tables(), READING, several=True))
    assert len(alone) == len(together) == 30
    for (_, one), (_, other) in zip(alone, together, strict=True):
        assert one.lines.tolist() == other.lines.tolist()
        assert one.texts.tobytes() == other.texts.tobytes()
        assert one.hashes.tolist() == other.hashes.tolist()
        assert one.tokens is not None
        assert other.tokens is not None
        assert one.tokens.ids.tolist() == other.tokens.ids.tolist()


def test_a_process_that_dies_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "cores", lambda: 2)
    started: list[subprocess.Popen[bytes]] = []
    enter = pool._Process.__enter__

    def noted(self: pool._Process) -> pool._Process:
        made = enter(self)
        started.append(made.process)
        return made

    monkeypatch.setattr(pool._Process, "__enter__", noted)
    parts = pool.read_parts(tables(10_000), READING, several=True)
    next(parts)
    os.kill(started[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"has ended \(exit code -9\)"):
        list(parts)
    assert all(process.poll() is not None for process in started), "none is left"


def test_what_fails_in_a_process_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "cores", lambda: 2)
    odd = Table("t.csv", "line", ("text",), {}, [1])
    with pytest.raises(RuntimeError, match="KeyError"):
        list(pool.read_parts([odd], READING, several=True))
