"""What goes over the wire: a request's body, read with limits; and the schemas of both ways.

The schemas are made for the model that is served, so they say exactly what will be accepted: which
tasks there are, and which of them judge one text and which a pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from bough.microbatch import Asked
from bough.mistakes import Mistake, nearest
from bough.model import MultiTaskModel, Text
from bough.tasks import Task

JSON = dict[str, Any]
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
    timeout: float = 30.0  # seconds from a request to its answer

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise Mistake(f"the limit of {name} is {value}; expected more than nothing")
        if self.queue < self.texts:
            raise Mistake(
                f"a queue of {self.queue} texts cannot hold one request of {self.texts}; "
                "make the queue longer or allow fewer texts"
            )


class Refusal(Exception):
    """A request that is not answered: the status and the sentence that says why."""

    def __init__(self, status: int, sentence: str, wait: int | None = None):
        super().__init__(sentence)
        self.status = status
        self.headers = {} if wait is None else {"retry-after": str(wait)}


# A request.


def read(body: bytes, model: MultiTaskModel, limits: Limits) -> list[Asked]:
    """The texts of a body with the tasks that are to answer each; or a Refusal."""
    try:
        found = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise Refusal(400, f"the body is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise Refusal(422, f"the body is {_kind(found)}; expected an object like {EXAMPLE}")
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


def _tasks(found: Any, model: MultiTaskModel) -> Sequence[str] | None:
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
    found: Any, tasks: Sequence[str] | None, number: int, model: MultiTaskModel, limits: Limits
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
                f"at most {limits.characters:,} are read",
            )
    text: Text = (parts[0], parts[1]) if pair else parts[0]
    try:
        return text, model.asked(text, tasks, number)
    except Mistake as mistake:
        raise Refusal(422, str(mistake)) from None


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return "a list of other things" if value else "an empty list"
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    return kinds.get(type(value), "an object")


# Schemas.


def request_schema(tasks: Mapping[str, Task], limits: Limits) -> JSON:
    """Exactly the bodies that `read` accepts."""
    # Blank to Python: white space and four control characters.
    text = {"type": "string", "pattern": r"[^\s\x1c-\x1f]", "maxLength": limits.characters}
    pair = {"type": "array", "items": text, "minItems": 2, "maxItems": 2}
    forms = [
        (shape, names, words)
        for shape, words, names in (
            (text, "single texts", [n for n, t in tasks.items() if not t.paired]),
            (pair, "pairs of texts", [n for n, t in tasks.items() if t.paired]),
        )
        if names
    ]

    def body(shape: JSON, names: Sequence[str], title: str) -> JSON:
        texts = {"type": "array", "items": shape, "minItems": 1, "maxItems": limits.texts}
        chosen: JSON = {"type": "null"}
        if names:
            chosen = {
                "type": ["array", "null"],
                "items": {"type": "string", "enum": list(names)},
                "minItems": 1,
                "description": "The tasks that are to answer; all that fit, if left out.",
            }
        return {
            "title": title,
            "type": "object",
            "properties": {"texts": texts, "tasks": chosen},
            "required": ["texts"],
            "additionalProperties": False,
        }

    bodies = [body(shape, names, words) for shape, names, words in forms]
    if len(forms) == 1:
        return bodies[0]
    return {"anyOf": [*bodies, body({"anyOf": [text, pair]}, (), "texts and pairs together")]}


def answers_schema(tasks: Mapping[str, Task]) -> JSON:
    """A list of {task: answer}, in the order of the texts."""
    answers = {
        "type": "object",
        "properties": {name: _answer_schema(task) for name, task in tasks.items()},
        "additionalProperties": False,
        "minProperties": 1,
    }
    return {
        "type": "object",
        "properties": {"answers": {"type": "array", "items": answers, "minItems": 1}},
        "required": ["answers"],
        "additionalProperties": False,
    }


def _answer_schema(task: Task) -> JSON:
    share = {"type": "number", "minimum": 0, "maximum": 1.0001}  # the last digit of a float
    if task.kind == "regress":
        low, high = task.range or (None, None)
        words = f"A number from {low:g} to {high:g}."
        return _object({"value": {"type": "number"}}, words)
    labels = list(task.labels or ())
    return _object(
        {
            "label": {"type": "string", "enum": labels},
            "score": share,
            "probabilities": _object(dict.fromkeys(labels, share), "Of every label."),
        },
        "The likeliest label, its probability, and all probabilities.",
    )


def _object(properties: JSON, description: str) -> JSON:
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
