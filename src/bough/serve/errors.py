"""What is not answered, and why, in one sentence: pydantic's findings and statuses in our words."""

from __future__ import annotations

from typing import Any

from fastapi import HTTPException
from pydantic import ValidationError

from bough.errors import shorten
from bough.inference.model import Model
from bough.serve.schemas import SHOWN, Problem

EXAMPLE = '{"texts": ["A fine film."]}'
STATUSES = {
    400: "The body is not JSON.",
    401: "The key is missing or wrong.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The content type is not JSON.",
    421: "The Host header names another server.",
    422: "The body is JSON, and not a request; the sentence says why.",
    429: "The client has too many requests under way.",
    500: "The server failed; its log says more, under the sentence's id.",
    503: "No room or no time; Retry-After says when to try again.",
}


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For the OpenAPI schema."""
    return {one: {"model": Problem, "description": STATUSES[one]} for one in statuses}


def unavailable(sentence: str, retry_after: int) -> HTTPException:
    return HTTPException(503, sentence, {"retry-after": str(retry_after)})


def explain(error: ValidationError, model: Model) -> HTTPException:
    """What is wrong with a body, by the first thing that pydantic has found."""
    first = error.errors(include_url=False)[0]
    value = first["input"]
    match first["type"], *first["loc"]:
        case ["json_invalid"] if not value.strip():
            return HTTPException(400, f"the body is empty; send an object like {EXAMPLE}")
        case ["json_invalid"]:
            return HTTPException(400, f"the body is not JSON ({first['ctx']['error']})")
        case ["value_error"]:
            why = str(first["ctx"]["error"])
        case [_]:
            kind = "a list" if isinstance(value, list) else _kind(value)
            why = f"the body is {kind}; expected an object like {EXAMPLE}"
        case ["too_long", "texts"]:
            most = first["ctx"]["max_length"]
            why = f"{len(value):,} texts in one request; send at most {most:,} at a time"
        case [kind, "texts"]:
            what = "missing" if kind == "missing" else _kind(value)
            why = f"texts is {what}; expected a list like {EXAMPLE}"
        case ["too_short", "tasks"]:
            why = "tasks is an empty list; name tasks, or leave it out for all that fit"
        case [_, "tasks", _] if isinstance(value, str):
            why = str(model.unknown(value[:SHOWN]))
        case [_, "tasks", *place]:
            what = "a list of other things" if place else _kind(value)
            why = f"tasks is {what}; expected a list of names, or nothing for all"
        case [_, "abstain"]:
            why = f"abstain is {shorten(value)}; expected a probability from 0 to 1"
        case ["string_too_long", _, int(number), *_]:
            most = first["ctx"]["max_length"]
            why = f"text {number + 1} has {len(value):,} characters; at most {most:,} are taken"
        case [kind, _, int(number), _, *place]:
            what = "a list of other things" if place else _kind(value)
            if kind in ("missing", "too_long"):  # of a pair
                what = f"a list of {len(value)}"
            why = f'text {number + 1} is {what}; expected a text, or a pair like ["one", "two"]'
        case _:
            why = first["msg"]
    return HTTPException(422, why)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return "a list of other things" if value else "an empty list"
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    return kinds.get(type(value), "an object")
