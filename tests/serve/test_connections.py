"""What one connection may hold, and for how long."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from bough.serve.app import build
from bough.serve.connections import PACE, PIPELINED, Pool, limited_protocol
from bough.serve.settings import Limits, Settings
from tests.serving import ONE, Client, Server, beside, connect, model, post, reply, served


def a_connection(timeout: float = 5.0) -> tuple[H11Protocol, Mock, Mock]:
    """One on a loop of which nothing runs; with its loop and its transport."""
    loop, transport = Mock(), Mock()
    loop.time.return_value = 0.0
    loop.create_task.side_effect = lambda work: Mock(never_runs=work.close())
    transport.get_extra_info.return_value = None
    transport.is_closing.return_value = False
    config = uvicorn.Config(build(model(), Settings()), lifespan="off")
    protocol = limited_protocol(9, timeout)(config, ServerState(), {}, loop)
    protocol.connection_made(transport)
    return protocol, loop, transport


def timers(loop: Mock) -> list[float]:
    return [call.args[0] for call in loop.call_later.call_args_list]


def test_a_request_under_way_has_an_end_and_so_has_its_reading() -> None:
    """Which reading a little, again and again, does not put off."""
    protocol, loop, transport = a_connection()
    protocol.cycle = Mock(response_complete=False, more_body=False)
    protocol.resume_writing()
    assert timers(loop) == [5.0, 10.0]
    for _ in range(9):
        protocol.pause_writing()
        protocol.resume_writing()
    assert timers(loop) == [5.0, 10.0, 5.0]
    loop.call_later.call_args.args[1]()
    transport.abort.assert_called_once()


def test_requests_sent_ahead_have_an_end() -> None:
    """Else whoever sends them without reading keeps a connection busy as long as it likes."""
    many = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 3 * PIPELINED
    with beside(model(), Settings()) as url, connect(url, many) as raw:
        received = b""
        while part := raw.recv(2**16):
            received += part
    assert received.count(b"HTTP/1.1 200 OK") == PIPELINED + 1


def test_requests_sent_ahead_wait_for_those_that_are_not() -> None:
    """However many connections send them: one at a time, and the loop is free in between."""
    ahead = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2
    first, loop, _ = a_connection()
    second = type(first)(first.config, first.server_state, {}, loop)
    second.connection_made(first.transport)
    for connection in (first, second):
        connection.data_received(ahead)
        finish(connection)
        assert connection.cycle.response_complete, "the next one has begun already"
    (turn,) = (c.args[1] for c in loop.call_later.call_args_list if c.args[0] == PACE)
    turn()
    assert [c.cycle.response_complete for c in (first, second)] == [False, True]
    second.connection_lost(None)  # who leaves, waits no more
    loop.call_later.call_args.args[1]()
    assert second.cycle.response_complete


def finish(connection: H11Protocol) -> None:
    """Answer the request that is under way."""

    async def answer() -> None:
        await connection.cycle.send({"type": "http.response.start", "status": 200, "headers": []})
        await connection.cycle.send({"type": "http.response.body", "body": b"", "more_body": False})

    asyncio.run(answer())


@pytest.mark.parametrize("reads", [True, False])
def test_the_end_waits_for_readers_only(reads: bool) -> None:
    protocol, loop, transport = a_connection()
    transport.get_write_buffer_size.return_value = 300
    protocol.shutdown()
    transport.close.assert_called_once()
    for left in (200, 100) if reads else (300,):
        transport.get_write_buffer_size.return_value = left
        _, hurry, *arguments = loop.call_later.call_args.args
        hurry(*arguments)
    assert transport.abort.called != reads


def test_the_end_does_not_wait_for_a_body_that_drips() -> None:
    protocol, loop, transport = a_connection()
    transport.get_write_buffer_size.return_value = 0
    protocol.cycle = Mock(response_complete=False, more_body=True)
    protocol.resume_writing()
    protocol.shutdown()
    for now, ended in ((1.0, False), (60.0, True)):
        loop.time.return_value = now
        _, hurry, *arguments = loop.call_later.call_args.args
        hurry(*arguments)
        assert transport.abort.called == ended


def test_a_body_that_does_not_come_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bough.serve.main.files", lambda: 4)
    monkeypatch.setattr("bough.serve.connections.SLOW", 0.2)
    unfinished = post(b"{", 99)
    with (
        beside(model(), Settings()) as url,
        connect(url, unfinished),
        connect(url, unfinished),
    ):
        time.sleep(0.5)
        with connect(url, post(json.dumps(ONE).encode())) as third:
            assert reply(third).status == 200


def test_who_has_just_come_is_the_last_to_go() -> None:
    """Else a burst of hostile connections ends the honest ones before their requests are here."""
    pool = Pool(9, 30.0)
    old, new, early, late = (Mock() for _ in range(4))
    assert pool.in_the_way(100.0) is None
    pool.idle[new] = 99.9
    assert pool.in_the_way(100.0) is new
    pool.bodies[late] = 99.0
    assert pool.in_the_way(100.0) is new
    pool.bodies = {early: 90.0, late: 99.0}
    assert pool.in_the_way(100.0) is early
    pool.idle = {old: 98.0, new: 99.9}
    assert pool.in_the_way(100.0) is old


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


def test_requests_may_follow_each_other_at_once(server: Server) -> None:
    one = post(json.dumps(ONE).encode())
    with connect(server.url, one * 3, one[:-5]) as raw:
        received = b""
        for answers in (3, 4):
            while received.count(b'"answers"') < answers:
                received += raw.recv(9999)
            raw.sendall(one[-5:])
    assert received.count(b"HTTP/1.1 200 OK") == 4


def test_what_drips_in_puts_no_end_off() -> None:
    protocol, loop, transport = a_connection()
    for byte in b"GET / HTTP/1.1\r\nhost: localhost\r\n":
        protocol.data_received(bytes([byte]))
    ((seconds, end),) = (call.args for call in loop.call_later.call_args_list)
    assert (seconds, transport.abort.called) == (5.0, False)
    end()
    transport.abort.assert_called_once()
