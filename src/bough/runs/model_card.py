"""The model card: what a person has to know about a model, written by the run that made it.

`README.md` in the model's folder, with the front matter that the Hugging Face hub reads. It says
only what the model's facts hold: one saved before its run was done has no scores yet. Its words are
in `templates/card.md`. No torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, assert_never

import yaml

from bough import __version__
from bough.errors import listed
from bough.plan.plan import Plan
from bough.recipe.kinds import METRICS
from bough.recipe.quora_caveat import contaminated
from bough.recipe.tasks import SPLITS, Task
from bough.runs.model_facts import Facts, texts_of
from bough.safe_text import markdown, shown
from bough.templates import environment

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
UNKNOWN: Facts = {"encoder": "", "runtime": "torch", "weights": "fp32", "data": {}, "scores": {},
                  "examples": (), "training": {}, "calibration": {}, "int8": {},
                  "cost": None}  # fmt: skip


def write(plan: Plan, tasks: Mapping[str, Task], longest: int, facts: Facts) -> str:
    """The whole README.md."""
    facts = {**UNKNOWN, **facts}
    examples = [texts_of(example) for example in facts["examples"]]
    scores = _scores(tasks, facts)
    front = _front(tasks, facts, scores)
    templates = environment("bough.runs")
    templates.filters |= {"answers": _answers, "cell": _cell, "fields": _fields,
                           "code": _code, "listed": listed, "literal": _literal,
                          "plain": markdown, "thousands": "{:,.0f}".format}  # fmt: skip
    return templates.get_template("card.md").render(
        front=yaml.safe_dump(front, sort_keys=False, allow_unicode=True),
        version=__version__,
        base=_base(facts) or PurePath(str(facts["encoder"])).name,
        plan=plan,
        pooling=_pooling(tasks, facts),
        sha256=facts.get("sha256"),
        tasks=tasks,
        longest=longest,
        facts=facts,
        calls=_calls(tasks, examples),
        splits=[s for s in SPLITS if any(s in facts["data"].get(name, {}) for name in tasks)],
        examples=examples,
        scores=scores,
        contaminated=contaminated(tasks, facts),
    )


def _front(tasks: Mapping[str, Task], facts: Facts, scores: list[dict[str, Any]]) -> dict[str, Any]:
    """What the hub reads: by which library, for what, from which model, with which scores."""
    kinds = {name: _hub_kind(task) for name, task in tasks.items()}
    tags = ["bough", *(["multi-task"] if len(tasks) > 1 else []), *dict.fromkeys(kinds.values())]
    if facts["runtime"] == "onnx":
        tags.append("onnx")
    front: dict[str, Any] = {
        "library_name": "bough",
        "pipeline_tag": next(iter(kinds.values())),
        "tags": tags,
    }
    if base := _base(facts):
        front["base_model"] = base
    results = [
        {
            "task": {"type": kinds[score["task"]]},
            "dataset": {"type": score["task"], "name": score["task"], "split": score["split"]},
            "metrics": [{"type": score["metric"], "value": round(score["value"], 4)}],
        }
        for score in scores
    ]
    if results:
        front["model-index"] = [{"name": f"bough: {', '.join(tasks)}", "results": results}]
    return front


def _pooling(tasks: Mapping[str, Task], facts: Facts) -> str:
    """How the tasks read the trunk's states, and why where it is the encoder's own way."""
    own = facts.get("pooling") or {}
    chosen: dict[str, list[str]] = {}
    for name, task in tasks.items():
        chosen.setdefault(task.pooling, []).append(name)
    return "; ".join(
        f"{pooling}"
        + (f" ({listed(names)})" if len(chosen) > 1 else "")
        + (f", {own['reason']}" if pooling == own.get("name") else "")
        for pooling, names in chosen.items()
    )


def _hub_kind(task: Task) -> str:
    """What the hub calls such a task."""
    match task.kind:
        case "classify" | "ordinal" | "multilabel":
            return "text-classification"
        case "regress":
            return "sentence-similarity" if task.paired else "text-classification"
        case "tag":
            return "token-classification"
        case _:
            assert_never(task.kind)


def _answers(task: Task) -> str:
    """What a task answers with."""
    match task.kind:
        case "classify":
            return f"one of {task.classes}: {_listed(task)}"
        case "ordinal":
            return f"one of {task.classes} in order: {_listed(task)}"
        case "multilabel":
            return f"any of {task.classes}: {_listed(task)}"
        case "regress" if task.range is None:
            return "a number"
        case "regress":
            return "a number from {:g} to {:g}".format(*task.range or (0, 1))
        case "tag":
            return f"spans with one of {task.classes}: {markdown(listed(task.labels or (), 8))}"
        case _:
            assert_never(task.kind)


def _listed(task: Task) -> str:
    return markdown(listed(task.labels or (), 8))


def _fields(task: Task) -> str:
    """What such an answer has."""
    match task.kind:
        case "classify" | "ordinal":
            return "label=..., score=..., probabilities=..."
        case "multilabel":
            return "labels=..., probabilities=..."
        case "regress":
            return "value=..."
        case "tag":
            return "spans=(Entity(start=..., end=..., label=..., score=..., text=...), ...)"
        case _:
            assert_never(task.kind)


def _base(facts: Facts) -> str | None:
    """The encoder's name on the hub, if it has one."""
    encoder = MINILM if facts["encoder"] == "minilm" else str(facts["encoder"])
    return encoder if HUB_ID.fullmatch(encoder) else None


def _calls(tasks: Mapping[str, Task], examples: list[list[str]]) -> dict[str, list[str]]:
    """The first task on one text and the first on a pair, each with texts to ask it about."""
    calls = {}
    for otherwise in (["A text."], ["One text.", "Another."]):
        size = len(otherwise)
        for name in [name for name, task in tasks.items() if len(task.columns) == size][:1]:
            calls[name] = next((texts for texts in examples if len(texts) == size), otherwise)
    return calls


def _scores(tasks: Mapping[str, Task], facts: Facts) -> list[dict[str, Any]]:
    """Of every split and task, a row each."""
    return [
        {
            **score,
            "split": split,
            "task": name,
            "value": score[score["metric"]],
            "others": {m: score[m] for m in score if m in METRICS if m != score["metric"]},
        }
        for split, judged in facts["scores"].items()
        for name, score in judged["tasks"].items()
        if name in tasks
    ]


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", shown(text)).replace("|", "\\|")


def _code(text: str) -> str:
    return "`" + re.sub(r"\s+", " ", shown(text)).replace("`", "'") + "`"


def _literal(text: str) -> str:
    return shown(json.dumps(text, ensure_ascii=False))
