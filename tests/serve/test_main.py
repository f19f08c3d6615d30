"""The server: what it accepts, what it refuses, and that it answers as the model does."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from typer.testing import CliRunner

from bough.cli.main import app as cli
from bough.errors import UserError
from bough.inference.load import load_torch
from bough.inference.model import Text
from bough.inference.torch_model import MultiTaskModel
from bough.serve.app import Settings, build
from bough.serve.body import BODIES
from bough.serve.main import serve
from bough.serve.microbatch import Answers, Asked
from bough.serve.requests import Limits
from bough.serve.schemas import INK, describe
from bough.system import cores
from tests.serving import Client, Server, Told, beside, in_threads, model, same, served, some_texts

JSON = {"content-type": "application/json"}
KEY = {"x-api-key": "secret"}
ONE = {"texts": ["the old tree"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model().save(tmp_path_factory.mktemp("served") / "model")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with served(folder, "--threads", "2") as found:
        yield found


class Slow(MultiTaskModel):
    """A model that takes its time."""

    def answer(self, asked: Iterable[Asked]) -> Iterator[Answers]:
        time.sleep(0.2)
        return super().answer(asked)


class Broken(MultiTaskModel):
    def answer(self, asked: Iterable[Asked]) -> Iterator[Answers]:
        raise RuntimeError("a fault of ours")


@asynccontextmanager
async def inside(made: MultiTaskModel, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The app in this process."""
    app = build(made, settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            yield client


def run(
    work: Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]],
    made: MultiTaskModel | None = None,
    **settings: Any,
) -> None:
    async def whole() -> None:
        async with inside(made or model(), Settings(**settings)) as client:
            await work(client)

    asyncio.run(whole())


def slow(kind: type[MultiTaskModel] = Slow) -> MultiTaskModel:
    made = model()
    return kind(made.network, made.tokenizer, made.longest)


# Answers.


def test_answers_are_the_models_own(folder: Path, server: Server) -> None:
    texts = some_texts(60)
    own = load_torch(folder)
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
    truth = load_torch(folder).predict(texts)

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


def test_overload_and_the_end_of_a_server(folder: Path) -> None:
    """Too much at once is answered or refused; what was accepted before the end is answered."""
    texts = some_texts(16, seed=2)
    truth = load_torch(folder).predict(texts)
    options = ("--queue", "16", "--texts", "16", "--threads", "1", "--tokens", "8")
    with served(folder, *options, key="secret") as small:
        with closing(Client(small.url)) as stranger:
            assert stranger.get("/tasks").status == 401
        overload(small, texts, truth)
        with closing(Client(small.url, **KEY)) as client:
            assert client.ask(texts[:2]).status == 200  # and it is well afterwards
            assert client.get("/ready").status == 200
        end(small, texts[:8], truth)


def overload(server: Server, texts: Sequence[Text], truth: Sequence[Answers]) -> None:
    statuses: list[int] = []

    def work(_: int) -> None:
        with closing(Client(server.url, **KEY)) as client:
            for _ in range(5):
                found = client.ask(texts)
                statuses.append(found.status)
                if found.status == 200:
                    assert all(map(same, found.json["answers"], truth))
                else:
                    assert int(found.headers["retry-after"]) >= 1
                    sentence = "the queue has no room for 16 more; try again later"
                    assert found.json == {"error": sentence}

    in_threads(16, work)
    assert set(statuses) == {200, 503}


def end(server: Server, texts: Sequence[Text], truth: Sequence[Answers]) -> None:
    moment = 0.0
    answered, after = [0] * 8, [0] * 8
    lost: list[tuple[float, str]] = []

    def work(number: int) -> None:
        with closing(Client(server.url, **KEY)) as client:
            while True:
                began = time.monotonic()
                try:
                    found = client.ask(texts)
                except (OSError, HTTPException) as error:
                    lost.append((began, repr(error)))
                    return
                assert found.status in (200, 503), found.json
                if found.status == 200:
                    assert all(map(same, found.json["answers"], truth))
                    answered[number] += 1
                    after[number] += moment > began

    def stop() -> None:
        nonlocal moment
        while sum(answered) < 20:
            time.sleep(0.01)
        moment = time.monotonic()
        server.process.send_signal(signal.SIGTERM)

    in_threads(9, lambda number: stop() if number == 8 else work(number))
    assert len(lost) == 8
    assert sum(after) > 0
    # What was sent well before the signal had arrived, so none of it may be lost.
    assert all(began > moment - 0.1 for began, _ in lost), (moment, lost)


