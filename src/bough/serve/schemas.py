"""What the server tells about itself: its OpenAPI schema, the tasks, and what a text costs.

The schemas are made for the model that is served, so they say exactly what will be accepted: which
tasks there are, and which of them judge one text and which a pair.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bough.inference.model import Model
from bough.plan.plan import Plan
from bough.plan.types import span
from bough.recipe.tasks import Task
from bough.serve.requests import Limits

JSON = dict[str, Any]
Responses = dict[int | str, JSON]
EXAMPLES = (
    "A warm and clever film that never outstays its welcome.",
    "We waited an hour, and the food was cold.",
    ("How can I learn to play the piano?", "What is the best way to learn the piano?"),
    ("A man is slicing bread.", "A dog runs along the beach."),
)
# A character that Python does not strip as blank; \s would mean others to other languages.
INK = r"[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
FACTS: JSON = {
    "type": "object",
    "properties": {
        "model": {"type": "string"},
        "plan": {"type": "string", "description": "The plan's line."},
        "tasks": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {
                    "kind": {"type": "string", "enum": ["classify", "regress"]},
                    "texts": {"type": "integer", "enum": [1, 2], "description": "2: a pair."},
                    "labels": {"type": "array", "items": {"type": "string"}},
                    "range": {"type": "array", "items": {"type": "number"}},
                    "reads": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["kind", "texts", "reads"],
            },
        },
        "work": {"type": "object", "description": "Steps for a text, a pair, each text of a pair."},
        "longest": {"type": "integer", "description": "Tokens of a text that are read."},
        "examples": {"type": "array", "description": "Texts, and pairs as lists of two."},
    },
    "required": ["model", "plan", "tasks", "work", "longest", "examples"],
}


# Schemas.


def request_schema(tasks: Mapping[str, Task], limits: Limits) -> JSON:
    """Exactly the bodies that `read` accepts."""
    text = {"type": "string", "pattern": INK, "maxLength": limits.characters}
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
        return _answer({"value": {"type": "number"}}, words)
    labels = list(task.labels or ())
    return _answer(
        {
            "label": {"type": "string", "enum": labels},
            "score": share,
            "probabilities": _object(dict.fromkeys(labels, share), "Of every label."),
        },
        "The likeliest label, its probability, and all probabilities.",
    )


def _answer(properties: JSON, description: str) -> JSON:
    schema = _object(properties, description)
    words = "The text is longer than the model reads; only its beginning was judged."
    schema["properties"] = {**properties, "cut": {"type": "boolean", "description": words}}
    return schema


def _object(properties: JSON, description: str) -> JSON:
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def content(schema: JSON, description: str) -> JSON:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def errors(*statuses: int) -> Responses:
    words = {
        400: "The body is not JSON.",
        401: "The key is missing or wrong.",
        408: "The body did not arrive in time.",
        413: "The body is too large.",
        415: "The content type is not JSON.",
        422: "The body is JSON, and not a request; the sentence says why.",
        503: "No room or no time; Retry-After says when to try again.",
    }
    error = {
        "type": "object",
        "properties": {"error": {"type": "string", "description": "One sentence."}},
        "required": ["error"],
    }
    return {status: content(error, words[status]) for status in statuses}


def ask_for_key(schema: JSON, free: Collection[str]) -> None:
    """Say in the schema what the gate asks for, but for the paths that are free."""
    schema["components"] = {
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
    }
    for path, methods in schema["paths"].items():
        if path not in free:
            for operation in methods.values():
                operation["security"] = [{"bearer": []}, {"header": []}]
                operation["responses"] |= {str(k): v for k, v in errors(401).items()}


# Tasks and plan.


def describe(model: Model, name: str) -> JSON:
    """The tasks and the plan for clients and for the page."""
    single = [n for n, task in model.tasks.items() if not task.paired]
    # Twin tasks see the texts of a pair one by one and share nothing with joint ones.
    joint = [n for n, task in model.tasks.items() if task.paired and not task.twin]
    twin = [n for n, task in model.tasks.items() if task.twin]
    return {
        "model": name,
        "plan": model.plan.text,
        "tasks": {
            task_name: {
                "kind": task.kind,
                "texts": len(task.columns),
                **({"labels": list(task.labels)} if task.labels else {}),
                **({"range": list(task.range)} if task.range else {}),
                "reads": list(model.plan.sources(task_name)),
            }
            for task_name, task in model.tasks.items()
        },
        "work": {
            form: _work(model.plan, names)
            for form, names in (("text", single), ("pair", joint), ("twins", twin))
            if names
        },
        "longest": model.longest,
        "examples": _examples(model),
    }


def _work(plan: Plan, tasks: Sequence[str]) -> JSON:
    """Steps for one text or pair: how many, how many without sharing, and who shares which."""
    parts: dict[tuple[str, ...], list[str]] = {}
    for step, together in plan.walked(tasks):
        parts.setdefault(together, []).append(step.cell.place)
    return {
        "tasks": list(tasks),
        "steps": plan.distinct_steps(tasks),
        "alone": sum(plan.distinct_steps([task]) for task in tasks),
        "parts": [
            {"tasks": list(together), "places": _spans(places)}
            for together, places in parts.items()
        ],
    }


def _spans(places: Sequence[str]) -> list[str]:
    """Places with neighbouring layers drawn together: embeddings, layer 1-4, pooler."""
    out: list[str] = []
    run: list[int] = []
    for place in [*dict.fromkeys(places), ""]:
        number = int(place[6:]) if place.startswith("layer ") else 0
        if run and number != run[-1] + 1:
            out.append(f"layer {span(run[0], run[-1])}")
            run = []
        if number:
            run.append(number)
        elif place:
            out.append(place)
    return out


def _examples(model: Model) -> list[str | list[str]]:
    """Those of the model, else ours, as far as a task fits them: texts, and pairs as lists."""
    forms = {len(task.columns) for task in model.tasks.values()}
    for examples in (model.facts.get("examples", ()), EXAMPLES):
        texts = [[text] if isinstance(text, str) else list(text) for text in examples]
        fitting = [parts for parts in texts if len(parts) in forms]
        if fitting:
            return [parts[0] if len(parts) == 1 else parts for parts in fitting]
    return []
