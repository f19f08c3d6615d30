"""What slow, large and absent clients may hold."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from bough.inference.torch_model import MultiTaskModel
from bough.serve.app import build
from bough.serve.connections import limited_protocol
from bough.serve.limits import BODIES, PART, BodyReader
from bough.serve.microbatch import Answers, Query
from bough.serve.schemas import PredictRequest
from bough.serve.settings import Limits, Settings
from tests.serving import (
    JSON,
    ONE,
    Client,
    Server,
    beside,
    connect,
    model,
    post,
    reply,
    run,
    samples,
    served,
    slow,
)


def test_a_body_that_comes_in_parts_is_bounded() -> None:
    sent = 0

    async def parts() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 2**20
            yield b"a" * 2**20

    async def work(client: httpx.AsyncClient) -> None:
        response = await client.post("/predict", content=parts(), headers=JSON)
        assert response.status_code == 413

    run(work)
    assert sent <= 32 * 2**20


def test_a_body_and_its_answer_have_one_limit_of_time() -> None:
    async def late() -> AsyncIterator[bytes]:
        await asyncio.sleep(0.3)
        yield json.dumps(ONE).encode()

    async def work(client: httpx.AsyncClient) -> None:
        response = await client.post("/predict", content=late(), headers=JSON)
        assert response.status_code == 503
        assert response.json() == {"error": "no answer within 0.4 s; try again later"}

    run(work, slow(), limits=Limits(timeout=0.4))


def test_late_bodies_are_given_up() -> None:
    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(5)

    async def work(client: httpx.AsyncClient) -> None:
        response = await client.post("/predict", content=never(), headers=JSON)
        assert response.status_code == 408

    run(work, limits=Limits(timeout=0.05))


def test_hostile_connections_do_not_stop_the_others(server: Server) -> None:
    lines = [
        b"\x00" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /predict HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: 100\r\n\r\n{",  # and goes away
        b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 200_000 + b"\r\n\r\n",
    ]
    for line in lines:
        with connect(server.url) as raw:
            head = b""
            try:
                raw.sendall(line)
                raw.shutdown(socket.SHUT_WR)
                head = raw.recv(100)
            except TimeoutError:
                pytest.fail(f"neither an answer nor an end for {line[:50]!r}")
            except OSError:  # the server has hung up already
                pass
            assert head[:10] in (b"", b"HTTP/1.1 2", b"HTTP/1.1 4"), line[:50]
    with closing(Client(server.url)) as client:
        assert client.post(ONE).status == 200


def test_idle_connections_make_room_for_others(folder: Path) -> None:
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))
        try:
            server = stack.enter_context(served(folder))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
        for number in range(300):
            part = b"" if number % 2 else b"POST /predict HTTP/1.1\r\n"
            stack.enter_context(connect(server.url, part))
            if number % 25 == 0:
                time.sleep(0.05)  # more at once would have to knock again after a second
        with closing(Client(server.url)) as client:
            assert client.get("/health").status == 200
            assert client.post(ONE).status == 200


def test_connections_in_use_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bough.serve.main.files", lambda: 4)
    with beside(model(), Settings()) as url, connect(url, post(b"{", 99)) as one:
        with connect(url, post(b"{", 99)):
            time.sleep(0.1)
            with connect(url) as third:
                response = reply(third)
            assert (response.status, response.headers["retry-after"]) == (503, "1")
            assert response.json == {"error": "every connection is in use; try again later"}
        one.sendall(b" " * 97 + b"}")
        assert reply(one).json["error"].startswith("texts is missing")


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999\r\n\r\n",
    ],
    ids=["nothing", "half a head", "a body after its refusal"],
)
def test_who_drips_is_cut_off(start: bytes) -> None:
    """By the server, and not before its time; how late, the test of the timer says."""
    with beside(model(), Settings(limits=Limits(timeout=0.5))) as url, connect(url, start) as raw:
        began = time.monotonic()
        raw.settimeout(0.05)
        with suppress(ConnectionResetError, BrokenPipeError):
            while True:
                assert time.monotonic() - began < 60, "it is never cut off"
                with suppress(TimeoutError):
                    if not raw.recv(1000):
                        break
                raw.sendall(b"x" if start else b"")
        assert time.monotonic() - began > 0.45


def test_what_drips_in_puts_no_end_off() -> None:
    loop, transport = Mock(), Mock()
    transport.get_extra_info.return_value = None
    config = uvicorn.Config(build(model(), Settings()), lifespan="off")
    protocol = limited_protocol(9, 5.0)(config, ServerState(), {}, loop)
    protocol.connection_made(transport)
    for byte in b"GET / HTTP/1.1\r\nhost: localhost\r\n":
        protocol.data_received(bytes([byte]))
    ((seconds, end),) = (call.args for call in loop.call_later.call_args_list)
    assert (seconds, transport.abort.called) == (5.0, False)
    end()
    transport.abort.assert_called_once()


def test_a_body_that_is_too_large_is_answered_on_the_wire(server: Server) -> None:
    """Its sender, who sends all of it before it listens, sees the answer; and may ask again."""
    with closing(Client(server.url)) as client:
        for body in ({"texts": ["a" * 2**23]}, {"texts": ["a" * 2**25]}):
            assert client.post(body).status == 413
        assert client.post(ONE).status == 200


def test_who_does_not_read_is_cut_off() -> None:
    """Also with requests under way: their answers wait for those before them to be read."""
    many = 100 * b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with beside(model(), Settings(limits=Limits(timeout=0.5))) as url, connect(url) as raw:
        began, rest = time.monotonic(), b""
        raw.settimeout(0.2)
        with suppress(ConnectionResetError, BrokenPipeError):
            while True:
                assert time.monotonic() - began < 60, "it is never cut off"
                rest = rest or many
                with suppress(TimeoutError):
                    rest = rest[raw.send(rest) :]


def test_bodies_under_way_have_a_limit_together() -> None:
    size = 2**18
    unfinished = post(b" " * (size - 9), size)
    with beside(model(), Settings(limits=Limits(body=size))) as url:
        with ExitStack() as stack, closing(Client(url)) as client:
            for _ in range(BODIES):
                stack.enter_context(connect(url, unfinished))
            time.sleep(0.5)
            with connect(url, unfinished) as raw:
                response = reply(raw)
            assert (response.status, response.headers["retry-after"]) == (503, "1")
            assert response.json == {
                "error": "too many large bodies are under way; try again later"
            }
            assert client.post(ONE).status == 200  # a short one is read
        time.sleep(0.1)
        with connect(url, post(json.dumps(ONE).encode().ljust(size))) as raw:
            assert reply(raw).status == 200


class Counting(MultiTaskModel):
    """Answers one text at a time, not fast, and counts them."""

    def answer(self, asked: Iterable[Query | None]) -> Iterator[Answers]:
        chosen = list(asked)
        self.facts["computed"] = self.facts.get("computed", 0) + len(chosen)
        time.sleep(0.05 * len(chosen))
        return super().answer(chosen)


def test_who_leaves_is_not_computed() -> None:
    made = slow(Counting)
    with beside(made, Settings(tokens=1)) as url:
        many = json.dumps({"texts": ["the old tree"] * 40}).encode()
        with connect(url, post(many)):
            time.sleep(0.2)
        with closing(Client(url)) as client:
            assert client.post(ONE).status == 200
            assert 1 < made.facts["computed"] < 15
            client.connection.request("GET", "/metrics")
            counts = samples(client.connection.getresponse().read().decode())
        assert counts["bough_queue_texts",] == 0
        assert counts["bough_requests_total", "POST", "/predict", "499"] == 1


def test_requests_may_follow_each_other_at_once(server: Server) -> None:
    one = post(json.dumps(ONE).encode())
    with connect(server.url, one * 3, one[:-5]) as raw:
        received = b""
        for answers in (3, 4):
            while received.count(b'"answers"') < answers:
                received += raw.recv(9999)
            raw.sendall(one[-5:])
    assert received.count(b"HTTP/1.1 200 OK") == 4


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 40_000 + b"[]]",
        b'{"texts":[' + b"{}," * 40_000 + b"{}]}",
        b'{"texts":[' + b'"",' * 40_000 + b'""]}',
        b"[" * 40_000,
    ],
    ids=["lists", "objects", "texts", "depth"],
)
def test_a_body_of_too_many_parts_is_not_made_into_objects(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PredictRequest, "model_validate_json", Mock(side_effect=AssertionError))

    async def work(client: httpx.AsyncClient) -> None:
        response = await client.post("/predict", content=body, headers=JSON)
        assert response.status_code == 422
        sentence = "the body has more than 10,000 parts; send at most 256 texts at a time"
        assert response.json() == {"error": sentence}

    run(work)


def test_signs_in_texts_are_no_parts() -> None:
    texts = ['a, "b" [c] {d} \\' * 1000] * 8

    async def work(client: httpx.AsyncClient) -> None:
        assert (await client.post("/predict", json={"texts": texts})).status_code == 200

    run(work)


def test_large_bodies_are_parsed_off_the_loop() -> None:
    where: list[str] = []

    def parse(body: bytes) -> int:
        where.append(threading.current_thread().name)
        return len(body)

    async def work() -> None:
        reader = BodyReader(Limits())
        for size in (100, 2**20):
            request = Mock(headers=JSON, stream=lambda size=size: parts(b"a" * size))
            assert await reader.read(request, asyncio.get_running_loop().time() + 9, parse) == size
            assert reader.held == 0

    async def parts(body: bytes) -> AsyncIterator[bytes]:
        yield body

    asyncio.run(work())
    assert where == ["MainThread", "bodies_0"]


def test_parts_are_counted_in_one_walk() -> None:
    """Also where strings do not end; else this would take minutes."""
    for body in (b'"' + b'\\"' * 2**20, b'["' + b"\\\\" * 2**20, b'"' + b"\\" * (2**20 + 1)):
        assert sum(1 for _ in PART.finditer(body)) <= 3
