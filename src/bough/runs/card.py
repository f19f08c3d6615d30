"""The model card: what a person has to know about a model, written by the run that made it.

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
from bough.errors import listed
from bough.plan.plan import Plan
from bough.recipe.contamination import contaminated
from bough.recipe.tasks import SPLITS, Task
from bough.runs.facts import Facts, texts_of

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
MINILM = "sentence-transformers/all-MiniLM-L6-v2"


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
            "metrics": [{"type": score["metric"], "value": round(score[score["metric"]], 4)}],
        }
        for split, scores in facts.get("scores", {}).items()
        for name, score in scores["tasks"].items()
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
    start = f"# {listed(list(tasks))}\n\nOne text encoder for {what}{on}, trained with bough"
    if number == 1:
        return f"{start} {__version__}."
    return (
        f"{start} {__version__}. One pass over a text answers every task asked for; what the tasks "
        "share is computed once."
    )


def _use(tasks: Mapping[str, Task], facts: Facts) -> Iterator[str]:
    yield "## How to use it"
    single = next((name for name, task in tasks.items() if not task.paired), None)
    pair = next((name for name, task in tasks.items() if task.paired), None)
    lines = ["import bough", "", 'model = bough.load("this folder, or its hub id")']
    if facts.get("runtime") == "onnx":
        yield "```sh\nbough serve FOLDER\n```"
        lines[-1] = 'model = bough.load("this folder")'
    given = [texts_of(e) for e in facts.get("examples", ())]
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


def _split(part: Mapping[str, Any] | None) -> str:
    return "" if part is None else f"{part['rows']:,} ({_code(part['source'])})"


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
    for split, judged in scores.items():
        for name, score in judged["tasks"].items():
            if name not in tasks:
                continue
            low, high = score.get("interval", (None, None))
            between = "" if low is None else f"{low:.3f} to {high:.3f}"
            metric = score["metric"]
            known = (m for m in ("accuracy", "f1", "mcc", "pearson", "spearman") if m in score)
            others = ", ".join(f"{m} {score[m]:.3f}" for m in known if m != metric)
            body.append(
                [split, name, metric, f"{score[metric]:.3f}", between, f"{score['rows']:,}", others]
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
    cost, training = facts.get("cost"), facts.get("training", {})
    if not cost:
        return
    yield "## Training and cost"
    form = " in int8" if facts.get("weights") == "int8" else ""
    size = f"{cost['bytes_to_serve'] / 2**20:,.0f} MiB to serve{form}"
    lines = [f"- {cost['parameters']:,} parameters, {size}"]
    if {"training_seconds", "peak_memory"} <= cost.keys():
        seconds = cost["training_seconds"]
        time = f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
        where = f" on {training['processor']}" if training.get("processor") else ""
        memory = f"at most {cost['peak_memory'] / 2**20:,.0f} MiB of memory"
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
