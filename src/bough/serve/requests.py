"""What comes over the wire: a request's body, read with limits, or refused with one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from bough.errors import UserError, nearest
from bough.inference.model import Model, Text
from bough.serve.microbatch import Asked

KEYS = ("texts", "tasks")
EXAMPLE = '{"texts": ["A fine film."]}'
SHOWN = 60  # characters of a wrong value that an error repeats


@dataclass(frozen=True)
class Limits:
    """What one client may ask for, and what all together."""

    body: int = 4 * 2**20  # bytes
    texts: int = 256  # in a request
    characters: int = 20_000  # in a text
    queue: int = 1024  # texts that may wait
    timeout: float = 30.0  # seconds from a request's head to its answer

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:  # nor nan
                raise UserError(f"the limit of {name} is {value}; expected a number above 0")
        if self.queue < self.texts:
            raise UserError(
                f"a queue of {self.queue} texts cannot hold one request of {self.texts}; "
                "make the queue longer or allow fewer texts"
            )


class Refusal(Exception):
    """A request that is not answered: the status and the sentence that says why."""

    def __init__(self, status: int, sentence: str, wait: int | None = None):
        super().__init__(sentence)
        self.status = status
        self.headers = {} if wait is None else {"retry-after": str(wait)}


def read(body: bytes, model: Model, limits: Limits) -> list[Asked]:
    """The texts of a body with the tasks that are to answer each; or a Refusal."""
    if not body.strip():
        raise Refusal(400, f"the body is empty; send an object like {EXAMPLE}")
    try:
        found = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise Refusal(400, f"the body is not JSON ({error})") from None
    if not isinstance(found, dict):
        kind = "a list" if isinstance(found, list) else _kind(found)
        raise Refusal(422, f"the body is {kind}; expected an object like {EXAMPLE}")
    for key in found:
        if key not in KEYS:
            hint = nearest(key[:SHOWN], KEYS)
            raise Refusal(422, f"no key {key[:SHOWN]!r} in a request (texts, tasks){hint}")
    texts = found.get("texts")
    if not isinstance(texts, list) or not texts:
        what = "missing" if "texts" not in found else "an empty list" if texts == [] else None
        raise Refusal(422, f"texts is {what or _kind(texts)}; expected a list like {EXAMPLE}")
    if len(texts) > limits.texts:
        raise Refusal(
            422, f"{len(texts):,} texts in one request; send at most {limits.texts:,} at a time"
        )
    tasks = _tasks(found.get("tasks"), model)
    return [_asked(text, tasks, number, model, limits) for number, text in enumerate(texts)]


def _tasks(found: Any, model: Model) -> Sequence[str] | None:
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise Refusal(422, f"tasks is {_kind(found)}; expected a list of names, or nothing for all")
    if not found:
        raise Refusal(422, "tasks is an empty list; name tasks, or leave it out for all that fit")
    for name in found:
        if name not in model.tasks:
            raise Refusal(422, str(model.unknown(name[:SHOWN])))
    return tuple(dict.fromkeys(found))


def _asked(
    found: Any, tasks: Sequence[str] | None, number: int, model: Model, limits: Limits
) -> Asked:
    parts = found if isinstance(found, list) else [found]
    pair = isinstance(found, list)
    if (pair and len(parts) != 2) or not all(isinstance(part, str) for part in parts):
        what = f"a list of {len(parts)}" if pair and len(parts) != 2 else _kind(found)
        raise Refusal(
            422, f'text {number + 1} is {what}; expected a text, or a pair like ["one", "two"]'
        )
    for part in parts:
        if len(part) > limits.characters:
            raise Refusal(
                422,
                f"text {number + 1} has {len(part):,} characters; "
                f"at most {limits.characters:,} are taken",
            )
    text: Text = (parts[0], parts[1]) if pair else parts[0]
    try:
        return text, model.asked(text, tasks, number)
    except UserError as mistake:
        raise Refusal(422, str(mistake)) from None


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return "a list of other things" if value else "an empty list"
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    return kinds.get(type(value), "an object")
