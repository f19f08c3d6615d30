"""What slow, large and absent clients may hold: a connection, a body, a pass of the model.

uvicorn bounds heads and closes connections that stay quiet between requests. It does not bound
how long a head, a body or the reading of an answer may take, nor how many connections idle: its
`limit_concurrency` counts those, too, so that whoever opens enough of them shuts out all others.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from bough.serve.errors import unavailable
from bough.serve.schemas import SHOWN
from bough.serve.settings import Limits

BODIES = 16  # of the largest size, that may be under way
SHORT = 2**16  # bytes: such bodies are read while large ones fill all room
GONE = 499  # what nginx logs when a client has left; nobody sees it but the count
BUSY = b'{"error":"every connection is in use; try again later"}'
BUSY_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(BUSY), BUSY)
)
T = TypeVar("T")


def limited_protocol(connections: int, timeout: float) -> type[H11Protocol]:
    """The protocol of one server's connections.

    A connection is idle without a request under way, and while its client does not read. After
    `timeout` seconds it is closed, whatever drips in; and when there are too many connections, the
    one that has been idle longest goes.
    """
    idle: dict[LimitedProtocol, asyncio.TimerHandle] = {}  # in the order in which they became so

    class LimitedProtocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > connections:
                if not idle:
                    transport.write(BUSY_RESPONSE)
                    transport.close()
                    return
                next(iter(idle))._abort()
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._watch()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._unwatch()

        def _watch(self) -> None:
            asked = self.cycle is not None and not self.cycle.response_complete
            if asked and not self.flow.write_paused:
                self._unwatch()
            elif self not in idle:
                idle[self] = self.loop.call_later(timeout, self._abort)

        def _unwatch(self) -> None:
            if timer := idle.pop(self, None):
                timer.cancel()

        def _abort(self) -> None:
            self._unwatch()
            self.transport.abort()  # closing would wait for a client that does not read

    return LimitedProtocol


class BodyReader:
    """Reads bodies whole, each within a limit of size and time, and all within one of size."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.held = 0  # bytes of bodies that are not short

    async def read(self, request: Request, deadline: float) -> bytes:
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != "application/json":
            what = f"{kind[:SHOWN]!r}" if kind else "missing"
            sentence = f"the content type is {what}; send Content-Type: application/json"
            raise HTTPException(415, sentence)
        length = request.headers.get("content-length", "")
        self._hold(int(length[:18]) if length.isdecimal() else 0, 0)
        body = bytearray()
        held = 0
        try:
            async with asyncio.timeout_at(deadline):
                async for part in request.stream():
                    body += part
                    held += self._hold(len(body), len(part))
        except TimeoutError:
            sentence = f"the body did not arrive within {self.limits.timeout:g} s"
            raise HTTPException(408, sentence) from None
        except ClientDisconnect:
            raise HTTPException(GONE, "the client has left") from None
        finally:
            self.held -= held
        return bytes(body)

    def _hold(self, size: int, part: int) -> int:
        """Take note of a part of a body that now has this size."""
        most = self.limits.body
        if size > most:  # what else comes of it is read and dropped by uvicorn
            sentence = f"the body is larger than {most:,} bytes; send fewer texts at once"
            raise HTTPException(413, sentence)
        if size <= SHORT:
            return 0
        if self.held + part > BODIES * most:
            raise unavailable("too many large bodies are under way; try again later", 1)
        self.held += part
        return part


async def while_connected(result: asyncio.Future[T], request: Request) -> T:
    """Wait as long as the client does: nothing is computed for nobody."""
    leaving = asyncio.ensure_future(_disconnect(request))
    try:
        either: set[asyncio.Future[Any]] = {result, leaving}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise HTTPException(GONE, "the client has left")
        return result.result()
    finally:
        result.cancel()
        leaving.cancel()


async def _disconnect(request: Request) -> None:
    """After the body, a client has nothing more to tell but that it leaves."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
