"""Several processes answer on one port: a parent hands connections out, workers answer them.

The parent loads the model, computes nothing, and forks: the workers have its weights in common, as
long as nobody writes to them, and a new worker is there at once. A connection goes to the worker
with the fewest. Between the parent and each worker is a channel: open connections come down it,
single bytes go up (READY, TAKEN, CLOSED, FAILED). Its end is the end of the other side: a worker
that dies is replaced, and what it had not taken yet goes to others; workers whose parent ends
answer what they have taken and end, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import uvicorn

from bough.errors import UserError

READY, TAKEN, CLOSED, FAILED = b"r", b"t", b"c", b"f"  # the last is followed by a sentence
FRUITLESS = 3  # workers in a row that may end before they are ready
FULL = 0.05  # seconds until a channel that was full is tried again
PATIENCE = 15  # seconds beyond the time of a request after which a worker is not waited for
Work = Callable[[socket.socket], None]


@dataclass
class Worker:
    process: int
    channel: socket.socket
    connections: int = 0
    handed: deque[socket.socket] = field(default_factory=deque)  # and not taken yet
    ready: bool = False


class Workers:
    """The parent's side."""

    def __init__(
        self, count: int, listener: socket.socket, work: Work, gone: Callable[[int], None]
    ):
        """`work` is what a worker does with its channel; `gone` is told of each that has ended."""
        self.count = count
        self.listener = listener
        self.work = work
        self.gone = gone
        self.workers: list[Worker] = []
        self.waiting: deque[socket.socket] = deque()  # connections that nobody could be given
        self._events = selectors.DefaultSelector()
        self._listening = False
        self._signals: list[int] = []
        self._fruitless = 0

    def run(self, ready: Callable[[], None], timeout: float) -> None:
        """Until a signal: then what was accepted is answered, for about `timeout` seconds.

        `ready` is called when the first worker is.
        """
        with self._heard():
            try:
                for _ in range(self.count):
                    self._start()
                while not self._signals:
                    self._turn()
                    if self._listening:
                        ready()
                        ready = _nothing
            finally:
                self._end(timeout + PATIENCE)
        if signal.SIGINT in self._signals:
            raise KeyboardInterrupt

    def _turn(self) -> None:
        for key, _ in self._events.select(FULL if self.waiting else None):
            key.data()
        while self.waiting and self._hand_over(self.waiting[0]):
            self.waiting.popleft()
        self._listen(not self.waiting and any(worker.ready for worker in self.workers))

    @contextlib.contextmanager
    def _heard(self) -> Iterator[None]:
        """Signals wake the loop, and are counted."""
        awake, note = socket.socketpair()
        with awake, note, self._events:
            awake.setblocking(False)
            note.setblocking(False)
            self._events.register(awake, selectors.EVENT_READ, lambda: awake.recv(64))
            old = {
                number: signal.signal(number, lambda number, _: self._signals.append(number))
                for number in (signal.SIGINT, signal.SIGTERM)
            }
            before = signal.set_wakeup_fd(note.fileno(), warn_on_full_buffer=False)
            try:
                yield
            finally:
                signal.set_wakeup_fd(before)
                for number, handler in old.items():
                    signal.signal(number, handler)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        process = os.fork()
        if not process:
            ours.close()
            self._work(theirs)
        theirs.close()
        ours.setblocking(False)
        worker = Worker(process, ours)
        self.workers.append(worker)
        self._events.register(ours, selectors.EVENT_READ, lambda: self._hear(worker))

    def _work(self, channel: socket.socket) -> None:
        """In the new process: nothing of the parent's is left open, or its end would not show."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGINT, signal.SIGTERM):  # the parent's end is the workers'
                signal.signal(number, signal.SIG_IGN)
            self._events.close()
            self.listener.close()
            for other in self.workers:
                for inherited in (other.channel, *other.handed):
                    inherited.close()
            for inherited in self.waiting:
                inherited.close()
            self.work(channel)
            status = 0
        except UserError as error:
            channel.setblocking(True)
            channel.sendall(FAILED + str(error).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)  # what the parent would do at its end is the parent's

    def _hear(self, worker: Worker) -> None:
        try:
            told = worker.channel.recv(2**16)
        except OSError:  # it was killed with connections unread
            told = b""
        if told.startswith(FAILED):
            raise UserError(told[1:].decode())
        worker.connections -= told.count(CLOSED)
        if READY in told:
            worker.ready, self._fruitless = True, 0
        for _ in range(told.count(TAKEN)):
            worker.handed.popleft().close()
        if not told:
            self._replace(worker)

    def _replace(self, worker: Worker) -> None:
        self._forget(worker)
        _, status = os.waitpid(worker.process, 0)
        self.gone(worker.process)
        code = os.waitstatus_to_exitcode(status)
        why = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        self._fruitless += not worker.ready
        if self._fruitless == FRUITLESS:
            raise ChildProcessError(0, "the workers end before they can answer")
        self.waiting += worker.handed
        print(f"bough: a worker has ended {why}; another takes its place", file=sys.stderr)
        self._start()

    def _forget(self, worker: Worker) -> None:
        self._events.unregister(worker.channel)
        worker.channel.close()
        self.workers.remove(worker)

    def _listen(self, listening: bool) -> None:
        """While no worker has room, connections wait where they come in."""
        if listening and not self._listening:
            self.listener.setblocking(False)
            self._events.register(self.listener, selectors.EVENT_READ, self._accept)
        elif self._listening and not listening:
            self._events.unregister(self.listener)
        self._listening = listening

    def _accept(self) -> None:
        try:
            connection, _ = self.listener.accept()
        except OSError:  # it has gone, or there are too many files: those in use will be fewer
            time.sleep(FULL / 10)
            return
        self.waiting.append(connection)

    def _hand_over(self, connection: socket.socket) -> bool:
        """To the worker with the fewest connections; one that is stuck is passed over."""
        for worker in sorted(self.workers, key=lambda one: one.connections):
            if worker.ready:
                try:
                    socket.send_fds(worker.channel, [b"."], [connection.fileno()])
                except BlockingIOError:
                    continue
                except OSError:  # it has died, which will be heard
                    worker.ready = False
                    continue
                worker.connections += 1
                worker.handed.append(connection)
                return True
        return False

    def _end(self, seconds: float) -> None:
        """No more connections; every worker ends by itself, or is ended."""
        self.listener.close()
        for connection in self.waiting:
            connection.close()
        for worker in self.workers:
            with contextlib.suppress(OSError):  # it has ended already
                worker.channel.shutdown(socket.SHUT_WR)
        last = time.monotonic() + seconds
        heard = len(self._signals)
        while self.workers:
            if time.monotonic() > last or signal.SIGINT in self._signals[heard:]:
                for worker in self.workers:
                    os.kill(worker.process, signal.SIGKILL)
            for worker in [*self.workers]:
                if os.waitpid(worker.process, os.WNOHANG) != (0, 0):
                    self._forget(worker)
            time.sleep(0.02)


def _nothing() -> None:
    pass


def tell(channel: socket.socket, what: bytes) -> None:
    """A worker's word to its parent."""
    with contextlib.suppress(OSError):  # without a parent the end is near
        channel.send(what)


