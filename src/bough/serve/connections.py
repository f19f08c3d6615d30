"""Connections: at most so many, and none that holds its place for long without asking anything."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

BODY = b'{"error":"every connection is in use; try again later"}'
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


def bounded(most: int, patience: float) -> type[H11Protocol]:
    """The protocol of one server's connections.

    A connection without a request under way is idle. After `patience` seconds it is closed,
    whatever drips in; and when there are too many connections, the one that has been idle longest
    makes room.
    """
    idle: dict[Connection, asyncio.TimerHandle] = {}  # in the order in which they became so

    class Connection(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > most:
                if not idle:
                    transport.write(FULL)
                    transport.close()
                    return
                next(iter(idle))._hang_up()
            self._look()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._look()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._look()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._leave()

        def _look(self) -> None:
            if self.cycle is not None and not self.cycle.response_complete:
                self._leave()
            elif self not in idle:
                idle[self] = self.loop.call_later(patience, self._hang_up)

        def _leave(self) -> None:
            if timer := idle.pop(self, None):
                timer.cancel()

        def _hang_up(self) -> None:
            self._leave()
            self.transport.abort()  # closing would wait for a client that does not read

    return Connection
