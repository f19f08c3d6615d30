"""The app: that it answers as the model does, and whatever comes, with one of its statuses."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psutil

from bough.inference.torch_model import load
from bough.serve.settings import Limits
from tests.serving import JSON, ONE, Client, Server, in_threads, model, run, same, slow, some_texts


def test_answers_are_the_models_own(folder: Path, server: Server) -> None:
    texts = some_texts(60)
    own = load(folder)
    with closing(Client(server.url)) as client:
        found = client.ask(texts)
        assert found.status == 200
        assert found.headers["server-timing"].startswith("queue;dur=")
        assert all(map(same, found.json["answers"], own.predict(texts)))
        pairs = [text for text in texts if not isinstance(text, str)]
        found = client.ask(pairs, tasks=["near", "near"])
        assert all(map(same, found.json["answers"], own.predict(pairs, ["near"])))


def test_many_clients_get_each_their_own_answers(folder: Path, server: Server) -> None:
    texts = some_texts(400, seed=1)
    truth = load(folder).predict(texts)

    def work(number: int) -> None:
        rng = random.Random(number)
        with closing(Client(server.url)) as client:
            for _ in range(12):
                chosen = [rng.randrange(len(texts)) for _ in range(rng.choice((1, 1, 2, 7, 30)))]
                found = client.ask([texts[i] for i in chosen])
                assert found.status == 200, found.json
                answers = found.json["answers"]
                assert len(answers) == len(chosen)
                assert all(same(a, truth[i]) for a, i in zip(answers, chosen, strict=True))

    in_threads(24, work)


def test_other_refusals() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        found = await client.post("/predict", content=b"{}", headers={"content-type": "text/plain"})
        assert found.status_code == 415
        assert found.json()["error"].endswith("send Content-Type: application/json")
        assert (await client.post("/predict", content=b"{}")).status_code == 415
        found = await client.get("/predict")
        assert found.status_code == 405
        assert found.headers["allow"] == "POST"
        assert found.json() == {"error": "/predict does not take GET; see /docs"}
        found = await client.get("/" + "x" * 500)
        assert found.status_code == 404
        assert len(found.json()["error"]) < 100
        assert (await client.get("/page/../server.py")).status_code == 404
        found = await client.post(
            "/predict", content=b"x", headers=JSON | {"content-length": "9" * 30}
        )
        assert found.status_code == 413

    run(work)


def test_late_answers_are_given_up() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        found = await client.post("/predict", json=ONE)
        assert found.status_code == 503
        assert found.json() == {"error": "no answer within 0.05 s; try again later"}
        assert int(found.headers["retry-after"]) >= 1

    run(work, slow(), limits=Limits(timeout=0.05))


def test_readiness_follows_the_queue() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        assert (await client.get("/ready")).json() == {"status": "ready"}
        pair = {"texts": ["a", "b"]}
        first = asyncio.create_task(client.post("/predict", json=pair))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(client.post("/predict", json=pair))
        await asyncio.sleep(0.02)
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200
        assert [(await first).status_code, (await second).status_code] == [200, 200]

    run(work, slow(), limits=Limits(queue=2, texts=2))


def test_the_page_comes_without_outside_help() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        page = await client.get("/")
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        for path in (
            "/",
            "/docs",
            "/page/page.js",
            "/page/common.js",
            "/page/docs.js",
            "/page/style.css",
        ):
            found = await client.get(path)
            assert found.status_code == 200
            assert "://" not in found.text, path
            assert "innerHTML" not in found.text, path
        assert (await client.get("/plan.svg")).headers["content-type"] == "image/svg+xml"

    run(work)


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


def test_wild_bodies_are_answered_or_refused_and_leave_nothing_behind() -> None:
    process = psutil.Process(os.getpid())

    async def work(client: httpx.AsyncClient) -> None:
        seen: dict[int, int] = {}
        before = 0
        for number, body in enumerate(wild_bodies(2000)):
            found = await client.post("/predict", content=body, headers=JSON)
            seen[found.status_code] = seen.get(found.status_code, 0) + 1
            assert found.status_code in (200, 400, 413, 422), (body[:200], found.text)
            if number == 400:
                before = process.memory_info().rss
        assert set(seen) == {200, 400, 413, 422}
        assert min(seen.values()) >= 15, seen
        assert process.memory_info().rss - before < 40 * 2**20
        found = await client.post("/predict", json=ONE)
        assert same(found.json()["answers"][0], model().predict("the old tree"))

    run(work)
