"""The HTTP API and the page of one model, as an app.

The loop reads requests and writes answers; threads of `microbatch` do the model's passes. A request
is either refused with one sentence or accepted, and what is accepted is answered, even when the
process is told to end in the meantime.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Security
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import Route
from tokenizers import Tokenizer

import bough
from bough.errors import UserError
from bough.inference.model import Model
from bough.plan import diagram
from bough.serve import auth, errors, schemas
from bough.serve.limits import BodyReader, while_connected
from bough.serve.microbatch import DeadlyText, Microbatcher, Predictor, Query, QueueFull
from bough.serve.middleware import Failures, Gate, MetricsMiddleware, security_policy
from bough.serve.prometheus import Metrics
from bough.serve.schemas import PredictRequest, Status
from bough.serve.settings import Limits, Settings
from bough.serve.task_info import ModelInfo, describe
from bough.templates import environment

PAGES = {"/": "index.html", "/docs": "docs.html"}
SVG = "image/svg+xml"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": SVG}


def build(model: Model, settings: Settings, name: str = "model") -> FastAPI:
    """The app for a model; its threads live as long as the app's lifespan."""
    metrics = Metrics()
    batcher = Microbatcher(
        _predictors(model),
        settings.threads,
        settings.limits.queue,
        settings.tokens,
        model.longest,
        metrics,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        try:
            yield
        finally:
            await asyncio.to_thread(batcher.close)

    check_key = auth.key_check(settings.key) if settings.key else None
    app = FastAPI(
        title="bough",
        version=bough.__version__,
        description=f"Answers of {len(model.tasks)} tasks from one model ({model.plan.text}).",
        lifespan=lifespan,
        openapi_url=None,  # the usual one asks for no key
        docs_url=None,  # the usual page fetches its code from elsewhere; ours is at /docs
        redoc_url=None,
        redirect_slashes=False,  # one would lead to whatever host the request names
        exception_handlers=_handlers(model, check_key),
    )
    locked = APIRouter(responses=errors.responses(421, *([429] if settings.per_client else [])))
    if check_key:  # the schemes themselves are for the OpenAPI schema
        locked.dependencies += [Security(auth.BEARER), Security(auth.HEADER), Depends(check_key)]
        locked.responses |= errors.responses(401)
    drawing = diagram.svg(model.plan)
    _add_predict(locked, model, batcher, settings.limits)
    info = describe(model, name, settings.show_examples)
    _add_info(locked, app, info, drawing, metrics)
    app.include_router(locked)
    _add_health(app, batcher)
    _add_pages(app)
    _add_layers(app, settings)
    paths = {route.path for route in [*app.routes, *locked.routes] if isinstance(route, Route)}
    policy = security_policy(drawing)
    app.add_middleware(MetricsMiddleware, metrics=metrics, paths=paths, policy=policy)
    return app


def _add_layers(app: FastAPI, settings: Settings) -> None:
    """What is added last is outermost: refusals and failures, too, are told to other sites' pages
    that may ask."""
    app.add_middleware(Gate, hosts=settings.hosts, per_client=settings.per_client)
    app.add_middleware(Failures)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-api-key"],
            expose_headers=["retry-after", "server-timing"],
        )


def _predictors(model: Model) -> Callable[[], Predictor]:
    """Makes one for a thread: weights are common, a tokenizer is not made for several threads."""
    words = model.tokenizer.to_str()
    return lambda: replace(model, tokenizer=Tokenizer.from_str(words)).answer


def _handlers(model: Model, check_key: auth.KeyCheck | None) -> dict[Any, Any]:
    async def http_error(request: Request, error: StarletteHTTPException) -> Response:
        path = request.url.path
        if error.status_code == 404 and check_key:  # no route, so that nothing has asked for it
            try:
                await check_key(request)
            except HTTPException as unauthorised:
                error = unauthorised
        sentence = {
            404: f"there is nothing at {path[: schemas.SHOWN]!r}; see /docs",
            405: f"{path} does not take {request.method}; see /docs",
        }.get(error.status_code, error.detail)
        return JSONResponse({"error": sentence}, error.status_code, error.headers)

    async def invalid(request: Request, error: ValidationError) -> Response:
        return await http_error(request, errors.explain(error, model))

    return {StarletteHTTPException: http_error, ValidationError: invalid}


