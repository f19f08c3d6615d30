"""What the tasks of a model are, and what answering them costs: for clients and for the page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict  # pydantic reads typing's only from 3.12 on

from bough.inference.model import Model
from bough.plan.plan import Plan
from bough.plan.types import span
from bough.recipe.kinds import Kind
from bough.recipe.tasks import Task

EXAMPLES = (
    "A warm and clever film that never outstays its welcome.",
    "We waited an hour, and the food was cold.",
    ("How can I learn to play the piano?", "What is the best way to learn the piano?"),
    ("A man is slicing bread.", "A dog runs along the beach."),
)


class TaskInfo(TypedDict):
    kind: Kind
    texts: Annotated[int, Field(ge=1, le=2, description="2: a pair.")]
    labels: NotRequired[list[str]]
    range: NotRequired[list[float]]
    reads: Annotated[list[str], Field(description="Tasks whose outputs it reads.")]


class ModelInfo(TypedDict):
    """What the model can be asked."""

    model: str
    plan: Annotated[str, Field(description="The plan's line.")]
    tasks: dict[str, TaskInfo]
    work: Annotated[
        dict[str, Any], Field(description="Steps for a text, a pair, each text of a pair.")
    ]
    longest: Annotated[int, Field(description="Tokens of a text that are read.")]
    examples: Annotated[
        list[str | list[str]], Field(description="Texts, and pairs as lists of two.")
    ]
    weights: Annotated[str, Field(description="Their SHA-256, as `sha256sum` prints it.")]


def describe(model: Model, name: str, show_examples: bool | None = None) -> ModelInfo:
    """With examples of the model's own, which are dev rows, unless these are not to be shown."""
    # Twin tasks see the texts of a pair one by one and share nothing with joint ones.
    forms: dict[str, list[str]] = {"text": [], "pair": [], "twins": []}
    for task_name, task in model.tasks.items():
        forms["twins" if task.twin else "pair" if task.paired else "text"].append(task_name)
    return {
        "model": name,
        "plan": model.plan.text,
        "tasks": {name: _task_info(model.plan, name, task) for name, task in model.tasks.items()},
        "work": {form: _work(model.plan, names) for form, names in forms.items() if names},
        "longest": model.longest,
        "examples": _examples(model, show_examples is not False),
        "weights": model.facts.get("sha256", ""),
    }


def _task_info(plan: Plan, name: str, task: Task) -> TaskInfo:
    reads = list(plan.sources(name))
    info: TaskInfo = {"kind": task.kind, "texts": len(task.columns), "reads": reads}
    if task.labels:
        info["labels"] = list(task.labels)
    if task.range:
        info["range"] = list(task.range)
    return info


def _work(plan: Plan, tasks: Sequence[str]) -> dict[str, Any]:
    """Steps for one text or pair: how many, how many without sharing, and who shares which."""
    places: dict[tuple[str, ...], list[str]] = {}
    for step, together in plan.walked(tasks):
        places.setdefault(together, []).append(step.cell.place)
    return {
        "tasks": list(tasks),
        "steps": plan.distinct_steps(tasks),
        "alone": sum(plan.distinct_steps([task]) for task in tasks),
        "parts": [
            {"tasks": list(together), "places": _spans(rows)} for together, rows in places.items()
        ],
    }


def _spans(places: Sequence[str]) -> list[str]:
    """Places with neighbouring layers drawn together: embeddings, layer 1-4, pooler."""

    def neighbours(item: tuple[int, str]) -> int | str:
        index, place = item
        return int(place[6:]) - index if place.startswith("layer ") else place

    groups = (list(group) for _, group in groupby(enumerate(dict.fromkeys(places)), neighbours))
    return [
        f"layer {span(int(group[0][1][6:]), int(group[-1][1][6:]))}" if group[1:] else group[0][1]
        for group in groups
    ]


def _examples(model: Model, own: bool) -> list[str | list[str]]:
    """Those of the model, else ours, as far as a task fits them: texts, and pairs as lists."""
    forms = {len(task.columns) for task in model.tasks.values()}
    for examples in (model.facts.get("examples", ()) if own else (), EXAMPLES):
        texts = [[text] if isinstance(text, str) else list(text) for text in examples]
        fitting = [parts for parts in texts if len(parts) in forms]
        if fitting:
            return [parts[0] if len(parts) == 1 else parts for parts in fitting]
    return []
