"""Processes that check and tokenise parts of a table while this one reads the next.

They are started as programs of their own, not forked from a process that computes, nor by running a
user's script again. Each has a pipe; parts go out in turn and come back in order.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from tokenizers import Tokenizer

from bough.data.prepared.part import Part, PartReader, Reading
from bough.data.tables import Table
from bough.machine_limits import cores

AHEAD = 4  # parts that a process has, at most: the one at hand, and the next ones


def read_parts(
    tables: Iterable[Table], reading: Reading, several: bool, tokenizer: Tokenizer | None = None
) -> Iterator[tuple[Table, Part]]:
    """Each part of a table, and what it becomes; by `several` processes or by this one."""
    if not several or cores() == 1:
        reader = PartReader(reading, tokenizer)
        for table in tables:
            yield table, reader(table)
        return
    with ExitStack() as stack:
        processes = [stack.enter_context(_Process(reading)) for _ in range(cores())]
        under_way: deque[tuple[Table, _Process]] = deque()
        for number, table in enumerate(tables):
            if len(under_way) == AHEAD * len(processes):
                before, process = under_way.popleft()
                yield before, process.result()
            process = processes[number % len(processes)]
            process.send(replace(table, broken=(), notes=()))
            # What is kept of it here is what the process does not tell.
            under_way.append((replace(table, columns={}), process))
        for before, process in under_way:
            yield before, process.result()


class _Process:
    """One of them, from this side."""

    def __init__(self, reading: Reading):
        self.reading = reading

    def __enter__(self) -> _Process:
        self.pipe, theirs = Pipe()
        command = [sys.executable, "-P", "-m", __name__, str(theirs.fileno())]
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        self.send(self.reading)
        return self

    def __exit__(self, *_: object) -> None:
        self.pipe.close()
        if self.process.poll() is None:
            self.process.kill()  # it holds nothing that anybody needs
        self.process.wait()

    def send(self, what: object) -> None:
        try:
            self.pipe.send(what)
        except OSError:
            self._gone()

    def result(self) -> Part:
        part: object = None
        try:
            part = self.pipe.recv()
        except (EOFError, OSError):
            self._gone()
        if isinstance(part, str):
            raise RuntimeError(f"a part of the rows could not be prepared:\n{part}")
        assert isinstance(part, Part)
        return part

    def _gone(self) -> None:
        code = self.process.wait()
        raise RuntimeError(
            f"a process that prepares rows has ended (exit code {code}); was there memory for it?"
        )


def _work(pipe: Connection) -> None:
    """The other side: parts are taken from the pipe as they come, so that no side waits for the
    other to read."""
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def take() -> None:
        with suppress(EOFError, OSError):
            while True:
                waiting.put(pipe.recv())
        waiting.put(None)

    threading.Thread(target=take, daemon=True).start()
    reader = PartReader(waiting.get())
    while (table := waiting.get()) is not None:
        try:
            made: object = reader(table)
        except BaseException:  # a panic of the tokenizer is no Exception
            made = traceback.format_exc()
        with suppress(OSError):
            pipe.send(made)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end of the pipe is enough
    _work(Connection(int(sys.argv[1])))