def _add_predict(router: APIRouter, model: Model, batcher: Microbatcher, limits: Limits) -> None:
    request_type = schemas.request_type(model.tasks, limits)
    bodies = BodyReader(limits)

    def parse(body: bytes) -> tuple[list[Query], float]:
        asked = request_type.model_validate_json(body)
        return _queries(asked, model), asked.abstain

    # FastAPI would read a declared body without limits, and before it asks for the key.
    @router.post(
        "/predict",
        response_model=schemas.response_type(model.tasks),
        response_description="The answers, in order.",
        responses=errors.responses(400, 408, 413, 415, 422, 500, 503),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": request_type.model_json_schema()}},
            }
        },
    )
    async def predict(request: Request) -> Response:
        """Every text, or pair of texts, is answered by the chosen tasks, or by all that fit.

        Answers come in the order of the texts.
        """
        deadline = asyncio.get_running_loop().time() + limits.timeout
        queries, abstain = await bodies.read(request, deadline, parse)
        try:
            job = batcher.submit(queries)
            async with asyncio.timeout_at(deadline):
                await while_connected(asyncio.wrap_future(job.future), request)
        except QueueFull:
            sentence = f"the queue has no room for {len(queries)} more; try again later"
            raise errors.unavailable(sentence, batcher.retry_after()) from None
        except DeadlyText as error:
            raise HTTPException(422, str(error)) from None
        except TimeoutError:
            sentence = f"no answer within {limits.timeout:g} s; try again later"
            raise errors.unavailable(sentence, batcher.retry_after()) from None
        queued, computed = 1e3 * (job.begun - job.arrived), 1e3 * (job.done - job.begun)
        answered = [
            {task: answer.unless_below(abstain).plain() for task, answer in answers.items()}
            for answers in job
        ]
        return Response(
            to_json({"answers": answered}),
            media_type="application/json",
            headers={"server-timing": f"queue;dur={queued:.2f}, model;dur={computed:.2f}"},
        )


def _queries(body: PredictRequest, model: Model) -> list[Query]:
    """Every text with the tasks that answer it, as the model finds them."""
    tasks = None if body.tasks is None else tuple(dict.fromkeys(body.tasks))
    try:
        return [(text, model.asked(text, tasks, n)) for n, text in enumerate(body.texts)]
    except UserError as error:
        raise HTTPException(422, str(error)) from None


def _add_info(
    router: APIRouter, app: FastAPI, info: ModelInfo, drawing: str, metrics: Metrics
) -> None:
    @router.get("/tasks", response_description="What the model can be asked.")
    async def tasks() -> ModelInfo:
        """The tasks, the plan, and what is computed once for several tasks."""
        return info

    @router.get("/metrics", response_class=PlainTextResponse)
    async def count() -> Response:
        """Counts since the start, of all workers, for Prometheus."""
        return Response(generate_latest(metrics.told), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @router.get("/plan.svg", include_in_schema=False)
    async def plan() -> Response:
        return Response(drawing, media_type=SVG)

    @router.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(schema(), media_type="application/json")

    @cache
    def schema() -> bytes:
        return to_json(app.openapi())


def _add_health(app: FastAPI, batcher: Microbatcher) -> None:
    @app.get("/health", response_description="Yes.")
    async def health() -> Status:
        """Is the process alive?"""
        return {"status": "alive"}

    @app.get("/ready", response_description="Yes.", responses=errors.responses(503))
    async def ready() -> Status:
        """Are requests taken?"""
        if batcher.ready:
            return {"status": "ready"}
        raise errors.unavailable("the queue is full, or the server ends", batcher.retry_after())


def _add_pages(app: FastAPI) -> None:
    """The page's files, made once; they hold nothing of the model, so they need no key."""
    templates = environment("bough.serve", html=True)
    files = {path: templates.get_template(name).render() for path, name in PAGES.items()}
    for file in (resources.files("bough.serve") / "page").iterdir():
        files[f"/page/{file.name}"] = file.read_text(encoding="utf-8")
    for path, content in files.items():
        page = Response(content, media_type=TYPES[Path(path).suffix or ".html"])
        page.headers["cache-control"] = "no-cache"
        app.router.routes.append(Route(path, page, methods=["GET"]))
