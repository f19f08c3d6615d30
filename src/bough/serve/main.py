"""All tasks of one model answered over HTTP until told to end, by one process or several."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from errno import EADDRNOTAVAIL
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from bough.errors import UserError
from bough.inference.load import load
from bough.inference.model import Model
from bough.inference.precision.int8_scores import known
from bough.machine_limits import files
from bough.safe_text import shown
from bough.serve.app import build
from bough.serve.connections import limited_protocol
from bough.serve.prometheus import counted_together
from bough.serve.settings import Limits, Settings
from bough.serve.workers import CLOSED, HandedServer, Workers, tell

SWITCH = 0.001  # seconds after which a thread that computes makes way for others that wait
CONNECTIONS = 1024  # at a time, where the process may have twice as many files


def serve(
    source: str | Path,
    settings: Settings,
    host: str,
    port: int,
    device: str,
    precision: str = "auto",
) -> None:
    """Load a model and answer until told to end; what was accepted is answered before that."""
    _check_workers(settings.workers, device)
    with listen(host, port) as listener:
        # On the CPU a pass has one thread, and there is a pass per core: none waits for another.
        model = load(source, device, threads=1 if device == "cpu" else None, precision=precision)
        if precision == "int8":
            for change in known(model):
                print(shown(str(change)), file=sys.stderr)
        settings = _bound(settings, host, listener)
        greet = partial(_greet, str(source), listener, settings)
        answer = _answer_alone if settings.workers == 1 else _answer_by_workers
        answer(partial(_built, model, settings, _name(source)), settings, listener, greet)


def _built(model: Model, settings: Settings, name: str) -> FastAPI:
    _warm(model)
    return build(model, settings, name)


def _answer_alone(
    app: Callable[[], FastAPI],
    settings: Settings,
    listener: socket.socket,
    greet: Callable[[], None],
) -> None:
    server = uvicorn.Server(configure(app(), settings.limits))

    def end(*_: object) -> None:
        server.should_exit = True

    # For a signal before uvicorn has its own handler, and for the one that it raises again
    # when all is answered: that is then no failure.
    before = signal.signal(signal.SIGTERM, end)
    greet()
    try:
        with _prompt_threads():
            server.run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, before)


def _answer_by_workers(
    app: Callable[[], FastAPI],
    settings: Settings,
    listener: socket.socket,
    greet: Callable[[], None],
) -> None:
    def work(channel: socket.socket) -> None:
        config = configure(app(), settings.limits, partial(tell, channel, CLOSED))
        with _prompt_threads():
            HandedServer(config, channel).run()

    gc.collect()
    gc.freeze()  # else every worker would write to all objects, and have copies of them
    with counted_together() as gone:
        Workers(settings.workers, listener, work, gone).run(greet, settings.limits.timeout)


def _check_workers(workers: int, device: str) -> None:
    if workers > 1 and device != "cpu":
        raise UserError(
            f"--workers {workers} share a model's weights in the CPU's memory; leave it out on "
            f"{device}, or start a server for each device"
        )
    if workers > 1 and not hasattr(os, "fork"):
        raise UserError(
            f"--workers {workers} needs a system that can fork; leave it out, or start several "
            "servers behind a balancer"
        )


@contextlib.contextmanager
def _prompt_threads() -> Iterator[None]:
    """No thread waits long for another, which Python lets compute in turns."""
    gc.collect()
    gc.freeze()  # else a large body's objects have all of torch's looked through
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)  # a pass asks for its turn at every step
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
        gc.unfreeze()


def _bound(settings: Settings, host: str, listener: socket.socket) -> Settings:
    """The settings, with what follows from the address: its names, and who may see dev rows."""
    names = filter(None, (host.lower(), listener.getsockname()[0]))
    shown = settings.show_examples
    return replace(
        settings,
        hosts=tuple(dict.fromkeys((*settings.hosts, *names))),
        show_examples=_on_loopback(listener) if shown is None else shown,
    )


def _on_loopback(listener: socket.socket) -> bool:
    return ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


def configure(
    app: FastAPI, limits: Limits, closed: Callable[[], None] | None = None
) -> uvicorn.Config:
    """How uvicorn runs the app; `closed` is called after each connection."""
    return uvicorn.Config(
        app,
        http=limited_protocol(min(CONNECTIONS, files() // 2), limits.timeout, closed),
        ws="none",
        lifespan="on",  # what fails at the start ends the server
        backlog=_backlog(),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(limits.timeout) + 5,
    )


def _backlog() -> int:
    """Connections that may wait to be accepted; asyncio accepts all of them at a time.

    Three times as many can be open before the first of them is counted, and refused.
    """
    return max(1, files() // 8)


def _greet(source: str, listener: socket.socket, settings: Settings) -> None:
    name, port = listener.getsockname()[:2]
    url = f"http://{f'[{name}]' if ':' in name else name}:{port}"
    print(f"bough: {source} answers at {url} (page) and {url}/docs; Ctrl-C ends it", flush=True)
    if not _on_loopback(listener) and settings.key is None:
        warning = "bough: everyone who reaches this address can ask; BOUGH_API_KEY sets a key"
        print(warning, file=sys.stderr)


def listen(host: str, port: int) -> socket.socket:
    """The address, taken before the model is loaded: its mistakes show at once.

    Who comes while the model is loaded waits for its answer.
    """
    try:
        *kind, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with contextlib.ExitStack() as stack:
            # With its protocol: only then asyncio sends short answers without delay.
            listener = stack.enter_context(socket.socket(*kind))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_backlog())  # else a second server could bind the same address
            stack.pop_all()
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        nowhere = isinstance(error, socket.gaierror) or getattr(error, "errno", 0) == EADDRNOTAVAIL
        other = "--host" if nowhere else "--port"
        raise UserError(f"cannot listen on {host}:{port} ({why}); choose another {other}") from None
    return listener


def _name(source: str | Path) -> str:
    """What the page calls the model: a folder's name tells strangers nothing about the machine."""
    return Path(source).resolve().name if Path(source).exists() else str(source)


def _warm(model: Model) -> None:
    """First answers, while nobody waits: a model that gives no numbers is no use to anyone."""
    for text in ("A first text.", ("A first text.", "A second text.")):
        fitting = tuple(n for n, t in model.tasks.items() if t.paired == isinstance(text, tuple))
        answers = next(model.answer([(text, fitting)])) if fitting else {}
        for task, answer in answers.items():
            if not answer.finite:
                raise UserError(f"task {task!r} answers {answer.number}; train the model again")
