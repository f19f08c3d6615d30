"""A small model to serve, and a server in a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from bough.inference.model import Answer, Text
from bough.inference.torch_model import MultiTaskModel
from bough.serve.app import Settings, build
from bough.serve.main import configure
from tests import tiny

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


def some_texts(count: int, seed: int = 0) -> list[Text]:
    """Texts and pairs of very different lengths."""
    rng = random.Random(seed)

    def words() -> str:
        return " ".join(rng.choices(tiny.WORDS, k=rng.choice((1, 3, 5, 8, 13, 60))))

    return [words() if rng.random() < 0.5 else (words(), words()) for _ in range(count)]


def same(found: dict[str, dict[str, object]], truth: dict[str, Answer]) -> bool:
    """Whether an answer over the wire is the model's own, but for the last digits."""
    told = {task: answer.plain() for task, answer in truth.items()}
    return found.keys() == told.keys() and all(_close(found[t], told[t]) for t in told)


def _close(a: object, b: object) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_close(a[k], b[k]) for k in a)
    if isinstance(a, float | int) and isinstance(b, float):
        return abs(a - b) < 1e-5
    return a == b


class Server:
    """`bough serve` as its users start it."""

    def __init__(self, folder: Path, *options: str, key: str | None = None):
        command = [sys.executable, "-m", "bough", "serve", str(folder), "--port", "0", *options]
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


class Client:
    """One connection, as thin as can be: many of them must fit beside a server."""

    def __init__(self, url: str, **headers: str):
        host, port = url.removeprefix("http://").split(":")
        self.connection = http.client.HTTPConnection(host, int(port), timeout=60)
        self.headers = {"content-type": "application/json"} | headers

    def ask(self, texts: Sequence[Text], **more: object) -> Told:
        """All errors of the connection are OSErrors, or HTTPExceptions of the library."""
        return self.post({"texts": [list(t) if isinstance(t, tuple) else t for t in texts], **more})

    def post(self, body: object) -> Told:
        self.connection.request("POST", "/predict", json.dumps(body), self.headers)
        return self._told()

    def get(self, path: str) -> Told:
        self.connection.request("GET", path, headers=self.headers)
        return self._told()

    def _told(self) -> Told:
        response = self.connection.getresponse()
        return Told(response.status, json.loads(response.read()), dict(response.headers))

    def close(self) -> None:
        self.connection.close()


class Told(NamedTuple):
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
