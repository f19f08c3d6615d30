"""Bodies of requests: read whole, within a limit of their own, of time, and of all together."""

from __future__ import annotations

import asyncio

from fastapi import Request
from starlette.requests import ClientDisconnect

from bough.serve.requests import SHOWN, Limits, Refusal

DRAINED = 16 * 2**20  # bytes of a too large body that are read, so that its sender sees the answer
BODIES = 16  # of the largest size, that may be under way
SHORT = 2**16  # bytes: such bodies are read while large ones fill all room
GONE = 499  # what nginx logs when a client has left; nobody sees it but the count


class Bodies:
    """Reads bodies; those of all requests together have a limit, too."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.held = 0  # bytes of bodies that are not short

    async def read(self, request: Request, deadline: float) -> bytes:
        self._check_head(request)
        parts: list[bytes] = []
        size = held = 0
        try:
            async with asyncio.timeout_at(deadline):
                async for part in request.stream():
                    size += len(part)
                    if size > DRAINED:
                        break
                    if size <= self.limits.body:
                        parts.append(part)
                        held += self._hold(len(part) if size > SHORT else 0)
        except TimeoutError:
            sentence = f"the body did not arrive within {self.limits.timeout:g} s"
            raise Refusal(408, sentence) from None
        except ClientDisconnect:
            raise Refusal(GONE, "the client has left") from None
        finally:
            self.held -= held
        if size > self.limits.body:
            raise self._too_large()
        return b"".join(parts)

    def _check_head(self, request: Request) -> None:
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != "application/json":
            what = f"{kind[:SHOWN]!r}" if kind else "missing"
            raise Refusal(415, f"the content type is {what}; send Content-Type: application/json")
        told = request.headers.get("content-length", "")
        if told.isdecimal() and (len(told) > 18 or int(told) > DRAINED):
            raise self._too_large()

    def _hold(self, size: int) -> int:
        if size and self.held + size > BODIES * self.limits.body:
            raise Refusal(503, "too many large bodies are under way; try again later", 1)
        self.held += size
        return size

    def _too_large(self) -> Refusal:
        most = self.limits.body
        return Refusal(413, f"the body is larger than {most:,} bytes; send fewer texts at once")
