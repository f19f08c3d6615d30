"""Around every request: counts, headers, failures; other sites; HEAD."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

import httpx
import pytest

from bough.inference.torch_model import MultiTaskModel
from bough.serve.microbatch import Answers, Query
from tests.serving import KEY, ONE, Client, Server, run, samples, slow


class Broken(MultiTaskModel):
    def answer(self, asked: Iterable[Query | None]) -> Iterator[Answers]:
        raise RuntimeError("a fault of ours")


def test_a_fault_is_a_500_with_a_sentence_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        response = await client.post("/predict", json=ONE)
        assert response.status_code == 500
        assert response.json() == {"error": "the server failed; its log says more"}

    run(work, slow(Broken))
    assert "a fault of ours" in caplog.text


def test_other_sites_may_ask_only_when_named() -> None:
    asking = {"origin": "https://one.example", "access-control-request-method": "POST"}

    async def closed(client: httpx.AsyncClient) -> None:
        response = await client.options("/predict", headers=asking)
        assert response.status_code == 405
        response = await client.post("/predict", json=ONE, headers=asking)
        assert not [name for name in response.headers if name.startswith("access-control")]

    async def named(client: httpx.AsyncClient) -> None:
        response = await client.options("/predict", headers=asking)
        assert response.headers["access-control-allow-origin"] == "https://one.example"
        assert response.headers["x-content-type-options"] == "nosniff"
        response = await client.options(
            "/predict", headers=asking | {"origin": "https://two.example"}
        )
        assert response.status_code == 400
        response = await client.post("/predict", json=ONE, headers=asking)
        assert response.status_code == 401
        assert (
            response.headers["access-control-allow-origin"] == "https://one.example"
        )  # can be read
        counts = samples((await client.get("/metrics", headers=KEY)).text)
        assert counts["bough_requests_total", "OPTIONS", "/predict", "200"] == 1
        assert counts["bough_requests_total", "OPTIONS", "/predict", "400"] == 1
        assert counts["bough_requests_total", "POST", "/predict", "401"] == 1

    run(closed)
    run(named, origins=("https://one.example",), key="secret")


def test_head_is_answered_where_get_is(server: Server) -> None:
    with closing(Client(server.url)) as client:
        for path in ("/health", "/ready", "/", "/page/page.js", "/tasks", "/openapi.json"):
            client.connection.request("HEAD", path)
            response = client.connection.getresponse()
            assert (response.status, response.read()) == (200, b""), path
            assert int(response.headers["content-length"]) > 0
        client.connection.request("HEAD", "/predict")
        response = client.connection.getresponse()
        assert (response.status, response.headers["allow"], response.read()) == (405, "POST", b"")
        assert client.get("/health").json == {"status": "alive"}  # on the same connection
