"""What a model is known by beside its weights: its data, a few examples, its scores and its cost.

The run collects these facts, they are saved with the model, and the card and the server show them.
No torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from bough.data.checked_rows import Rows
from bough.recipe.sources import Hub, Source
from bough.recipe.tasks import Task
from bough.runs.memory_rows import is_stored

Facts = Mapping[str, Any]
SHORT = 120  # characters of an example, both texts of a pair together
PER_TASK = 2


def data_of(tasks: Mapping[str, Task], rows: Mapping[str, Mapping[str, Rows]]) -> dict[str, Any]:
    """Each task's splits: how many rows, and what they are called; no folders of the user."""
    return {
        name: {
            split: {"rows": len(part), "source": _called(getattr(tasks[name], split))}
            for split, part in parts.items()
        }
        for name, parts in rows.items()
    }


def _called(source: Source | None) -> str:
    match source:
        case str() if not is_stored(source):
            return PurePath(source).name
        case Hub():
            return PurePath(source.hub).name if source.hub.startswith("/") else source.hub
    return "rows in memory"


def examples_of(rows: Mapping[str, Rows]) -> list[str | list[str]]:
    """A few short texts, one or two of each task, with different labels where there are any."""
    out: list[str | list[str]] = []
    for part in rows.values():
        chosen: dict[Any, tuple[str, ...]] = {}
        for number, texts in enumerate(part.texts):
            label = None if part.labels is None else part.labels[number]
            fit = sum(map(len, texts)) <= SHORT and all(len(text.split()) > 2 for text in texts)
            if fit and label not in chosen and "\n" not in "".join(texts):
                chosen[label] = texts
            if len(chosen) == PER_TASK:
                break
        out += [texts[0] if len(texts) == 1 else list(texts) for texts in chosen.values()]
    return [text for number, text in enumerate(out) if text not in out[:number]]


def of_part(facts: Facts, tasks: Mapping[str, Task], parameters: int) -> dict[str, Any]:
    """What of a model's facts is true of a part of it with these tasks, of so many parameters."""
    forms = {len(task.columns) for task in tasks.values()}

    def kept(by_task: Mapping[str, Any]) -> dict[str, Any]:
        return {name: by_task[name] for name in tasks if name in by_task}

    changed: dict[str, Any] = {}
    if "examples" in facts:
        changed["examples"] = [e for e in facts["examples"] if len(texts_of(e)) in forms]
    if "scores" in facts:
        scores = facts["scores"].items()
        changed["scores"] = {split: {"tasks": kept(judged["tasks"])} for split, judged in scores}
    changed |= {key: kept(facts[key]) for key in ("data", "calibration") if key in facts}
    if facts.get("cost"):  # the time and the memory were spent on all tasks together
        changed["cost"] = {"parameters": parameters, "bytes_to_serve": 4 * parameters}
    rest = {key: value for key, value in facts.items() if key != "sha256"}  # of all weights
    return {**rest, **changed}


def texts_of(example: str | Sequence[str]) -> list[str]:
    return [example] if isinstance(example, str) else list(example)


def digest(contents: Iterable[bytes]) -> str:
    """What the weights are known by: SHA-256 of their files, one after the other."""
    whole = hashlib.sha256()
    for content in contents:
        whole.update(content)
    return whole.hexdigest()
