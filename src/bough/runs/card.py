"""Card: what a person has to know about a model, written by the run that made it.

`README.md` in the model's folder, with the front matter that the Hugging Face hub reads. It says
only what the model's facts hold: one saved before its run was done has no scores yet. No torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import yaml

from bough import __version__
from bough.data.rows import Rows
from bough.errors import listed
from bough.model.contamination import contaminated
from bough.plan.plan import Plan
from bough.recipe.sources import Hub, Source
from bough.recipe.tasks import SPLITS, Task

Facts = Mapping[str, Any]
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
SHORT = 120  # characters of an example, both texts of a pair together
PER_TASK = 2


# --- what the run hands over ---------------------------------------------------------------------


def data_of(tasks: Mapping[str, Task], rows: Mapping[str, Mapping[str, Rows]]) -> dict[str, Any]:
    """Each task's splits: how many rows, and what they are called; no folders of the user."""
    return {
        name: {
            split: {"rows": len(part), "source": _called(getattr(tasks[name], split))}
            for split, part in own.items()
        }
        for name, own in rows.items()
    }


def _called(source: Source | None) -> str:
    match source:
        case str():
            return PurePath(source).name
        case Hub():
            return PurePath(source.hub).name if source.hub.startswith("/") else source.hub
    return "rows in memory"


def examples_of(rows: Mapping[str, Rows]) -> list[str | list[str]]:
    """A few short texts, one or two of each task, with different labels where there are any."""
    out: list[str | list[str]] = []
    for own in rows.values():
        chosen: dict[Any, tuple[str, ...]] = {}
        for number, texts in enumerate(own.texts):
            label = None if own.labels is None else own.labels[number]
            fit = sum(map(len, texts)) <= SHORT and all(len(text.split()) > 2 for text in texts)
            if fit and label not in chosen and "\n" not in "".join(texts):
                chosen[label] = texts
            if len(chosen) == PER_TASK:
                break
        out += [texts[0] if len(texts) == 1 else list(texts) for texts in chosen.values()]
    return [text for number, text in enumerate(out) if text not in out[:number]]


def kept(facts: Facts, tasks: Mapping[str, Task], parameters: int) -> dict[str, Any]:
    """What of a model's facts is true of a part of it with these tasks, of so many parameters."""
    forms = {len(task.columns) for task in tasks.values()}
    own: dict[str, Any] = {}
    if "examples" in facts:
        own["examples"] = [e for e in facts["examples"] if len(_parts(e)) in forms]
    if "scores" in facts:
        own["scores"] = {
            split: {
                "tasks": {name: found["tasks"][name] for name in tasks if name in found["tasks"]}
            }
            for split, found in facts["scores"].items()
        }
    if "data" in facts:
        own["data"] = {name: facts["data"][name] for name in tasks if name in facts["data"]}
    if facts.get("cost"):  # the time and the memory were spent on all tasks together
        own["cost"] = {"parameters": parameters, "bytes_to_serve": 4 * parameters}
    return {**facts, **own}


def _parts(example: str | Sequence[str]) -> list[str]:
    return [example] if isinstance(example, str) else list(example)


# --- the card ------------------------------------------------------------------------------------


def write(plan: Plan, tasks: Mapping[str, Task], longest: int, facts: Facts) -> str:
    """The whole README.md."""
    parts = [
        _title(tasks, facts),
        *_use(tasks, facts),
        *_tasks(tasks, facts),
        *_plan(plan),
        *_scores(tasks, facts),
        *_cost(facts),
        *_limits(tasks, longest, facts),
    ]
    return f"---\n{_front(tasks, facts)}---\n\n" + "\n\n".join(parts) + "\n"


