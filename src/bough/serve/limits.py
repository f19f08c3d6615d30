"""What slow, large and absent clients may hold of a server: a body, a pass of the model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fastapi import HTTPException, Request
from pydantic_core import from_json
from starlette.requests import ClientDisconnect

from bough.serve.errors import unavailable
from bough.serve.schemas import SHOWN
from bough.serve.settings import Limits

BODIES = 16  # of the largest size, that may be under way
SHORT = 2**16  # bytes: such bodies are read while large ones fill all room
GONE = 499  # what nginx logs when a client has left; nobody sees it but the count
PARTS = 20  # for each text that a request may have; a pair has 5, and so many are not held at once
FEWEST = 10_000
PIECE = 2**16  # bytes of a body that are looked at in one go
T = TypeVar("T")


class BodyReader:
    """Reads bodies whole, each within a limit of size and time, and all within one of size.

    A large body is parsed in a thread, one at a time: the loop answers others in the meantime.
    """

    def __init__(self, limits: Limits):
        self.limits = limits
        self.held = 0  # bytes of bodies that are not short
        self._thread = ThreadPoolExecutor(1, "bodies")

    async def read(self, request: Request, deadline: float, parse: Callable[[bytes], T]) -> T:
        """The body as `parse` reads it."""
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
            if len(body) <= SHORT:
                return self._parse(parse, bytes(body))
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._parse, parse, bytes(body))
        except TimeoutError:
            sentence = f"the body did not arrive within {self.limits.timeout:g} s"
            raise HTTPException(408, sentence) from None
        except ClientDisconnect:
            raise HTTPException(GONE, "the client has left") from None
        finally:
            self.held -= held

    def _parse(self, parse: Callable[[bytes], T], body: bytes) -> T:
        """Objects are made only of what could be a request: a million lists would cost seconds."""
        most = max(FEWEST, PARTS * self.limits.texts)
        if count_parts(body, most) > most:
            start = body[:most]  # has no more of them than bytes
            try:
                from_json(start[: start.rfind(b",")], allow_partial=True)
            except ValueError as error:
                raise HTTPException(400, f"the body is not JSON ({error})") from None
            texts = f"send at most {self.limits.texts:,} texts at a time"
            raise HTTPException(422, f"the body has more than {most:,} parts; {texts}")
        return parse(body)

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


def count_parts(body: bytes, most: int) -> int:
    """What of a body becomes an object: strings, and what begins or parts the others.

    Piece by piece, and between two of them others have their turn: a pass over all bytes takes ten
    milliseconds, which the loop would wait for after each of its calls of the system. Beyond `most`
    they are not all counted.
    """
    count, start, inside = 0, 0, False  # inside a string
    while start < len(body) and count <= most:
        piece = body[start : start + PIECE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # what it escapes belongs to it
            piece = body[start : start + PIECE + 1]
        start += len(piece)
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b" ".join(parts[inside::2])
        count += (len(parts) - inside) // 2 + sum(map(outside.count, (b"[", b"{", b",")))
        inside ^= len(parts) % 2 == 0
        if start < len(body):
            time.sleep(0)
    return count


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