# Refusals.


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b" ", 400, "the body is empty; send an object like"),
        (b"{'texts': 1}", 400, "the body is not JSON (key must be a string at line 1 column 2)"),
        (b'"\xff\xfe"', 400, "the body is not JSON (invalid unicode code point at line 1"),
        (b"[" * 100_000, 400, "the body is not JSON (recursion limit exceeded at line 1"),
        (b'["a"]', 422, "the body is a list; expected an object like"),
        (b"{}", 422, 'texts is missing; expected a list like {"texts": ["A fine film."]}'),
        (b'{"texts": []}', 422, "texts is an empty list; expected a list like"),
        (b'{"texts": "a tree"}', 422, "texts is a text; expected a list like"),
        (b'{"text": ["a"]}', 422, "no key 'text' in a request (texts, tasks); did you mean"),
        (b'{"texts": [null]}', 422, "text 1 is null; expected a text, or a pair like"),
        (b'{"texts": ["a", 1e400]}', 422, "text 2 is a number; expected a text, or a pair like"),
        (b'{"texts": [["a"]]}', 422, "text 1 is a list of 1; expected a text, or a pair like"),
        (b'{"texts": [["a", {}]]}', 422, "text 1 is a list of other things; expected a text"),
        (b'{"texts": ["a", " \\n"]}', 422, "text 2 is empty; there is nothing to judge"),
        (b'{"texts": [["a", ""]]}', 422, "text 1 is empty; there is nothing to judge"),
        (b'{"texts": ["a"], "tasks": []}', 422, "tasks is an empty list; name tasks, or leave"),
        (b'{"texts": ["a"], "tasks": "mood"}', 422, "tasks is a text; expected a list of names"),
        (b'{"texts": ["a"], "tasks": ["moot"]}', 422, "no task 'moot' in this model (mood, same"),
        (b'{"texts": ["a"], "tasks": ["same"]}', 422, "text 1: task 'same' judges a pair, this is"),
        (b'{"texts": [["a", "b"]], "tasks": ["mood"]}', 422, "text 1: task 'mood' judges one text"),
        (b'{"texts": ["aaaaaaaaaaaaaaaaaaaaa"]}', 422, "text 1 has 21 characters; at most 20 are"),
        (b'{"texts": ["a", "a", "a", "a"]}', 422, "4 texts in one request; send at most 3 at"),
        (b'{"texts": ["' + b"a" * 300_000 + b'"]}', 413, "the body is larger than 200,000 bytes;"),
    ],
)  # fmt: skip
def test_refusals_say_what_is_wrong(body: bytes, status: int, sentence: str) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        found = await client.post("/predict", content=body, headers=JSON)
        assert found.status_code == status
        assert list(found.json()) == ["error"]
        assert found.json()["error"].startswith(sentence)
        assert len(found.json()["error"]) < 250
        assert (await client.post("/predict", json=ONE)).status_code == 200

    run(work, limits=Limits(body=200_000, texts=3, characters=20))


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


def test_a_body_that_comes_in_parts_is_bounded() -> None:
    sent = 0

    async def parts() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 2**20
            yield b"a" * 2**20

    async def work(client: httpx.AsyncClient) -> None:
        found = await client.post("/predict", content=parts(), headers=JSON)
        assert found.status_code == 413

    run(work)
    assert sent <= 32 * 2**20


def test_late_answers_are_given_up() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        found = await client.post("/predict", json=ONE)
        assert found.status_code == 503
        assert found.json() == {"error": "no answer within 0.05 s; try again later"}
        assert int(found.headers["retry-after"]) >= 1

    run(work, slow(), limits=Limits(timeout=0.05))


