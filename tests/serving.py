"""A small model to serve, and a server in a process of its own."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from bough.inference.answers import Answer
from bough.inference.model import Text
from bough.inference.torch_model import MultiTaskModel
from bough.serve.app import build
from bough.serve.main import configure
from bough.serve.microbatch import Answers, Query
from bough.serve.settings import Settings
from tests import tiny

JSON = {"content-type": "application/json"}
KEY = {"x-api-key": "secret"}
ONE = {"texts": ["the old tree"]}
HERE = "http://localhost"

TASKS = {
    "mood": {},
    "same": {"joint": True, "labels": ("no", "yes")},
    "near": {"twin": True, "kind": "regress", "labels": None, "range": (0, 5)},
}


def model(plan: str = "split@1", **facts: object) -> MultiTaskModel:
    """Three tasks: on one text, on a joint pair, on a twin pair."""
    tasks = {name: tiny.task(**settings) for name, settings in TASKS.items()}
    source = tiny.encoder(layers=2)
    network = tiny.network(plan, tasks, source, stir=0.3)
    return MultiTaskModel(network, source.tokenizer, 40, dict(facts))


class Slow(MultiTaskModel):
    """A model that takes its time."""

    def answer(self, asked: Iterable[Query | None]) -> Iterator[Answers]:
        time.sleep(0.2)
        return super().answer(asked)


def slow(kind: type[MultiTaskModel] = Slow) -> MultiTaskModel:
    made = model()
    return kind(made.network, made.tokenizer, made.longest)


def some_texts(count: int, seed: int = 0) -> list[Text]:
    """Texts and pairs of very different lengths."""
    rng = random.Random(seed)

    def words() -> str:
        return " ".join(rng.choices(tiny.WORDS, k=rng.choice((1, 3, 5, 8, 13, 60))))

    return [words() if rng.random() < 0.5 else (words(), words()) for _ in range(count)]


def same(answers: dict[str, dict[str, object]], truth: dict[str, Answer]) -> bool:
    """Whether an answer over the wire is the model's own, but for the last digits."""
    return _close(answers, {task: answer.plain() for task, answer in truth.items()})


def _close(a: object, b: object) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_close(a[k], b[k]) for k in a)
    if isinstance(a, float | int) and isinstance(b, float):
        return abs(a - b) < 5e-5  # what other texts are in a batch shows in the last bits
    return a == b