def _front(tasks: Mapping[str, Task], facts: Facts) -> str:
    """What the hub reads: by which library, for what, from which model, with which scores."""
    kinds = dict.fromkeys(map(_hub_kind, tasks.values()))
    tags = ["bough", *(["multi-task"] if len(tasks) > 1 else []), *kinds]
    front: dict[str, Any] = {
        "library_name": "bough",
        "pipeline_tag": next(iter(kinds)),
        "tags": tags,
    }
    if facts.get("runtime") == "onnx":
        tags.append("onnx")
    if base := _base(facts):
        front["base_model"] = base
    results = [
        {
            "task": {"type": _hub_kind(tasks[name])},
            "dataset": {"type": name, "name": name, "split": split},
            "metrics": [{"type": own["metric"], "value": round(own[own["metric"]], 4)}],
        }
        for split, scores in facts.get("scores", {}).items()
        for name, own in scores["tasks"].items()
        if name in tasks
    ]
    if results:
        front["model-index"] = [{"name": f"bough: {', '.join(tasks)}", "results": results}]
    return yaml.safe_dump(front, sort_keys=False, allow_unicode=True)


def _hub_kind(task: Task) -> str:
    """What the hub calls such a task."""
    return (
        "sentence-similarity" if task.kind == "regress" and task.paired else "text-classification"
    )


def _base(facts: Facts) -> str | None:
    encoder = str(facts.get("encoder", ""))
    if encoder == "minilm":
        return MINILM
    return encoder if HUB_ID.fullmatch(encoder) else None


def _title(tasks: Mapping[str, Task], facts: Facts) -> str:
    encoder = str(facts.get("encoder", ""))
    base = _base(facts) or (PurePath(encoder).name if encoder else "")
    on = f", fine-tuned from {_code(base)}" if base else ""
    number = len(tasks)
    what = "one task" if number == 1 else f"{number} tasks"
    told = f"# {listed(list(tasks))}\n\nOne text encoder for {what}{on}, trained with bough"
    if number == 1:
        return f"{told} {__version__}."
    return (
        f"{told} {__version__}. One pass over a text answers every task asked for; what the tasks "
        "share is computed once."
    )


def _use(tasks: Mapping[str, Task], facts: Facts) -> Iterator[str]:
    yield "## How to use it"
    single = next((name for name, task in tasks.items() if not task.paired), None)
    pair = next((name for name, task in tasks.items() if task.paired), None)
    lines = ["import bough", "", 'model = bough.load("this folder, or its hub id")']
    if facts.get("runtime") == "onnx":
        yield "```sh\nbough serve FOLDER --runtime onnx\n```"
        lines = ["from bough import runtime", "", 'model = runtime.load("this folder")']
    given = [_parts(e) for e in facts.get("examples", ())]
    if single is not None:
        text = next((e[0] for e in given if len(e) == 1), "A text.")
        lines.append(f"model.predict({_string(text)})  # {_answer(single, tasks[single])}")
    if pair is not None:
        one, two = next((e for e in given if len(e) == 2), ["One text.", "Another."])
        lines.append(
            f"model.predict(({_string(one)}, {_string(two)}))  # {_answer(pair, tasks[pair])}"
        )
    yield "```python\n" + "\n".join(lines) + "\n```"


def _answer(name: str, task: Task) -> str:
    if task.labels:
        return f"{{{_string(name)}: Answer(label=..., score=..., probabilities=...), ...}}"
    return f"{{{_string(name)}: Answer(value=...), ...}}"


def _tasks(tasks: Mapping[str, Task], facts: Facts) -> Iterator[str]:
    data = facts.get("data", {})
    yield "## Tasks and data"
    body = []
    for name, task in tasks.items():
        if task.labels:
            answer = f"one of {len(task.labels)}: {listed(task.labels, 8)}"
        else:
            low, high = task.range or (0, 1)
            answer = f"a number from {low:g} to {high:g}"
        reads = "one text" if not task.paired else f"a pair, read {_pair(task)}"
        splits = [_split(data.get(name, {}).get(split)) for split in SPLITS]
        body.append([name, reads, answer, *splits])
    yield _table(["task", "reads", "answers", *(f"{split} rows" for split in SPLITS)], body)
    texts = [e if isinstance(e, str) else " / ".join(e) for e in facts.get("examples", ())]
    if texts:
        yield "Examples, from the dev rows:"
        yield "\n".join(f"- {_plain(text)}" for text in texts)


