"""The attackers of serve_attack.py, in a process of their own: they must not slow down its clock.

    python benchmarks/serve_attackers.py NAME HOST PORT

They go on until they are ended. Loopback only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sys
from collections.abc import Awaitable, Callable

DRIPPING = 1500  # connections
CURSE = "abracadabra"  # makes the tokenizer of tests.serve.attacked panic
HEAD = "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
Address = tuple[str, int]


async def ask(address: Address, message: bytes, seconds: float = 20) -> tuple[int, bytes]:
    """Status, and head and body, of one request on a connection of its own; 0: no answer."""
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(*address)
            try:
                writer.write(message)
                answer = await reader.read()
                return int(answer.split(None, 2)[1]), answer
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError, IndexError):
        return 0, b""


def post(body: bytes) -> bytes:
    return f"{HEAD}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def texts(*some: str) -> bytes:
    return post(json.dumps({"texts": some}).encode())


def get(path: str, host: str = "localhost") -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode()


async def never_reading(address: Address) -> None:
    """64 clients send requests ahead and read no answer."""

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(200):
            writer.write(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 50)
            await writer.drain()
            await asyncio.sleep(0.2)

    await _holding(address, 64, work)


async def dripping(address: Address) -> None:
    """Half of them send a head byte by byte, half a body."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    body = f"{HEAD}content-length: 9999\r\n\r\n".encode()
    starts = iter([b"GET / HTTP/1.1\r\n", body] * DRIPPING * 99)

    async def work(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(next(starts))
        while not writer.transport.is_closing():
            await asyncio.sleep(2)
            writer.write(b"x")
            await writer.drain()

    await _holding(address, min(DRIPPING, files - 200), work)


async def empty_lists(address: Address) -> None:
    """Twelve bodies of a million empty lists at a time."""
    body = post(b"[" + b"[]," * (4 * 2**20 // 3 - 2) + b"[]]")
    await _at_a_time(12, lambda: ask(address, body))


async def quotes(address: Address) -> None:
    """Twelve bodies at a time of nothing but what has to be looked at byte by byte."""
    body = post(b'{"texts":["' + b'\\",' * (4 * 2**20 // 3 - 9) + b'"]}')
    await _at_a_time(12, lambda: ask(address, body))


async def panics(address: Address) -> None:
    """Eight texts at a time, a new one each time, that make the tokenizer panic."""
    number = iter(range(10**9))
    await _at_a_time(8, lambda: ask(address, texts(f"{CURSE} {next(number)}")))


async def nothing(_: Address) -> None:
    await asyncio.Event().wait()


ATTACKS = {
    attack.__name__: attack
    for attack in (nothing, never_reading, dripping, empty_lists, quotes, panics)
}


async def _holding(address: Address, count: int, work: Callable[..., Awaitable[None]]) -> None:
    """So many connections at a time, each opened again when the server has closed it."""

    async def one() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(*address)
                try:
                    await work(reader, writer)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.5)

    await asyncio.gather(*(one() for _ in range(count)))


async def _at_a_time(count: int, work: Callable[[], Awaitable[object]]) -> None:
    async def one() -> None:
        while True:
            await work()

    await asyncio.gather(*(one() for _ in range(count)))


if __name__ == "__main__":
    os.nice(5)  # they stand for other machines, which would take no time of the server's
    asyncio.run(ATTACKS[sys.argv[1]]((sys.argv[2], int(sys.argv[3]))))