def test_a_body_and_its_answer_have_one_limit_of_time() -> None:
    async def late() -> AsyncIterator[bytes]:
        await asyncio.sleep(0.3)
        yield json.dumps(ONE).encode()

    async def work(client: httpx.AsyncClient) -> None:
        found = await client.post("/predict", content=late(), headers=JSON)
        assert found.status_code == 503
        assert found.json() == {"error": "no answer within 0.4 s; try again later"}

    run(work, slow(), limits=Limits(timeout=0.4))


def test_late_bodies_are_given_up() -> None:
    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(5)

    async def work(client: httpx.AsyncClient) -> None:
        found = await client.post("/predict", content=never(), headers=JSON)
        assert found.status_code == 408

    run(work, limits=Limits(timeout=0.05))


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


def test_a_fault_is_a_500_with_a_sentence_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        found = await client.post("/predict", json=ONE)
        assert found.status_code == 500
        assert found.json() == {"error": "the server failed; its log says more"}

    run(work, slow(Broken))
    assert "a fault of ours" in caplog.text


# Keys, origins, headers, counts.


def test_a_key_is_asked_for() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for path in ("/tasks", "/metrics", "/plan.svg", "/openapi.json", "/nothing"):
            found = await client.get(path)
            assert found.status_code == 401, path
            assert found.headers["www-authenticate"] == "Bearer"
        for wrong in ("", "Bearer", "Bearer wrong", "Basic secret", "Bearer sécret"):
            headers = {"authorization": wrong.encode()}
            assert (await client.post("/predict", json=ONE, headers=headers)).status_code == 401
        for right in ({"authorization": "bearer secret"}, {"x-api-key": "secret"}):
            assert (await client.post("/predict", json=ONE, headers=right)).status_code == 200
        for path in ("/", "/docs", "/page/page.js", "/health", "/ready"):
            assert (await client.get(path)).status_code == 200
        schema = (await client.get("/openapi.json", headers={"x-api-key": "secret"})).json()
        assert schema["paths"]["/predict"]["post"]["security"] == [{"bearer": []}, {"header": []}]
        assert "security" not in schema["paths"]["/health"]["get"]

    run(work, key="secret")


def test_other_sites_may_ask_only_when_named() -> None:
    asking = {"origin": "https://one.example", "access-control-request-method": "POST"}

    async def closed(client: httpx.AsyncClient) -> None:
        found = await client.options("/predict", headers=asking)
        assert found.status_code == 405
        found = await client.post("/predict", json=ONE, headers=asking)
        assert not [name for name in found.headers if name.startswith("access-control")]

    async def named(client: httpx.AsyncClient) -> None:
        found = await client.options("/predict", headers=asking)
        assert found.headers["access-control-allow-origin"] == "https://one.example"
        assert found.headers["x-content-type-options"] == "nosniff"
        found = await client.options("/predict", headers=asking | {"origin": "https://two.example"})
        assert found.status_code == 400
        found = await client.post("/predict", json=ONE, headers=asking)
        assert found.status_code == 401
        assert found.headers["access-control-allow-origin"] == "https://one.example"  # can be read
        lines = (await client.get("/metrics", headers=KEY)).text.splitlines()
        assert 'bough_requests_total{method="OPTIONS",path="/predict",status="200"} 1' in lines
        assert 'bough_requests_total{method="OPTIONS",path="/predict",status="400"} 1' in lines
        assert 'bough_requests_total{method="POST",path="/predict",status="401"} 1' in lines

    run(closed)
    run(named, origins=("https://one.example",), key="secret")


def test_head_is_answered_where_get_is(server: Server) -> None:
    with closing(Client(server.url)) as client:
        for path in ("/health", "/ready", "/", "/page/page.js", "/tasks", "/openapi.json"):
            client.connection.request("HEAD", path)
            found = client.connection.getresponse()
            assert (found.status, found.read()) == (200, b""), path
            assert int(found.headers["content-length"]) > 0
        client.connection.request("HEAD", "/predict")
        found = client.connection.getresponse()
        assert (found.status, found.headers["allow"], found.read()) == (405, "POST", b"")
        assert client.get("/health").json == {"status": "alive"}  # on the same connection


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