def wild_bodies(count: int, seed: int = 0) -> Iterator[bytes]:
    """Bodies that nobody should send: huge, nested, of wrong types, broken, or just strange."""
    rng = random.Random(seed)
    words = [
        "",
        " ",
        "tree",
        "\x00\x01\x1b",
        "\u202e\ufeff",
        "𝕏" * 9,
        "\ud800",
        "a" * 5000,
        "é" * 30,
    ]
    numbers = [0, -1, 1e308, 10**400, 2**63, 0.1, True, False, None]

    def thing(depth: int) -> Any:
        kind = rng.randrange(6 if depth else 2)
        if kind == 0:
            return rng.choice(words)
        if kind == 1:
            return rng.choice(numbers)
        if kind == 2:
            return [rng.choice(words), rng.choice(words)]
        if kind == 3:
            return {rng.choice(words): thing(depth - 1) for _ in range(rng.randrange(3))}
        return [thing(depth - 1) for _ in range(rng.randrange(4))]

    def whole() -> bytes:
        body = {"texts": thing(3)}
        if rng.random() < 0.3:
            body["tasks"] = thing(2) if rng.random() < 0.7 else ["mood", "near"]
        return json.dumps(body, ensure_ascii=rng.random() < 0.5).encode(errors="surrogatepass")

    def broken() -> bytes:
        body = bytearray(whole())
        for _ in range(rng.randrange(1, 6)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        return bytes(body[: rng.randrange(1, len(body) + 1)])

    strange = [
        lambda: b'{"texts": ["' + b"a" * 2**20 + b'"]}',
        lambda: b'{"texts": ["' + b"a" * (5 * 2**20) + b'"]}',
        lambda: b'{"texts": ' + b"[" * 50_000,
        lambda: b'{"a":' * 20_000,
        lambda: b'{"texts": [' + b'"a",' * 400 + b'"a"]}',
        lambda: b"9" * 100_000,
        lambda: rng.randbytes(rng.randrange(2000)),
        lambda: b'{"texts": ["\\u0000\\u0007 tree \\ud83d\\ude00"]}',
        lambda: b'{"texts": ["tree"], "texts": ["old"]}',
        lambda: b"",
    ]
    for number in range(count):
        if number % 10 == 0:
            yield strange[number // 10 % len(strange)]()
        else:
            yield whole() if number % 2 else broken()


class Server:
    """`bough serve` as its users start it."""

    def __init__(self, folder: Path, *options: str, key: str | None = None, program: str = "bough"):
        command = [sys.executable, "-m", program, "serve", str(folder), "--port", "0", *options]
        environment = {k: v for k, v in os.environ.items() if k != "BOUGH_API_KEY"}
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment | {"OMP_NUM_THREADS": "1"} | ({"BOUGH_API_KEY": key} if key else {}),
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert " answers at " in line, line + self.process.stdout.read()
        self.url = line.split(" answers at ")[1].split()[0]

    def end(self) -> tuple[int, str]:
        """Ask it to end; its exit code, and what it has written."""
        if self.process.poll() is None:
            self.process.terminate()
        out, _ = self.process.communicate(timeout=30)
        return self.process.returncode, out


@contextmanager
def served(folder: Path, *options: str, key: str | None = None) -> Iterator[Server]:
    server = Server(folder, *options, key=key)
    try:
        yield server
    finally:
        code, out = server.end()
    assert code == 0, out
    assert "Traceback" not in out, out
    assert "ERROR" not in out, out


@contextmanager
def beside(made: MultiTaskModel, settings: Settings) -> Iterator[str]:
    """The address of a server in a thread of this process: quick to start."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = build(made, settings, "first")
        server = uvicorn.Server(configure(app, settings.limits))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def run(
    work: Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]],
    made: MultiTaskModel | None = None,
    **settings: Any,
) -> None:
    """Do `work` with a client of an app in this process."""

    async def whole() -> None:
        app = build(made or model(), Settings(**settings))
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                await work(client)

    asyncio.run(whole())


def connect(url: str, *parts: bytes) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    raw = socket.create_connection((host, int(port)), timeout=10)
    for part in parts:
        raw.sendall(part)
    return raw


def post(body: bytes, length: int | None = None) -> bytes:
    """A request on the wire; with a greater length it is an unfinished one."""
    head = "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {length or len(body)}\r\n\r\n".encode() + body


def reply(raw: socket.socket) -> Reply:
    with closing(http.client.HTTPResponse(raw)) as response:
        response.begin()
        return Reply(response.status, json.loads(response.read()), dict(response.headers))


def samples(text: str) -> dict[tuple[str, ...], float]:
    """What /metrics says: (name, values of its labels in the order of their names) -> value."""
    return {
        (sample.name, *(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Client:
    """One connection, as thin as can be: many of them must fit beside a server."""

    def __init__(self, url: str, **headers: str):
        host, port = url.removeprefix("http://").split(":")
        self.connection = http.client.HTTPConnection(host, int(port), timeout=60)
        self.headers = JSON | headers

    def ask(self, texts: Sequence[Text], **more: object) -> Reply:
        """All errors of the connection are OSErrors, or HTTPExceptions of the library."""
        return self.post({"texts": [list(t) if isinstance(t, tuple) else t for t in texts], **more})

    def post(self, body: object) -> Reply:
        self.connection.request("POST", "/predict", json.dumps(body), self.headers)
        return self._reply()

    def get(self, path: str) -> Reply:
        self.connection.request("GET", path, headers=self.headers)
        return self._reply()

    def _reply(self) -> Reply:
        response = self.connection.getresponse()
        return Reply(response.status, json.loads(response.read()), dict(response.headers))

    def close(self) -> None:
        self.connection.close()


class Reply(NamedTuple):
    status: int
    json: Any
    headers: dict[str, str]


def in_threads(count: int, work: object) -> None:
    """Run `work(number)` in so many threads; the first error is raised here."""
    assert callable(work)
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
