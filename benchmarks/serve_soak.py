"""A long mixed load on the server: does its memory stay flat, and do its answers stay right?

    python benchmarks/serve_soak.py [--minutes 60] [--rate 10] [--run RUN]

Requests come at a bounded rate, so that it can run beside other work: one to sixteen texts, bodies
that nobody should send, the pages and /metrics, clients that leave before their answer or in the
middle of a body. Every answer to a text is compared with the offline prediction. The server's own
memory (resident, of it alone) is read every second, with whatever passes are under way; what counts
is the median of a minute. The second half of the minutes is told as their lowest and highest
against their median.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))

from serve_clients import close, exchange, request
from serve_load import Bench
from tests.serving import post, wild_bodies

SIZES = (1, 1, 1, 2, 4, 16)  # texts in a request
PATHS = ("/", "/docs", "/tasks", "/metrics", "/health", "/ready", "/openapi.json", "/no/such/path")
EVERY = 1.0  # seconds between looks at the memory
MINUTE = 60  # looks


class Soak:
    def __init__(self, address: tuple[str, int], known: dict, seed: int = 0):
        self.address = address
        self.texts, self.truth = known["texts"], known["answers"]
        self.rng = random.Random(seed)
        self.bodies: Iterator[bytes] = iter(())
        self.counts: Counter[str] = Counter()

    async def one(self) -> None:
        """One request of some kind, on a connection of its own."""
        kind = self.rng.choices(
            (self.ask, self.send_wild, self.look, self.leave), weights=(6, 2, 2, 1)
        )[0]
        try:
            async with asyncio.timeout(60):
                reader, writer = await asyncio.open_connection(*self.address)
                try:
                    await kind(reader, writer)
                finally:
                    writer.close()
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self.counts[f"{kind.__name__}: {type(error).__name__}"] += 1

    async def ask(self, reader, writer) -> None:
        for _ in range(self.rng.choice((1, 1, 3))):
            chosen = self.rng.choices(range(len(self.texts)), k=self.rng.choice(SIZES))
            message = request({"texts": [self.texts[i] for i in chosen]}, self.address[0])
            status, body = await exchange(reader, writer, message)
            self.counts[f"texts: {status}"] += 1
            if status == 200:
                answers = json.loads(body)["answers"]
                right = len(answers) == len(chosen) and all(
                    close(answer, self.truth[i]) for answer, i in zip(answers, chosen, strict=False)
                )
                self.counts["wrong answers"] += not right

    async def send_wild(self, reader, writer) -> None:
        body = next(self.bodies, None)
        if body is None:
            self.bodies = wild_bodies(1000, self.rng.randrange(10**6))
            body = next(self.bodies)
        status, _ = await exchange(reader, writer, post(body))
        self.counts[f"wild bodies: {status}"] += 1

    async def look(self, reader, writer) -> None:
        path = self.rng.choice(PATHS)
        message = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        status, _ = await exchange(reader, writer, message)
        self.counts[f"pages: {status}"] += 1

    async def leave(self, reader, writer) -> None:
        text = json.dumps({"texts": [self.texts[0]] * 16}).encode()
        message = post(text)
        writer.write(message[: self.rng.randrange(len(message) + 1)])
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        await asyncio.sleep(self.rng.random() / 10)
        self.counts["left"] += 1


async def load(soak: Soak, process: psutil.Process, seconds: float, rate: float) -> list[int]:
    """So many requests a second; the server's memory in the meantime."""
    memory: list[int] = []
    running: set[asyncio.Task[None]] = set()
    began = looked = time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        if now >= looked:
            memory.append(process.memory_full_info().uss)
            looked += EVERY
            if len(memory) % (5 * MINUTE) == 0:
                middle = statistics.median(memory[-MINUTE:])
                print(f"{(now - began) / 60:5.1f} min: {middle / 2**20:.1f} MiB", flush=True)
        if len(running) < 64:
            task = asyncio.create_task(soak.one())
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.sleep(soak.rng.expovariate(rate))
    await asyncio.gather(*running)
    return memory


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=10, help="requests a second")
    parser.add_argument("--run", type=Path, help="a run; by default MiniLM with fresh heads")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), asked.run, 500)
        process, address = bench.start()
        soak = Soak(address, json.loads(bench.known.read_text()))
        server = psutil.Process(process.pid)
        memory = asyncio.run(load(soak, server, 60 * asked.minutes, asked.rate))
        process.terminate()
        code = process.wait()
    minutes = [
        statistics.median(memory[start : start + MINUTE])
        for start in range(0, max(1, len(memory) - MINUTE + 1), MINUTE)
    ]
    half = minutes[len(minutes) // 2 :]
    middle = statistics.median(half)
    print(f"{sum(soak.counts.values())} counts: {dict(sorted(soak.counts.items()))}")
    print(
        f"memory: {minutes[0] / 2**20:.1f} MiB at the start, second half {middle / 2**20:.1f}, "
        f"{100 * (min(half) / middle - 1):+.2f} % to {100 * (max(half) / middle - 1):+.2f} %, "
        f"at the end {100 * (half[-1] / half[0] - 1):+.2f} % against its beginning; "
        f"exit code {code}"
    )


if __name__ == "__main__":
    main()
