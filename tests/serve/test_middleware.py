"""Around every request: counts, headers, failures; other sites; HEAD."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import closing

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from bough.inference.torch_model import MultiTaskModel
from bough.serve.microbatch import Answers, Query
from bough.serve.middleware import Failures
from tests.serving import HERE, KEY, ONE, Client, Server, run, samples, slow


class Broken(MultiTaskModel):
    def answer(self, asked: Iterable[Query | None]) -> Iterator[Answers]:
        raise RuntimeError("a fault of ours")


def test_a_fault_is_a_500_with_a_sentence_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        response = await client.post("/predict", json=ONE)
        assert response.status_code == 500
        sentence, _, name = response.json()["error"].rpartition(" ")
        assert sentence == "the server failed; its log says more, under"
        assert f"POST /predict failed ({name})" in caplog.text

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


def test_refusals_and_failures_can_be_read_by_other_sites() -> None:
    """Else their pages see no status, but an error of the network."""
    asking = {"origin": "https://one.example"}

    def check(response: httpx.Response, status: int) -> None:
        assert response.status_code == status
        assert response.headers["access-control-allow-origin"] == "https://one.example"
        assert response.headers["x-content-type-options"] == "nosniff"

    async def failing(client: httpx.AsyncClient) -> None:
        check(await client.post("/predict", json=ONE, headers=asking), 500)
        check(await client.get("/tasks", headers=asking | {"host": "elsewhere.example"}), 421)

    async def crowded(client: httpx.AsyncClient) -> None:
        asked = [client.post("/predict", json=ONE, headers=asking) for _ in range(2)]
        first, second = await asyncio.gather(*asked)
        check(first, 200)
        check(second, 429)
        assert second.headers["retry-after"] == "1"
        assert "retry-after" in second.headers["access-control-expose-headers"]
        counts = samples((await client.get("/metrics")).text)
        assert counts["bough_requests_total", "POST", "/predict", "429"] == 1

    run(failing, slow(Broken), origins=("https://one.example",))
    run(crowded, slow(), origins=("https://one.example",), per_client=1)


def test_a_path_forges_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("a fault of ours")

    async def work() -> None:
        transport = httpx.ASGITransport(Failures(fails))
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
            response = await client.get("/x%0a%1b[31mERROR%20all%20is%20lost%c3%a9")
            assert response.status_code == 500

    asyncio.run(work())
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert record.getMessage().startswith("GET /x%0A%1B%5B31mERROR%20all%20is%20lost%C3%A9 failed")


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


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.:8000", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8000", 200),
        ("evil.example", 421),
        ("evil.example:8000", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("192.168.1.5", 421),
        ("localhost@evil.example", 421),
        ("[::1]evil.example", 421),
    ],
)
def test_a_foreign_name_is_turned_away(host: str, status: int) -> None:
    """Also where only a redirect would follow."""

    async def work(client: httpx.AsyncClient) -> None:
        for path in ("/tasks", "/", "/health"):
            response = await client.get(path, headers={"host": host})
            assert response.status_code == status, path
            assert status == 200 or "is no name of this server" in response.json()["error"]
        response = await client.get("/tasks/", headers={"host": host})
        assert response.status_code == (404 if status == 200 else 421)
        response = await client.post("/predict", json=ONE, headers={"host": host})
        assert response.status_code == status

    run(work)


@pytest.mark.parametrize(
    ("hosts", "allowed", "refused"),
    [
        (("*",), ["evil.example"], []),
        (("my.site",), ["my.site", "my.site:8000"], ["localhost", "its.my.site"]),
        (("0.0.0.0",), ["192.168.1.5:8000", "[fe80::1]"], ["evil.example", "1.2.3.4.example"]),
    ],
)
def test_names_are_chosen(hosts: tuple[str, ...], allowed: list[str], refused: list[str]) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for host in (*allowed, *refused):
            response = await client.get("/tasks", headers={"host": host})
            assert response.status_code == (200 if host in allowed else 421), host

    run(work, hosts=hosts)


def test_a_client_has_a_share() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answers = await asyncio.gather(*(client.post("/predict", json=ONE) for _ in range(5)))
        assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429, 429]
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.headers["retry-after"] == "1"
        sentence = "2 requests of your address are under way; try again later"
        assert refused.json() == {"error": sentence}
        assert (await client.post("/predict", json=ONE)).status_code == 200  # when they are done

    run(work, slow(), per_client=2)
