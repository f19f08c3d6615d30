"""What one connection may hold, and for how long: every state that it can be in has an end.

uvicorn bounds heads and closes connections that stay quiet between requests. It does not bound
how long a head, a body or the reading of an answer may take, nor how many requests are sent ahead
of their answers, nor how many connections idle: its `limit_concurrency` counts those, too, so that
whoever opens enough of them shuts out all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

PIPELINED = 16  # requests that may be sent ahead of the answers before them
PACE = 0.002  # seconds between such requests of all connections: others go first
FRESH = 1.0  # seconds that a connection has for its request while others are in the way longer
SLOW = 5.0  # seconds after which a body that has not come makes room for others
READING = 1.0  # seconds in which something is read at the server's end, or nobody reads
BUSY = b'{"error":"every connection is in use; try again later"}'
BUSY_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(BUSY), BUSY)
)


def limited_protocol(
    connections: int, timeout: float, closed: Callable[[], None] | None = None
) -> type[H11Protocol]:
    """The protocol of one server's connections; `closed` is called after each.

    A connection has `timeout` seconds to send a head, as many for its body and its answer, and as
    many to read that, whatever drips in or out. When there are too many connections, the one that
    has been idle longest goes: without a request under way, or with a client that does not read.
    """
    return type("Protocol", (LimitedProtocol,), {"pool": Pool(connections, timeout, closed)})


@dataclass
class Pool:
    """What the connections of one server know of each other."""

    most: int
    timeout: float
    closed: Callable[[], None] | None = None
    # Both since when, and in that order: without a request, and with a body that is awaited.
    idle: dict[LimitedProtocol, float] = field(default_factory=dict)
    bodies: dict[LimitedProtocol, float] = field(default_factory=dict)
    ahead: dict[LimitedProtocol, None] = field(default_factory=dict)  # wait for their turn
    _turn: asyncio.TimerHandle | None = None  # the next one

    def in_the_way(self, now: float) -> LimitedProtocol | None:
        """The connection that has to go when there is no room."""
        for since, late in ((self.idle, FRESH), (self.bodies, SLOW), (self.idle, -1.0)):
            if since and now - next(iter(since.values())) > late:
                return next(iter(since))
        return None

    def wait(self, connection: LimitedProtocol) -> None:
        """For the turn of a request that was sent ahead."""
        self.ahead[connection] = None
        if not self._turn:
            self._turn = connection.loop.call_later(PACE, self._next)

    def _next(self) -> None:
        self._turn = None
        if connection := next(iter(self.ahead), None):
            del self.ahead[connection]
            if self.ahead:
                self._turn = connection.loop.call_later(PACE, self._next)
            connection.take_turn()


class LimitedProtocol(H11Protocol):
    pool: Pool
    _request: RequestResponseCycle | None = None  # under way
    _unread = False  # its client has let the answer wait
    _ahead = 0  # requests in a row that were here before the last answer was written
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.pool.most:
            if not (other := self.pool.in_the_way(self.loop.time())):
                transport.write(BUSY_RESPONSE)
                transport.close()
                return
            other._abort()
        self._start_timer(self.pool.timeout)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def handle_events(self) -> None:
        if self not in self.pool.ahead:
            super().handle_events()

    def on_response_complete(self) -> None:
        self._ahead = self._ahead + 1 if self.conn.trailing_data[0] else 0
        if self._ahead and not self.transport.is_closing():
            self.pool.wait(self)  # else all time would go to who does not wait for answers
        super().on_response_complete()
        if self in self.pool.ahead:
            self.flow.pause_reading()
        self._watch()

    def take_turn(self) -> None:
        """Read on, with what has been sent ahead."""
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        self.handle_events()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()
        if self.pool.closed:
            self.pool.closed()

    def shutdown(self) -> None:
        """The server ends: what was accepted is answered, to those who read."""
        super().shutdown()
        self._hurry(self.loop.time() + SLOW, -1)

    def _hurry(self, last: float, unread: int) -> None:
        if self not in self.connections:
            return
        left = self.transport.get_write_buffer_size()
        if (left and left == unread) or (self in self.pool.bodies and self.loop.time() > last):
            self._abort()
        else:
            self.loop.call_later(READING, self._hurry, last, left)

    def _watch(self) -> None:
        """Every request has a time, and so has what is between them; nothing else counts."""
        if self not in self.connections:  # it was lost while its answer was made
            return
        cycle = self.cycle
        request = None if cycle is None or cycle.response_complete else cycle
        if request is not self._request:
            self.pool.bodies.pop(self, None)
            self._request, self._unread = request, False
            self._start_timer((2 if request else 1) * self.pool.timeout)
            if request and self._ahead >= PIPELINED:
                request.keep_alive = False
        if self.flow.write_paused and not self._unread:
            self._unread = True
            self._start_timer(self.pool.timeout)
        if request is None or self.flow.write_paused or self.transport.is_closing():
            self.pool.idle.setdefault(self, self.loop.time())
        else:
            self.pool.idle.pop(self, None)
        if request and request.more_body:
            self.pool.bodies.setdefault(self, self.loop.time())
        else:
            self.pool.bodies.pop(self, None)

    def _start_timer(self, seconds: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._abort)

    def _forget(self) -> None:
        self.pool.idle.pop(self, None)
        self.pool.bodies.pop(self, None)
        self.pool.ahead.pop(self, None)
        if self._timer:
            self._timer.cancel()

    def _abort(self) -> None:
        self._forget()
        self.transport.abort()  # closing would wait for a client that does not read
