"""What one connection may hold, and for how long."""

from __future__ import annotations

import json
import time
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from bough.serve.app import build
from bough.serve.connections import PIPELINED, limited_protocol
from bough.serve.settings import Settings
from tests.serving import ONE, beside, connect, model, post, reply


def a_connection(timeout: float = 5.0) -> tuple[H11Protocol, Mock, Mock]:
    """One on a loop of which nothing runs; with its loop and its transport."""
    loop, transport = Mock(), Mock()
    loop.time.return_value = 0.0
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
    assert received.count(b"connection: close") == 1


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
