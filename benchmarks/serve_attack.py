"""A server under attack: is it alive all the time, and are honest clients answered?

    python benchmarks/serve_attack.py

Each attack runs for some seconds against a server of its own, with a small encoder of random
weights, on loopback only. Meanwhile /health is asked every 50 ms, each time on a connection of its
own, and 50 honest requests of one text are sent, each tried again after the second that
`Retry-After` asks for, three times at most. Three minutes in all; about as many files are opened as
the process may have.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch

from tests import serving
from tests.serve.attacked import CURSE

SECONDS = 15  # of each attack
HONEST = 50
DRIPPING = 1500
HEAD = "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
Address = tuple[str, int]
Attack = Callable[[Address], Awaitable[None]]


async def ask(address: Address, message: bytes) -> int:
    """The status of one request on a connection of its own; 0 where there is none."""
    try:
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection(*address)
            try:
                writer.write(message)
                line = await reader.readline()
                await reader.read(2**20)
                return int(line.split()[1]) if line else 0
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError, IndexError):
        return 0


def post(body: bytes) -> bytes:
    return f"{HEAD}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()


async def nothing(_: Address) -> None:
    await asyncio.sleep(SECONDS)


async def holding(address: Address, count: int, work: Callable[..., Awaitable[None]]) -> None:
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


async def never_reading(address: Address) -> None:
    """64 clients send requests ahead and read no answer."""

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(200):
            writer.write(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 50)
            await writer.drain()
            await asyncio.sleep(0.2)

    await holding(address, 64, work)


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

    await holding(address, min(DRIPPING, files - 200), work)


async def lists(address: Address) -> None:
    """Twelve bodies of a million empty lists at a time."""
    body = post(b"[" + b"[]," * (4 * 2**20 // 3 - 2) + b"[]]")
    await _at_a_time(12, lambda: ask(address, body))


async def signs(address: Address) -> None:
    """Twelve bodies at a time of nothing but what has to be looked at byte by byte."""
    body = post(b'{"texts":["' + b'\\",' * (4 * 2**20 // 3 - 9) + b'"]}')
    await _at_a_time(12, lambda: ask(address, body))


async def panics(address: Address) -> None:
    """Eight texts at a time, a new one each time, that make the tokenizer panic."""
    number = iter(range(10**9))

    def one() -> Awaitable[int]:
        return ask(address, post(json.dumps({"texts": [f"{CURSE} {next(number)}"]}).encode()))

    await _at_a_time(8, one)


async def _at_a_time(count: int, work: Callable[[], Awaitable[object]]) -> None:
    async def one() -> None:
        while True:
            await work()

    await asyncio.gather(*(one() for _ in range(count)))


async def health(address: Address, times: list[float]) -> None:
    while True:
        began = time.perf_counter()
        status = await ask(address, get("/health"))
        times.append(time.perf_counter() - began if status == 200 else float("inf"))
        await asyncio.sleep(0.05)


async def honest(address: Address, statuses: list[int]) -> None:
    body = post(json.dumps({"texts": ["the old tree"]}).encode())
    for _ in range(HONEST):
        for _ in range(4):
            status = await ask(address, body)
            if status == 200:
                break
            await asyncio.sleep(1)
        statuses.append(status)
        await asyncio.sleep(SECONDS / HONEST / 2)


async def attacked(attack: Attack, address: Address) -> tuple[list[float], list[int]]:
    times: list[float] = []
    statuses: list[int] = []
    hostile = asyncio.create_task(attack(address))
    await asyncio.sleep(1)
    watching = asyncio.create_task(health(address, times))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2 * SECONDS):
            await honest(address, statuses)
    for task in (watching, hostile):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return times, statuses


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = serving.model().save(Path(place) / "model")
        print("| attack | /health, p99 | honest requests answered | seconds to end |")
        print("|---|--:|--:|--:|")
        for attack in (nothing, never_reading, dripping, lists, signs, panics):
            server = serving.Server(folder, program="tests.serve.attacked")
            threading.Thread(target=server.process.stdout.read, daemon=True).start()
            host, port = server.url.removeprefix("http://").split(":")
            times, statuses = asyncio.run(attacked(attack, (host, int(port))))
            began = time.monotonic()
            server.process.terminate()
            server.process.wait(60)
            ended = time.monotonic() - began
            worst = sorted(times)[min(len(times) - 1, int(0.99 * len(times)))]
            name = attack.__name__.replace("_", " ")
            share = statuses.count(200) / HONEST
            print(f"| {name} | {1e3 * worst:.0f} ms | {share:.2f} | {ended:.1f} |", flush=True)


if __name__ == "__main__":
    main()
