"""The process: its start, its mistakes, and its end."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from bough.cli.main import app as cli
from bough.errors import UserError
from bough.inference.load import load
from bough.inference.model import Text
from bough.machine_limits import cores
from bough.serve.app import build
from bough.serve.main import listen, serve
from bough.serve.microbatch import Answers
from bough.serve.settings import LOCAL, Settings
from tests.serve.ending import end_under_load
from tests.serving import KEY, Client, Server, in_threads, model, same, served, some_texts


def test_overload_and_the_end_of_a_server(folder: Path) -> None:
    """Too much at once is answered or refused; what was accepted before the end is answered."""
    texts = some_texts(16, seed=2)
    truth = load(folder).predict(texts)
    options = ("--queue", "16", "--texts", "16", "--threads", "1", "--tokens", "8")
    with served(folder, *options, key="secret") as small:
        with closing(Client(small.url)) as stranger:
            assert stranger.get("/tasks").status == 401
        overload(small, texts, truth)
        with closing(Client(small.url, **KEY)) as client:
            assert client.ask(texts[:2]).status == 200  # and it is well afterwards
            assert client.get("/ready").status == 200
        end_under_load(small, texts[:8], truth, **KEY)


def overload(server: Server, texts: Sequence[Text], truth: Sequence[Answers]) -> None:
    statuses: list[int] = []

    def work(_: int) -> None:
        with closing(Client(server.url, **KEY)) as client:
            for _ in range(5):
                response = client.ask(texts)
                statuses.append(response.status)
                if response.status == 200:
                    assert all(map(same, response.json["answers"], truth))
                else:
                    assert int(response.headers["retry-after"]) >= 1
                    sentence = "the queue has no room for 16 more; try again later"
                    assert response.json == {"error": sentence}

    in_threads(16, work)
    assert set(statuses) == {200, 503}


def test_short_answers_are_not_held_back() -> None:
    """Two small packets and a late acknowledgement would cost 40 ms for each of them."""

    async def accepted() -> int:
        option: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            raw = writer.get_extra_info("socket")
            option.set_result(raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with listen("127.0.0.1", 0) as listener:
            server = await asyncio.start_server(accept, sock=listener)
            _, writer = await asyncio.open_connection(*listener.getsockname())
            writer.close()
            async with server:
                return await option

    assert asyncio.run(accepted())


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
    result = CliRunner().invoke(cli, ["serve", str(folder), "--queue", "10"])
    assert isinstance(result.exception, UserError)
    assert "a queue of 10 texts cannot hold one request of 256" in str(result.exception)
    for value in ("0", "inf", "nan"):
        result = CliRunner().invoke(cli, ["serve", str(folder), "--timeout", value])
        assert isinstance(result.exception, UserError), value
        assert str(result.exception).startswith(f"the limit of timeout is {float(value)}; expected")


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
    monkeypatch.setattr("bough.serve.main.serve", lambda *arguments: given.append(arguments))
    result = CliRunner().invoke(cli, ["serve", "model", *options], env=environment)
    if result.exception:
        raise result.exception
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

    monkeypatch.setattr("bough.serve.app.MetricsMiddleware", Closed)
    monkeypatch.setattr("uvicorn.Server.main_loop", serving)
    with pytest.raises(SystemExit) as ended:
        serve(folder, Settings(), "127.0.0.1", 0, "cpu")
    assert ended.value.code


def test_a_model_without_numbers_is_not_served(tmp_path: Path) -> None:
    broken = model()
    bias = dict(broken.network.named_parameters())["cells.head/mood.output.bias"]
    torch.nn.init.constant_(bias, float("nan"))
    with pytest.raises(UserError, match="task 'mood' answers nan"):
        serve(broken.save(tmp_path), Settings(), "127.0.0.1", 0, "cpu")


@pytest.mark.parametrize(
    ("host", "chosen", "shown", "names"),
    [
        ("127.0.0.1", None, True, LOCAL),
        ("localhost", None, True, LOCAL),
        ("0.0.0.0", None, False, (*LOCAL, "0.0.0.0")),
        ("0.0.0.0", True, True, (*LOCAL, "0.0.0.0")),
        ("127.0.0.1", False, False, LOCAL),
    ],
)
def test_what_follows_from_the_address(
    host: str,
    chosen: bool | None,
    shown: bool,
    names: tuple[str, ...],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While it serves, torch's objects are no garbage to collect, and threads wait shortly."""
    usual = sys.getswitchinterval()
    frozen: list[tuple[int, float]] = []
    given: list[Settings] = []

    def building(made: Any, settings: Settings, name: str) -> Any:
        given.append(settings)
        return build(made, settings, name)

    monkeypatch.setattr("bough.serve.main.build", building)

    def looking(*_: Any, **__: Any) -> None:
        frozen.append((gc.get_freeze_count(), sys.getswitchinterval()))

    monkeypatch.setattr("uvicorn.Server.run", looking)
    serve(folder, Settings(show_examples=chosen), host, 0, "cpu")
    assert (given[0].show_examples, set(given[0].hosts)) == (shown, set(names))
    assert frozen[0][0] > 10_000
    assert frozen[0][1] < usual
    assert (gc.get_freeze_count(), sys.getswitchinterval()) == (0, usual)


def test_the_names_and_shares_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--host-name", "My.site", "--per-client", "3", "--hide-examples")
    settings = started(monkeypatch, *options)[1]
    assert settings.hosts == (*LOCAL, "my.site")
    assert (settings.per_client, settings.show_examples) == (3, False)
    assert started(monkeypatch)[1] == Settings(threads=cores())
