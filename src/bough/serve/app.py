"""The HTTP API and the page of one model, as an app.

The loop reads requests and writes answers; threads of `microbatch` do the model's passes. A request
is either refused with one sentence or accepted, and what is accepted is answered, even when the
process is told to end in the meantime.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.routing import Route
from tokenizers import Tokenizer

import bough
from bough.errors import UserError, shorten
from bough.inference.model import Model
from bough.plan import diagram
from bough.serve import requests, schemas
from bough.serve.body import GONE, Bodies
from bough.serve.metrics import Meters
from bough.serve.microbatch import Answerer, Closed, Microbatcher, NoRoom
from bough.serve.microbatch import Request as Waiting
from bough.serve.middleware import Gate, Key, policy
from bough.serve.requests import Limits, Refusal

OPEN = ("/health", "/ready")  # answered without a key
PAGES = {"/": "index.html", "/docs": "docs.html"}
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Settings:
    """How the server runs."""

    limits: Limits = field(default_factory=Limits)
    threads: int = 1  # passes at a time
    tokens: int = 1024  # of one pass, about
    key: str | None = None
    origins: tuple[str, ...] = ()  # of other sites' pages that may ask

    def __post_init__(self) -> None:
        if self.key is not None and not re.fullmatch("[!-~]([ -~]*[!-~])?", self.key):
            raise UserError(
                "the API key is empty or has characters that a header cannot carry; "
                "use letters, digits and signs of ASCII"
            )
        for origin in self.origins:
            _check_origin(origin)


def _check_origin(origin: str) -> None:
    """A browser names its page's site in one form only; another would never match."""
    if origin == "*":
        return
    example = "https://my.site"
    with contextlib.suppress(ValueError):  # no address, or no port
        parts = urlsplit(origin)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        usual = {"http": 80, "https": 443}.get(parts.scheme)
        port = "" if parts.port in (None, usual) else f":{parts.port}"
        if parts.scheme and host and host.isascii():
            example = f"{parts.scheme}://{host}{port}"
            if origin == example:
                return
    raise UserError(
        f"--cors {shorten(origin)} is no site as browsers name it; write {example} or *"
    )


def build(model: Model, settings: Settings, name: str = "model") -> FastAPI:
    """The app for a model; its threads live as long as the app's lifespan."""
    limits = settings.limits
    meters = Meters()
    batcher = Microbatcher(
        _answerers(model, settings.threads), limits.queue, settings.tokens, model.longest, meters
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        try:
            yield
        finally:
            await asyncio.to_thread(batcher.close)

    app = FastAPI(
        title="bough",
        version=bough.__version__,
        description=f"Answers of {len(model.tasks)} tasks from one model ({model.plan.text}).",
        lifespan=lifespan,
        docs_url=None,  # the usual page fetches its code from elsewhere; ours is at /docs
        redoc_url=None,
        exception_handlers={Refusal: _refused, HTTPException: _http_error},
    )
    drawing = diagram.svg(model.plan)
    _add_predict(app, model, batcher, limits)
    _add_facts(app, schemas.describe(model, name), drawing)
    _add_state(app, batcher, meters)
    pages = _add_pages(app)
    # What is added last is outermost.
    if settings.key is not None:
        app.add_middleware(Key, key=settings.key, open_paths={*OPEN, *pages})
        schemas.ask_for_key(app.openapi(), OPEN)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-api-key"],
            expose_headers=["retry-after", "server-timing"],
        )
    paths = {route.path for route in app.routes if isinstance(route, Route)}
    app.add_middleware(Gate, meters=meters, paths=paths, policy=policy(drawing))
    return app


def _answerers(model: Model, threads: int) -> list[Answerer]:
    """One per thread: the weights are common, a tokenizer is not made for several threads."""
    words = model.tokenizer.to_str()
    return [replace(model, tokenizer=Tokenizer.from_str(words)).answer for _ in range(threads)]