def test_counts() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        await client.post("/predict", json={"texts": ["a", ["b", "c"]]})
        await client.post("/predict", content=b"{", headers=JSON)
        for path in ("/one", "/two", "/three"):
            await client.get(path)
        await client.request("INVENTED", "/health")
        found = await client.get("/metrics")
        assert found.headers["content-type"].startswith("text/plain")
        lines = found.text.splitlines()
        assert 'bough_requests_total{method="POST",path="/predict",status="200"} 1' in lines
        assert 'bough_requests_total{method="POST",path="/predict",status="400"} 1' in lines
        assert 'bough_requests_total{method="GET",path="none",status="404"} 3' in lines
        assert 'bough_requests_total{method="other",path="/health",status="405"} 1' in lines
        assert "bough_request_seconds_count 2" in lines
        assert "bough_pass_texts_sum 2.000000" in lines
        names = {line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")}
        assert all(name.startswith("bough_") for name in names)

    run(work)


def test_tasks_tell_what_is_computed_once() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        told = (await client.get("/tasks")).json()
        assert told["plan"] == "split@1, feed:mood>same"
        assert told["tasks"]["near"] == {
            "kind": "regress", "texts": 2, "range": [0, 5], "reads": [],
        }  # fmt: skip
        assert told["tasks"]["same"]["reads"] == ["mood"]
        assert told["work"]["text"] == {
            "tasks": ["mood"],
            "steps": 4,
            "alone": 4,
            "parts": [{"tasks": ["mood"], "places": ["embeddings", "layer 1-2", "pooler"]}],
        }
        # The joint task and what it reads; the twin task goes its own way, text by text.
        joint, twin = told["work"]["pair"], told["work"]["twins"]
        assert joint["parts"][0] == {"tasks": ["mood", "same"], "places": ["embeddings", "layer 1"]}
        assert (joint["steps"], twin["tasks"], twin["steps"]) == (6, ["near"], 4)
        assert told["examples"] == ["mine", ["one", "two"]]

    run(work, model("split@1, feed:mood>same", examples=["mine", ("one", "two")]))


def test_examples_fit_the_tasks() -> None:
    """Without examples of its own, a model gets those of ours that a task of it can judge."""
    forms = [type(example) for example in describe(model(), "a")["examples"]]
    assert forms == [str, str, list, list]
    for name, kind in (("mood", str), ("near", list)):
        examples = describe(model().only(name), "a")["examples"]
        assert {type(example) for example in examples} == {kind}


# Whatever comes.


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


def test_the_schema_is_true(server: Server, tmp_path: Path) -> None:
    """schemathesis makes bodies inside and outside the schema, and holds the server to it."""
    command = [
        sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
        "run", f"{server.url}/openapi.json", "--checks", "all", "--max-examples", "15",
        "--generation-deterministic", "--no-color", "--suppress-health-check", "all",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "Tested: 5" in done.stdout


def test_the_schema_and_the_server_agree_what_is_blank() -> None:
    characters = map(chr, range(sys.maxunicode + 1))
    assert [c for c in characters if bool(re.search(INK, c)) != bool(c.strip())] == []
    assert r"\s" not in INK  # which JavaScript, Python and Rust read differently

    async def work(client: httpx.AsyncClient) -> None:
        for text, status in (("\ufeff", 200), ("\x85", 422), ("\x1c", 422), ("\u3000", 422)):
            found = await client.post("/predict", json={"texts": [text]})
            assert found.status_code == status, text

    run(work)


# Connections.


def connect(url: str, *parts: bytes) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    raw = socket.create_connection((host, int(port)), timeout=10)
    for part in parts:
        raw.sendall(part)
    return raw


def post(body: bytes, length: int | None = None) -> bytes:
    """A request on the wire; with a greater length it is an unfinished one."""
    head = "POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {length or len(body)}\r\n\r\n".encode() + body


def told(raw: socket.socket) -> Told:
    response = HTTPResponse(raw)
    response.begin()
    return Told(response.status, json.loads(response.read()), dict(response.headers))


def test_hostile_connections_do_not_stop_the_others(server: Server) -> None:
    lines = [
        b"\x00" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /predict HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
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
                found = told(third)
            assert (found.status, found.headers["retry-after"]) == (503, "1")
            assert found.json == {"error": "every connection is in use; try again later"}
        one.sendall(b" " * 97 + b"}")
        assert told(one).json["error"].startswith("texts is missing")


@pytest.mark.parametrize(
    "start",
    [b"", b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 999\r\n\r\n"],
    ids=["nothing", "half a head", "a body after its refusal"],
)
def test_who_drips_is_cut_off(start: bytes) -> None:
    with beside(model(), Settings(limits=Limits(timeout=0.5))) as url, connect(url, start) as raw:
        began = time.monotonic()
        with pytest.raises(OSError):  # noqa: PT012
            while time.monotonic() - began < 5:
                time.sleep(0.05)
                raw.sendall(b"x" if start else b"")
                raw.settimeout(0.001)
                with suppress(TimeoutError):
                    if not raw.recv(1000):
                        raise ConnectionError("closed")


def test_bodies_under_way_have_a_limit_together() -> None:
    size = 2**18
    unfinished = post(b" " * (size - 9), size)
    with beside(model(), Settings(limits=Limits(body=size))) as url:
        with ExitStack() as stack, closing(Client(url)) as client:
            for _ in range(BODIES):
                stack.enter_context(connect(url, unfinished))
            time.sleep(0.5)
            with connect(url, unfinished) as raw:
                found = told(raw)
            assert (found.status, found.headers["retry-after"]) == (503, "1")
            assert found.json == {"error": "too many large bodies are under way; try again later"}
            assert client.post(ONE).status == 200  # a short one is read
        time.sleep(0.1)
        with connect(url, post(json.dumps(ONE).encode().ljust(size))) as raw:
            assert told(raw).status == 200


class Counting(MultiTaskModel):
    """Answers one text at a time, not fast, and counts them."""

    def answer(self, asked: Iterable[Asked]) -> Iterator[Answers]:
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
            lines = client.connection.getresponse().read().decode().splitlines()
        assert "bough_queue_texts 0" in lines
        assert 'bough_requests_total{method="POST",path="/predict",status="499"} 1' in lines


def test_short_answers_are_not_held_back(server: Server) -> None:
    """Two small packets and a late acknowledgement would cost 40 ms for each of them."""
    took = []
    with closing(Client(server.url)) as client:
        for _ in range(31):
            began = time.monotonic()
            assert client.get("/health").status == 200
            took.append(time.monotonic() - began)
    assert sorted(took)[15] < 0.03


def test_requests_may_follow_each_other_at_once(server: Server) -> None:
    one = post(json.dumps(ONE).encode())
    with connect(server.url, one * 3, one[:-5]) as raw:
        found = b""
        for answers in (3, 4):
            while found.count(b'"answers"') < answers:
                found += raw.recv(9999)
            raw.sendall(one[-5:])
    assert found.count(b"HTTP/1.1 200 OK") == 4


# Mistakes of who starts it.


def test_mistakes_at_the_start(folder: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            UserError, match=rf"cannot listen on 127.0.0.1:{port} \(Address already"
        ):
            serve(folder, Settings(), "127.0.0.1", port, "cpu")
    with pytest.raises(UserError, match=r"cannot listen on nowhere\.invalid:0"):
        serve(folder, Settings(), "nowhere.invalid", 0, "cpu")
    with pytest.raises(UserError, match="no model there"):
        serve(tmp_path, Settings(), "127.0.0.1", 0, "cpu")
    found = CliRunner().invoke(cli, ["serve", str(folder), "--queue", "10"])
    assert isinstance(found.exception, UserError)
    assert "a queue of 10 texts cannot hold one request of 256" in str(found.exception)
    for value in ("0", "inf", "nan"):
        found = CliRunner().invoke(cli, ["serve", str(folder), "--timeout", value])
        assert isinstance(found.exception, UserError), value
        assert str(found.exception).startswith(f"the limit of timeout is {float(value)}; expected")


def test_two_servers_on_one_port(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is told so even while the first still loads its model."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    loads = []

    def loading(*_: object, **__: object) -> None:
        loads.append(port)
        serve(folder, Settings(), "127.0.0.1", port, "cpu")

    monkeypatch.setattr("bough.serve.main.load", loading)
    with pytest.raises(UserError, match=r"cannot listen on .* \(Address already in use\)"):
        loading()
    assert len(loads) == 2


def started(monkeypatch: pytest.MonkeyPatch, *options: str, **environment: str) -> tuple[Any, ...]:
    """What `bough serve` would start the server with."""
    given: list[tuple[Any, ...]] = []
    monkeypatch.setattr("bough.serve.main.serve", lambda *found: given.append(found))
    found = CliRunner().invoke(cli, ["serve", "model", *options], env=environment)
    if found.exception:
        raise found.exception
    return given[0]


def test_keys_that_no_client_could_send(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("secret", "secret\n", " secret\r\n"):
        assert started(monkeypatch, BOUGH_API_KEY=key)[1].key == "secret"
    for key in ("\udcff\udcfe", "sec\nret", "sécret", " \n"):
        with pytest.raises(UserError, match="the API key is empty or has characters that a header"):
            started(monkeypatch, BOUGH_API_KEY=key)
    with pytest.raises(UserError, match="the API key is empty"):
        started(monkeypatch, "--api-key", "")
    with pytest.raises(UserError, match="the API key is empty or"):
        Settings(key=" secret")


@pytest.mark.parametrize(
    ("origin", "right"),
    [
        ("https://my.site/", "https://my.site"),
        ("https://my.site/page?a=b", "https://my.site"),
        ("https://My.site", "https://my.site"),
        ("https://my.site:443", "https://my.site"),
        ("http://me@[::1]:8080", "http://[::1]:8080"),
        ("my.site", "https://my.site"),
        ("https://my.site:port", "https://my.site"),
        ("", "https://my.site"),
    ],
)
def test_origins_are_as_browsers_name_them(origin: str, right: str) -> None:
    sentence = f"--cors {origin!r} is no site as browsers name it; write {right} or *"
    with pytest.raises(UserError, match=re.escape(sentence)):
        Settings(origins=("*", origin))
    Settings(origins=(right, "http://localhost:3000"))


def test_threads_follow_the_device_that_auto_means(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, device, threads in ((False, "cpu", cores()), (True, "cuda", 1)):
        monkeypatch.setattr("torch.cuda.is_available", lambda there=there: there)
        monkeypatch.setattr("torch.cuda.device_count", lambda there=there: int(there))
        given = started(monkeypatch, "--device", "auto")
        assert (given[4], given[1].threads) == (device, threads)


def test_what_fails_at_the_start_ends_the_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed:
        def __init__(self, *_: object, **__: object):
            raise RuntimeError("a fault of ours")

    async def serving(_: object) -> None:
        raise AssertionError("it serves nevertheless")

    monkeypatch.setattr("bough.serve.app.Gate", Closed)
    monkeypatch.setattr("uvicorn.Server.main_loop", serving)
    with pytest.raises(SystemExit) as ended:
        serve(folder, Settings(), "127.0.0.1", 0, "cpu")
    assert ended.value.code


def test_a_model_without_numbers_is_not_served(tmp_path: Path) -> None:
    broken = model()
    broken.network.cells["head/mood"].output.bias.data.fill_(float("nan"))  # type: ignore[union-attr]
    with pytest.raises(UserError, match="task 'mood' answers nan"):
        serve(broken.save(tmp_path), Settings(), "127.0.0.1", 0, "cpu")
