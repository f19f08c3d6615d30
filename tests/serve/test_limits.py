"""What slow, large and absent clients may hold."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from unittest.mock import Mock

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.inference.torch_model import MultiTaskModel
from bough.serve import limits
from bough.serve.limits import BODIES, BodyReader, count_parts
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


def test_a_body_that_is_too_large_is_answered_on_the_wire(server: Server) -> None:
    """Its sender, who sends all of it before it listens, sees the answer; and may ask again."""
    with closing(Client(server.url)) as client:
        for body in ({"texts": ["a" * 2**23]}, {"texts": ["a" * 2**25]}):
            assert client.post(body).status == 413
        assert client.post(ONE).status == 200


def test_bodies_under_way_have_a_limit_together() -> None:
    size = 2**18
    unfinished = post(b" " * (size - 9), size)
    with beside(model(), Settings(limits=Limits(body=size))) as url:
        with ExitStack() as stack, closing(Client(url)) as client:
            for _ in range(BODIES):
                stack.enter_context(connect(url, unfinished))
            response = None
            while response is None:  # until all that may are under way
                raw = stack.enter_context(connect(url, unfinished))
                raw.settimeout(1)
                with suppress(TimeoutError):
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


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 40_000 + b"[]]",
        b'{"texts":[' + b"{}," * 40_000 + b"{}]}",
        b'{"texts":[' + b'"",' * 40_000 + b'""]}',
    ],
    ids=["lists", "objects", "texts"],
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


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (b'{"texts": ["a", "b"]}', 6),
        (rb'["a, [\"b", "{c\\"]', 4),
        (rb'["a\\\"[[[", []]', 4),
        (b'["never ends, [[', 2),
        (b'"' + b'\\"' * 2**20, 1),
        (b'["' + b"\\\\" * 2**20, 2),
        (b'"' + b"\\" * (2**20 + 1), 1),
        (b'["a"' + b',"a"' * 9, 20),
    ],
)  # fmt: skip
def test_parts_are_counted(body: bytes, parts: int) -> None:
    """Whatever stands in strings, and in few passes: else this would take minutes."""
    assert count_parts(body, parts) == parts
    assert count_parts(body, parts - 1) > parts - 1


@given(
    st.lists(st.sampled_from(['"', "\\", ",", "[", "{", "a", "\\\\", '\\"']), max_size=60),
    st.integers(1, 9),
)
def test_parts_are_the_same_however_the_body_is_cut(signs: list[str], size: int) -> None:
    """Also where a cut falls between a backslash and what it escapes."""
    body = "".join(signs).encode()
    whole = count_parts(body, 10**6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "PIECE", size)
        assert count_parts(body, 10**6) == whole
    pieces = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    outside = b" ".join(pieces[::2])
    assert whole == len(pieces) // 2 + sum(map(outside.count, (b"[", b"{", b",")))
