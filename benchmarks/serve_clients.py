"""The clients of serve_load.py, in a process of their own that loads no more than it needs.

    python benchmarks/serve_clients.py JOB.json

They ask as fast as answers come, and compare the answers when the clock has stopped.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path


def request(body: dict, host: str) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST /predict HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


async def exchange(reader, writer, message: bytes) -> tuple[int, bytes]:
    writer.write(message)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    return int(head.split(" ")[1]), await reader.readexactly(length)


async def client(number: int, job: dict, texts: list, done: list, until: float) -> None:
    """(chosen texts, status, body, begun, ended) of every request; status 0: no answer."""
    rng = random.Random(number)
    host, port = job["address"]
    reader, writer = await asyncio.open_connection(host, port)
    while time.time() < until:
        chosen = [rng.randrange(len(texts)) for _ in range(rng.choice(job["sizes"]))]
        message = request({"texts": [texts[i] for i in chosen]}, host)
        began = time.time()
        try:
            status, body = await exchange(reader, writer, message)
        except (OSError, asyncio.IncompleteReadError):
            done.append((chosen, 0, b"", began, time.time()))
            break
        done.append((chosen, status, body, began, time.time()))
    writer.close()


async def load_server(job: dict, texts: list) -> list:
    done: list = []
    until = time.time() + job["seconds"]
    await asyncio.gather(*(client(n, job, texts, done, until) for n in range(job["clients"])))
    return done


def close(a, b) -> bool:
    """Equal but for the last digits, which may also decide between two equal labels."""
    if isinstance(b, dict) and "label" in b:
        best = b["probabilities"].get(a.get("label"), 0.0)
        rest = {k: v for k, v in b.items() if k != "label"}
        return best > b["score"] - 1e-4 and close({k: a.get(k) for k in rest}, rest)
    if isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in b)
    return abs(a - b) < 1e-4 if isinstance(b, float) else a == b


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    known = json.loads(Path(job["texts"]).read_text())
    texts, truth = known["texts"], known["answers"]
    began = time.process_time()
    done = asyncio.run(load_server(job, texts))
    processor = time.process_time() - began
    wrong = 0
    for chosen, status, body, _, _ in done:
        if status == 200:
            answers = json.loads(body)["answers"]
            wrong += len(answers) != len(chosen) or not all(
                close(answer, truth[i]) for answer, i in zip(answers, chosen, strict=False)
            )
    good = [d for d in done if d[1] == 200]
    print(
        json.dumps(
            {
                "statuses": Counter(str(status) for _, status, *_ in done),
                "wrong": wrong,
                "texts": sum(len(chosen) for chosen, *_ in good),
                "seconds": max(d[4] for d in done) - min(d[3] for d in done),
                "took": [[max(len(str(texts[i])) for i in d[0]), d[4] - d[3]] for d in good],
                "lost": [began for _, status, _, began, _ in done if not status],
                "processor": processor,
                "sent": [began for _, _, _, began, _ in done],
            }
        )
    )


if __name__ == "__main__":
    main()