class HandedServer(uvicorn.Server):
    """A worker's side: a server whose connections come from the parent, as does its end."""

    def __init__(self, config: uvicorn.Config, channel: socket.socket):
        super().__init__(config)
        self.channel = channel
        self._arriving: set[asyncio.Task[object]] = set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are for the parent."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self.channel.setblocking(False)
        asyncio.get_running_loop().add_reader(self.channel, self._receive)
        tell(self.channel, READY)

    def _receive(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            sent, handed, _, _ = socket.recv_fds(self.channel, 1, 1)
        except BlockingIOError:
            return
        except OSError:
            sent, handed = b"", []
        for number in handed:
            tell(self.channel, TAKEN)
            arriving = loop.create_task(self._take(socket.socket(fileno=number)))
            self._arriving.add(arriving)
            arriving.add_done_callback(self._arriving.discard)
        if not sent:
            loop.remove_reader(self.channel)
            self.should_exit = True

    async def _take(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(self._protocol, connection)
        except OSError:  # its client has gone
            connection.close()
            tell(self.channel, CLOSED)

    def _protocol(self) -> asyncio.Protocol:
        made = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        assert isinstance(made, asyncio.Protocol)
        return made

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._arriving:
            await asyncio.wait(self._arriving)
        await super().shutdown(sockets)