def _add_predict(app: FastAPI, model: Model, batcher: Microbatcher, limits: Limits) -> None:
    bodies = Bodies(limits)

    async def predict(request: Request) -> Response:
        deadline = asyncio.get_running_loop().time() + limits.timeout
        asked = requests.read(await bodies.read(request, deadline), model, limits)
        try:
            waiting = batcher.submit(asked)
        except NoRoom:
            sentence = f"the queue has no room for {len(asked)} more; try again later"
            raise Refusal(503, sentence, batcher.patience()) from None
        except Closed:
            raise Refusal(503, "the server is shutting down", 1) from None
        try:
            done = await _answered(waiting, request, deadline)
        except TimeoutError:
            sentence = f"no answer within {limits.timeout:g} s; try again later"
            raise Refusal(503, sentence, batcher.patience()) from None
        queue, compute = done.begun - done.arrived, done.done - done.begun
        return Response(
            to_json({"answers": [{t: a.plain() for t, a in answers.items()} for answers in done]}),
            media_type="application/json",
            headers={
                "server-timing": f"queue;dur={queue * 1e3:.2f}, model;dur={compute * 1e3:.2f}"
            },
        )

    schema = schemas.request_schema(model.tasks, limits)
    app.post(
        "/predict",
        summary="Answer texts",
        description="Every text, or pair of texts, is answered by the chosen tasks, or by all "
        "that fit. Answers come in the order of the texts.",
        responses={
            200: schemas.content(schemas.answers_schema(model.tasks), "The answers, in order."),
            **schemas.errors(400, 408, 413, 415, 422, 503),
        },
        openapi_extra={
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}
        },
        response_class=Response,
    )(predict)


def _add_facts(app: FastAPI, facts: Mapping[str, Any], drawing: str) -> None:
    text = to_json(facts)

    async def tasks() -> Response:
        return Response(text, media_type="application/json")

    async def plan() -> Response:
        return Response(drawing, media_type=TYPES[".svg"])

    app.get(
        "/tasks",
        summary="The tasks, the plan, and what is computed once for several tasks.",
        responses={200: schemas.content(schemas.FACTS, "What the model can be asked.")},
        response_class=Response,
    )(tasks)
    app.get("/plan.svg", include_in_schema=False)(plan)


def _add_state(app: FastAPI, batcher: Microbatcher, meters: Meters) -> None:
    state = {
        "type": "object",
        "properties": {"status": {"type": "string"}},
        "required": ["status"],
    }

    async def health() -> Response:
        return JSONResponse({"status": "alive"})

    async def ready() -> Response:
        if not batcher.ready:
            raise Refusal(503, "the queue is full, or the server ends", batcher.patience())
        return JSONResponse({"status": "ready"})

    async def metrics() -> Response:
        return PlainTextResponse(meters.text(batcher.waiting, batcher.room))

    alive: schemas.Responses = {200: schemas.content(state, "Yes.")}
    app.get("/health", summary="Is the process alive?", responses=alive)(health)
    app.get("/ready", summary="Are requests taken?", responses={**alive, **schemas.errors(503)})(
        ready
    )
    app.get(
        "/metrics",
        summary="Counts since the start, for Prometheus.",
        response_description="Prometheus text.",
        response_class=PlainTextResponse,
    )(metrics)


def _add_pages(app: FastAPI) -> list[str]:
    """The page's files, read once; they hold nothing of the model, so they need no key."""
    folder = resources.files("bough.serve") / "page"
    files = {item.name: item.read_bytes() for item in folder.iterdir() if item.is_file()}
    paths = PAGES | {f"/page/{name}": name for name in files}

    def sender(name: str) -> Callable[[], Any]:
        async def send() -> Response:
            return Response(
                files[name],
                media_type=TYPES[Path(name).suffix],
                headers={"cache-control": "no-cache"},
            )

        return send

    for path, name in paths.items():
        app.get(path, include_in_schema=False)(sender(name))
    return list(paths)


# Requests.


async def _answered(waiting: Waiting, request: Request, deadline: float) -> Waiting:
    """The answers, waited for as long as the client waits; nothing is computed for nobody."""
    answers = asyncio.wrap_future(waiting.future)
    left = asyncio.ensure_future(_left(request))
    try:
        async with asyncio.timeout_at(deadline):
            either: set[asyncio.Future[Any]] = {answers, left}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not answers.done():
            raise Refusal(GONE, "the client has left")
        return answers.result()
    finally:
        answers.cancel()
        left.cancel()


async def _left(request: Request) -> None:
    """After the body, a client has nothing more to tell but that it leaves."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refused(_: Request, refusal: Refusal) -> Response:
    return JSONResponse({"error": str(refusal)}, refusal.status, refusal.headers)


async def _http_error(request: Request, error: HTTPException) -> Response:
    sentence = {
        404: f"there is nothing at {request.url.path[: requests.SHOWN]!r}; see /docs",
        405: f"{request.url.path} does not take {request.method}; see /docs",
    }.get(error.status_code, str(error.detail))
    return JSONResponse({"error": sentence}, error.status_code, error.headers)
