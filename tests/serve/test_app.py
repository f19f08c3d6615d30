"""The app: that it answers as the model does, and whatever comes, with one of its statuses."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import closing
from pathlib import Path

import httpx
import psutil

from bough.inference.load import load
from bough.serve.settings import Limits
from tests.serve.attacked import CURSE
from tests.serving import (
    JSON,
    ONE,
    Client,
    Server,
    in_threads,
    model,
    run,
    same,
    slow,
    some_texts,
    wild_bodies,
)


def test_answers_are_the_models_own(folder: Path, server: Server) -> None:
    texts = some_texts(60)
    offline = load(folder)
    with closing(Client(server.url)) as client:
        response = client.ask(texts)
        assert response.status == 200
        assert response.headers["server-timing"].startswith("queue;dur=")
        assert all(map(same, response.json["answers"], offline.predict(texts)))
        pairs = [text for text in texts if not isinstance(text, str)]
        response = client.ask(pairs, tasks=["near", "near"])
        assert all(map(same, response.json["answers"], offline.predict(pairs, ["near"])))


def test_many_clients_get_each_their_own_answers(folder: Path, server: Server) -> None:
    texts = some_texts(400, seed=1)
    truth = load(folder).predict(texts)

    def work(number: int) -> None:
        rng = random.Random(number)
        with closing(Client(server.url)) as client:
            for _ in range(12):
                chosen = [rng.randrange(len(texts)) for _ in range(rng.choice((1, 1, 2, 7, 30)))]
                response = client.ask([texts[i] for i in chosen])
                assert response.status == 200, response.json
                answers = response.json["answers"]
                assert len(answers) == len(chosen)
                assert all(same(a, truth[i]) for a, i in zip(answers, chosen, strict=True))

    in_threads(24, work)


def test_other_refusals() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        response = await client.post(
            "/predict", content=b"{}", headers={"content-type": "text/plain"}
        )
        assert response.status_code == 415
        assert response.json()["error"].endswith("send Content-Type: application/json")
        assert (await client.post("/predict", content=b"{}")).status_code == 415
        response = await client.get("/predict")
        assert response.status_code == 405
        assert response.headers["allow"] == "POST"
        assert response.json() == {"error": "/predict does not take GET; see /docs"}
        response = await client.get("/" + "x" * 500)
        assert response.status_code == 404
        assert len(response.json()["error"]) < 100
        assert (await client.get("/page/../server.py")).status_code == 404
        response = await client.post(
            "/predict", content=b"x", headers=JSON | {"content-length": "9" * 30}
        )
        assert response.status_code == 413

    run(work)


def test_late_answers_are_given_up() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        response = await client.post("/predict", json=ONE)
        assert response.status_code == 503
        assert response.json() == {"error": "no answer within 0.05 s; try again later"}
        assert int(response.headers["retry-after"]) >= 1

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
            response = await client.get(path)
            assert response.status_code == 200
            assert "://" not in response.text, path
            assert "innerHTML" not in response.text, path
        assert (await client.get("/plan.svg")).headers["content-type"] == "image/svg+xml"

    run(work)


def test_wild_bodies_are_answered_or_refused_and_leave_nothing_behind() -> None:
    process = psutil.Process(os.getpid())

    async def work(client: httpx.AsyncClient) -> None:
        seen: dict[int, int] = {}
        before = 0
        for number, body in enumerate(wild_bodies(2000)):
            response = await client.post("/predict", content=body, headers=JSON)
            seen[response.status_code] = seen.get(response.status_code, 0) + 1
            assert response.status_code in (200, 400, 413, 422), (body[:200], response.text)
            if number == 400:
                before = process.memory_info().rss
        assert set(seen) == {200, 400, 413, 422}
        assert min(seen.values()) >= 15, seen
        assert process.memory_info().rss - before < 40 * 2**20
        response = await client.post("/predict", json=ONE)
        assert same(response.json()["answers"][0], model().predict("the old tree"))

    run(work)


def test_a_panic_of_the_tokenizer_ends_nothing(folder: Path) -> None:
    """In a process of its own: 500 with an id that is in the log, and the next is answered."""
    server = Server(folder, "--threads", "1", program="tests.serve.attacked")
    try:
        with closing(Client(server.url)) as client:
            names = []
            for _ in range(2):
                response = client.ask([CURSE])
                assert response.status == 500
                names.append(response.json["error"].rpartition(" ")[2])
            response = client.ask(["the old tree", CURSE])
            assert response.status == 422
            assert response.json["error"] == "text 2 makes the model fail; it is not tried again"
            assert client.get("/ready").status == 200
            assert client.post(ONE).status == 200
    finally:
        code, out = server.end()
    assert code == 0
    assert all(f"failed ({name})" in out for name in names)
    assert "PanicException: index out of bounds" in out


def test_a_client_may_ask_for_sure_answers_only() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        texts = {"texts": ["the old tree", ["a tree", "the leaf"]]}
        every = (await client.post("/predict", json=texts)).json()["answers"]
        none = (await client.post("/predict", json=texts | {"abstain": 1})).json()["answers"]
        assert every[0]["mood"].pop("label")
        assert none[0]["mood"] == every[0]["mood"] | {"abstained": True}
        assert none[1]["near"] == every[1]["near"], "a number is no label"
        for wrong in ("much", 1.5, -1, None, True, "0.5"):
            response = await client.post("/predict", json=texts | {"abstain": wrong})
            assert response.status_code == 422
            assert "expected a probability from 0 to 1" in response.json()["error"]

    run(work)
