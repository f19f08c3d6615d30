"""Several processes on one port: their answers, their deaths, their end."""

from __future__ import annotations

import os
import signal
import socket
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPException
from pathlib import Path

import psutil
import pytest
import torch

from bough.errors import UserError
from bough.inference.load import load
from bough.serve.main import serve
from bough.serve.settings import Settings
from tests.serve.ending import end_under_load
from tests.serving import (
    Client,
    Server,
    connect,
    in_threads,
    model,
    post,
    same,
    samples,
    served,
    some_texts,
)

TWO = ("--workers", "2", "--threads", "1")
CLIENTS = 64


def workers(server: Server) -> dict[int, psutil.Process]:
    return {child.pid: child for child in psutil.Process(server.process.pid).children()}


def until(true: Callable[[], bool], seconds: float = 90) -> None:
    last = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < last
        time.sleep(0.05)


def clients(server: Server) -> list[set[int]]:
    """The ports of each worker's clients."""
    every = [worker.net_connections("tcp") for worker in workers(server).values()]
    return [{one.raddr.port for one in some if one.raddr} for some in every]


def both_ready(server: Server) -> None:
    """Both are given connections, and have none: a worker counts its room before it is ready."""

    def one_each() -> bool:
        with closing(connect(server.url)), closing(connect(server.url)):
            time.sleep(0.2)
            return [len(ports) for ports in clients(server)] == [1, 1]

    until(one_each)
    until(lambda: not any(clients(server)))
    assert counts(server)["bough_queue_room",] == 2 * 1024  # a dead one's is not counted


def counts(server: Server) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as response:
        return samples(response.read().decode())


def test_many_clients_and_a_killed_worker(folder: Path) -> None:
    """No answer is wrong; with a worker go the requests it held, and another takes its place."""
    texts = some_texts(48, seed=5)
    truth = load(folder).predict(texts)
    answered, lost = [0] * CLIENTS, [0] * CLIENTS

    with served(folder, *TWO) as server:
        both_ready(server)
        before = workers(server)
        killed = min(before)

        def ask(number: int) -> None:
            client = Client(server.url)
            for turn in range(12):
                start = (number * 7 + turn * 5) % 40
                part = slice(start, start + 1 + (number + turn) % 8)
                try:
                    reply = client.ask(texts[part])
                except (OSError, HTTPException):  # the connection has gone with its worker
                    lost[number] += 1
                    client.close()
                    client = Client(server.url)
                    continue
                assert reply.status in (200, 503), reply.json
                if reply.status == 200:
                    assert all(map(same, reply.json["answers"], truth[part]))
                    answered[number] += 1
            client.close()

        def kill() -> None:
            until(lambda: sum(answered) > 100)
            os.kill(killed, signal.SIGKILL)

        in_threads(CLIENTS + 1, lambda number: kill() if number == CLIENTS else ask(number))
        assert sum(answered) > CLIENTS * 9
        assert sum(lost) > 0  # else the kill has come too late to show anything
        assert max(lost) == 1, "only what the killed worker held may be lost"
        assert sum(lost) < CLIENTS  # the other worker has answered its clients' requests
        until(lambda: len(workers(server)) == 2)
        assert killed not in workers(server)
        both_ready(server)
        seen = counts(server)
        total = sum(n for key, n in seen.items() if key[:3] == ("bough_requests_total", "POST",
                                                                "/predict"))  # fmt: skip
        # What the killed worker had answered a moment ago, it may not have counted yet.
        assert sum(answered) - CLIENTS <= total <= sum(answered) + sum(lost) + 2 * CLIENTS
        assert seen["bough_queue_texts",] == 0
        end_under_load(server, texts[:8], truth)


def test_connections_are_shared_out(folder: Path) -> None:
    """Each goes to the worker with the fewest, also after some have left."""
    with served(folder, *TWO) as server:
        both_ready(server)

        def shared_out() -> bool:
            """One more or less: the end of an earlier one may be heard late."""
            sizes = [len(ports) for ports in clients(server)]
            return sum(sizes) == 12 and min(sizes) >= 5

        many = [connect(server.url) for _ in range(12)]
        until(shared_out)
        leaving = clients(server)[0]
        for raw in many:
            if raw.getsockname()[1] in leaving:
                raw.close()
        until(lambda: not clients(server)[0])
        many += [connect(server.url) for _ in range(len(leaving))]
        until(shared_out)
        for raw in many:
            raw.close()


def test_the_weights_are_there_once(tmp_path: Path) -> None:
    """A worker's own memory stays below the weights that it answers with."""
    large = model()
    large.network.register_buffer("ballast", torch.rand(50_000_000))
    made = large.network.state_dict()["ballast"].nbytes

    def answer(channel: socket.socket) -> None:
        total = float(large.network.state_dict()["ballast"].sum())
        channel.send(b"r" if total > 0 else b"f")
        channel.recv(1)

    from bough.serve.workers import Workers

    pid = os.fork()
    if not pid:  # a process of its own: this one has threads
        with socket.create_server(("127.0.0.1", 0)) as listener:
            Workers(2, listener, answer, lambda process: None).run(lambda: None, 1)
        os._exit(0)
    parent = psutil.Process(pid)
    until(lambda: len(parent.children()) == 2)
    time.sleep(1)
    own = [child.memory_full_info().uss for child in parent.children()]
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert max(own) < made / 2, (own, made)


def test_workers_end_with_their_parent(folder: Path) -> None:
    """Also where it is killed: nobody would end them otherwise."""
    server = Server(folder, *TWO)
    until(lambda: len(workers(server)) == 2)
    children = workers(server)
    with closing(connect(server.url, post(b'{"texts": ["tree"]}')[:-3])):
        server.process.kill()
        server.process.wait()
        until(lambda: not any(child.is_running() for child in children.values()))
    assert server.process.stdout is not None
    server.process.stdout.close()


def test_mistakes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"--workers 2 share .* leave it out on cuda"):
        serve(folder, Settings(workers=2), "127.0.0.1", 0, "cuda")
    monkeypatch.delattr(os, "fork")
    with pytest.raises(UserError, match="needs a system that can fork"):
        serve(folder, Settings(workers=2), "127.0.0.1", 0, "cpu")