def _pair(task: Task) -> str:
    return "as two texts apart" if task.twin else "as one sequence"


def _split(own: Mapping[str, Any] | None) -> str:
    return "" if own is None else f"{own['rows']:,} ({_code(own['source'])})"


def _plan(plan: Plan) -> Iterator[str]:
    yield "## What the tasks share"
    yield "The same name in a row: those tasks share those weights."
    yield f"```\n{plan}\n```"


def _scores(tasks: Mapping[str, Task], facts: Facts) -> Iterator[str]:
    yield "## Scores"
    scores = facts.get("scores", {})
    if not scores:
        yield "None yet: this card was written before the model was judged."
        return
    body = []
    for split, found in scores.items():
        for name, own in found["tasks"].items():
            if name not in tasks:
                continue
            low, high = own.get("interval", (None, None))
            between = "" if low is None else f"{low:.3f} to {high:.3f}"
            metric = own["metric"]
            known = (m for m in ("accuracy", "f1", "mcc", "pearson", "spearman") if m in own)
            others = ", ".join(f"{m} {own[m]:.3f}" for m in known if m != metric)
            body.append(
                [split, name, metric, f"{own[metric]:.3f}", between, f"{own['rows']:,}", others]
            )
    head = ["split", "task", "metric", "score", "95 % interval", "rows", "other metrics"]
    yield _table(head, body)
    if facts.get("weights") == "int8":
        yield "These are the scores of the weights in int8, as they are here."
    if "dev" in scores:
        yield "The dev rows also chose the best moment of the run, so dev scores are a little high."
    for name in contaminated(tasks, facts):
        yield (
            f"**The score of {_plain(name)} is not clean**: the encoder saw Quora's duplicate "
            "questions when it was pretrained, so on such data it flatters the model."
        )


def _cost(facts: Facts) -> Iterator[str]:
    told, training = facts.get("cost"), facts.get("training", {})
    if not told:
        return
    yield "## Training and cost"
    form = " in int8" if facts.get("weights") == "int8" else ""
    size = f"{told['bytes_to_serve'] / 2**20:,.0f} MiB to serve{form}"
    lines = [f"- {told['parameters']:,} parameters, {size}"]
    if {"training_seconds", "peak_memory"} <= told.keys():
        seconds = told["training_seconds"]
        time = f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
        where = f" on {training['processor']}" if training.get("processor") else ""
        memory = f"at most {told['peak_memory'] / 2**20:,.0f} MiB of memory"
        lines.append(f"- trained in {time}{where}, {memory}")
    settings = {k: v for k, v in training.items() if k != "processor"}
    if settings:
        lines.append("- " + ", ".join(f"{key} {value}" for key, value in settings.items()))
    yield "\n".join(lines)


def _limits(tasks: Mapping[str, Task], longest: int, facts: Facts) -> Iterator[str]:
    yield "## Limits"
    lines = [
        f"- A text, or a pair read as one sequence, is cut after {longest:,} tokens.",
        "- It judges texts like those it learned from; on others, and in other languages, it "
        "answers all the same, and nothing here says how well.",
    ]
    if any(task.labels for task in tasks.values()):
        lines.append(
            "- There is no answer 'none of these', and the probabilities are not calibrated: check "
            "them on your own rows before you act on a threshold."
        )
    lines.append("- Biases of the encoder and of the data are biases of the model.")
    yield "\n".join(lines)


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A Markdown table without its empty columns."""
    kept = [i for i in range(len(head)) if any(row[i] for row in body)]
    rows = [[head[i] for i in kept], ["---"] * len(kept)]
    rows += [[_cell(row[i]) for i in kept] for row in body]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def _plain(text: str) -> str:
    """Text of the user that Markdown is to show as it is."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", re.sub(r"\s+", " ", text))


def _code(text: str) -> str:
    return "`" + text.replace("`", "'") + "`"


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
