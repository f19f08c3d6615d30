"""Every kind of task goes the whole way: learned, judged, saved, exported, served, compared, shown.

One table has a label column for each kind, some cells of it empty; one model of two seeds learns
them all, and each kind then passes the same tests. Last, all kinds learn in every family of
encoders under every form of plan.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

import bough
from bough import demo
from bough.comparison.compare import Comparison, compare
from bough.data.examples import examples_of
from bough.data.label_cells import label_cells
from bough.data.loader import Loader
from bough.export.onnx_export import write_onnx
from bough.export.transformers_export import write_transformers
from bough.inference.answers import Answer
from bough.inference.load import load_torch
from bough.inference.model import Model
from bough.inference.torch_model import MultiTaskModel
from bough.plan.encoder_shape import FAMILIES
from bough.recipe.kinds import KINDS, Kind
from bough.recipe.recipe import Recipe
from bough.recipe.tasks import Task
from bough.recipe.training import Training
from bough.reports.page import page
from bough.runs.predictions import Answers
from bough.runs.run_dir import Run
from bough.scoring.evaluate import predict
from bough.scoring.pseudo_values import pseudo_values
from bough.serve.schemas import response_type
from bough.serve.task_info import describe
from bough.spans.schemes import Span
from bough.training.step import Stepper
from tests import folders, tiny

ROWS = {"train": 60, "dev": 40}
# Of each kind a task: its settings, and what is in the cell of row i.
SETTINGS: dict[str, dict[str, Any]] = {
    "classify": {"kind": "classify"},
    "regress": {"kind": "regress", "metric": "rmse"},
    "ordinal": {"kind": "ordinal"},
    "multilabel": {"kind": "multilabel", "separator": "|"},
    "columns": {"kind": "multilabel", "label": ["red", "green", "blue"], "metric": "auroc"},
    "pairs": {"kind": "classify", "text": ["text", "other"], "metric": "f1-weighted"},
    "tag": {"kind": "tag"},
}
KIND_OF = {name: settings["kind"] for name, settings in SETTINGS.items()}


def cells(i: int) -> dict[str, Any]:
    return {
        "classify": ("warm", "cold", "dry")[i % 3],
        "regress": "" if i % 5 == 0 else f"{(i * 7 % 11) * 10 - 30}",
        "ordinal": str(i % 4 + 1),
        "multilabel": "" if i % 2 else "|".join(("a", "b", "c")[: i // 2 % 4]) or "[]",
        "red": i % 2, "green": i % 3 % 2, "blue": int(i % 5 < 2),
        "pairs": ("entailment", "neutral", "contradiction")[i // 2 % 3],
        "tag": json.dumps([{"start": 0, "end": 2, "label": ("X", "Y")[i % 2]}] if i % 3 else []),
    }  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    with open(demo.folder() / "sentiment-train.csv", encoding="utf-8") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    start = 0
    for split, size in ROWS.items():
        with open(folder / f"{split}.csv", "w", encoding="utf-8", newline="") as file:
            out = csv.DictWriter(file, ["text", "other", *cells(0)])
            out.writeheader()
            for i in range(start, start + size):
                text = f"We {texts[i]}"  # whose first word is marked
                out.writerow({"text": text, "other": texts[-i - 1], **cells(i)})
        start += size
    return folder


@pytest.fixture(scope="module")
def runs(table: Path, tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    tasks = {
        name: {"text": "text", "label": name, "train": "train.csv", "dev": "dev.csv", **settings}
        for name, settings in SETTINGS.items()
    }
    recipe = {
        "encoder": str(tiny_folder), "plan": "full", "data": str(table), "tasks": tasks,
        "training": {"steps": 6, "batch": 8, "lr": 1e-3, "sampling": "each"},
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("runs")
    made = []
    for seed in range(2):
        told = Recipe.read(recipe, [f"training.seed={seed}"])
        made.append(bough.train(told, out=folder / f"{seed}"))
    return made


@pytest.fixture(scope="module")
def model(runs: list[Run]) -> MultiTaskModel:
    return load_torch(runs[0])


@pytest.fixture(scope="module")
def exported(model: MultiTaskModel, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """All tasks in one graph."""
    folder = tmp_path_factory.mktemp("exported")
    model.save(folder / "model")
    write_onnx(folder / "model", folder / "onnx")
    return bough.load(folder / "onnx")


@pytest.fixture(scope="module")
def comparison(runs: list[Run]) -> Comparison:
    return compare([run.folder for run in runs])


def asked(name: str, model: MultiTaskModel) -> list[Any]:
    texts = ["A warm and clever film.", "We waited an hour, and the food was cold.", "No."]
    return [(text, "Not that.") for text in texts] if model.tasks[name].paired else texts


def close(one: Answer, other: Answer) -> bool:
    """The same in words, and nearly the same in numbers."""
    words = [
        (a.label, a.labels, a.cut, *((s.start, s.label) for s in a.spans or ()))
        for a in (one, other)
    ]
    same = words[0] == words[1]
    mine, theirs = ({**(a.probabilities or {}), "": a.value or 0.0} for a in (one, other))
    return same and mine == pytest.approx(theirs, rel=1e-4, abs=1e-4)


def test_every_kind_is_here() -> None:
    assert set(KIND_OF.values()) == set(get_args(Kind)) == set(KINDS)


@pytest.mark.parametrize("name", SETTINGS)
def test_it_learns_what_has_a_label(name: str, runs: list[Run], model: MultiTaskModel) -> None:
    environment = runs[0].environment["data"][name]
    column = "red" if name == "columns" else name
    for split, size in ROWS.items():
        start = 0 if split == "train" else ROWS["train"]
        empty = sum(cells(i)[column] == "" for i in range(start, start + size))
        assert environment[split]["rows"] == size - empty
        assert environment[split]["gaps"] == empty
    assert model.tasks[name].settled
    lines = [entry for entry in runs[0].metrics() if "loss" in entry]
    assert np.isfinite(lines[-1]["loss"][name])


@pytest.mark.parametrize("name", SETTINGS)
def test_it_learns_and_is_judged_in_bf16(name: str, runs: list[Run], tmp_path: Path) -> None:
    """Alone, with an encoder that the kernels take: what is read of the trunk is wide again."""
    encoder = folders.encoder(tmp_path / "encoder", width=64)
    told = runs[0].recipe()
    alone = told.model_copy(update={"tasks": {name: told.tasks[name]}})
    settings = [f"encoder={encoder}", "precision=bf16", "rows=skip"]  # some have no label
    run = bough.train(alone, tmp_path / "run", settings)
    assert run.recipe().precision == "bf16"
    assert set(run.scores["dev"]["tasks"]) == {name}


@pytest.mark.parametrize("name", SETTINGS)
def test_it_answers_in_the_form_of_its_kind(name: str, model: MultiTaskModel) -> None:
    task = model.tasks[name]
    every = response_type(model.tasks)
    for answered in model.predict(asked(name, model), [name]):
        answer = answered[name]
        assert answer.finite
        match task.kind:
            case "classify" | "ordinal":
                assert answer.label in (task.labels or ())
                assert sum((answer.probabilities or {}).values()) == pytest.approx(1, abs=1e-5)
            case "multilabel":
                assert answer.probabilities is not None
                held = tuple(label for label, p in answer.probabilities.items() if p > 0.5)
                assert answer.labels == held
            case "regress":
                assert answer.value is not None
            case "tag":
                assert answer.spans is not None
        sent = {"answers": [{name: answer.plain()}]}
        assert TypeAdapter(every).validate_python(sent).model_dump() == sent
    told = describe(model, "m")["tasks"][name]
    assert told["kind"] == task.kind


@pytest.mark.parametrize("name", SETTINGS)
def test_its_answers_are_kept_and_judged(name: str, runs: list[Run], model: MultiTaskModel) -> None:
    task = model.tasks[name]
    kept = Answers.read(runs[0], name, "dev", task.kind)
    scores = runs[0].scores["dev"]["tasks"][name]
    assert scores["metric"] == task.metric_name
    assert set(task.rules.metrics) <= scores.keys()
    value, parts = pseudo_values(task.metric_name, *kept.judged)
    assert value == pytest.approx(scores[task.metric_name], abs=1e-4)
    assert parts.mean() == pytest.approx(value)
    low, high = scores["interval"]
    assert low <= value <= high
    assert ("ece" in scores) == bool(task.labels)
    assert kept.word(kept.truth[1])


@pytest.mark.parametrize("name", SETTINGS)
def test_it_is_the_same_saved_and_exported(
    name: str, model: MultiTaskModel, exported: Model, tmp_path: Path
) -> None:
    texts = asked(name, model)
    expected = [answer[name] for answer in model.predict(texts, name)]
    saved = bough.load(model.save(tmp_path / "saved"))
    assert [answer[name] for answer in saved.predict(texts, name)] == expected
    alone = model.only(name)
    for other in (alone, exported):
        assert all(map(close, (a[name] for a in other.predict(texts, name)), expected))
    alone.save(tmp_path / "alone")
    if KIND_OF[name] == "tag":
        with pytest.raises(bough.UserError, match="a tag task has no form in transformers"):
            write_transformers(tmp_path / "alone", tmp_path / "theirs", name)
        return
    write_transformers(tmp_path / "alone", tmp_path / "theirs", name)
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert list(config["id2label"].values()) == list(model.tasks[name].labels or ("value",))
    _same_in_transformers(model.tasks[name], tmp_path / "theirs", texts, expected)


def _same_in_transformers(task: Task, folder: Path, texts: list[Any], expected: list[Any]) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    theirs = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
    for text, answer in zip(texts, expected, strict=True):
        parts = [text] if isinstance(text, str) else list(text)
        with torch.inference_mode():
            logits = theirs.eval()(**tokenizer(*parts, return_tensors="pt")).logits[0]
        if task.kind == "regress":
            assert float(logits[0]) == pytest.approx(answer.value, abs=1e-2)
            continue
        shares = logits.sigmoid() if task.kind == "multilabel" else logits.softmax(0)
        assert shares.tolist() == pytest.approx([*answer.probabilities.values()], abs=1e-4)


@pytest.mark.parametrize("name", SETTINGS)
def test_labelled_rows_judge_it(name: str, runs: list[Run], table: Path) -> None:
    found = bough.evaluate(runs[0], table / "dev.csv", tasks=[name], skip=True)
    kept = runs[0].scores["dev"]["tasks"][name]
    metric = kept["metric"]
    assert found.scores["tasks"][name][metric] == pytest.approx(kept[metric], abs=1e-5)
    assert (name in found.classes) == (KIND_OF[name] not in ("regress", "tag"))
    assert (name in found.spans) == (KIND_OF[name] == "tag")
    assert (name in found.confusion) == (KIND_OF[name] in ("classify", "ordinal"))


def test_all_kinds_are_compared_and_reported(runs: list[Run], comparison: Comparison) -> None:
    (label,) = comparison.scores
    for name, metric in comparison.metrics.items():
        score = comparison.scores[label][name]
        own = [run.scores["dev"]["tasks"][name][metric] for run in runs]
        assert score.value == pytest.approx(np.mean(own), abs=1e-4)
        assert score.interval[0] <= score.value <= score.interval[1]
    shown = page(comparison)
    for name in SETTINGS:
        assert f"worst-{name}" in shown
    card = (runs[0].model / "README.md").read_text(encoding="utf-8")
    assert "any of 3: a, b, c" in card
    assert "one of 4 in order: 1, 2, 3, 4" in card


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_written_is_read_again(name: str, model: MultiTaskModel) -> None:
    reader = label_cells(model.tasks[name])
    some: dict[str, list[Any]] = {
        "regress": [1.5, -20.0], "multilabel": [(), (0, 2)], "tag": [(), (Span(0, 2, "X"),)]
    }  # fmt: skip
    labels = some.get(KIND_OF[name], [0, 1])
    if name != "columns":  # which have no cell of their own
        assert [reader.read(reader.written(label), "We saw") for label in labels] == labels


# --- every family, under every form of plan, with every kind --------------------------------------

PLANS = (
    "full", "split@1", "separate", "split@1/n+c", "late:S", "pal:8", "lora:2", "bottleneck:4",
    "frozen@1", "feed:c>o",
)  # fmt: skip
SMALL: dict[str, dict[str, Any]] = {
    "c": {},
    "n": {"kind": "regress", "labels": None, "scale": (0, 10)},
    "o": {"kind": "ordinal"},
    "m": {"kind": "multilabel"},
    "t": {"kind": "tag", "labels": ("X", "Y"), "pooling": "words"},
}
WORDS: list[tuple[str, ...]] = [
    ("the old tree",), ("is green",), ("who does grow a bough",), ("what is very good on three",)
]  # fmt: skip
LABELS: dict[str, list[Any]] = {
    "c": [0, 1, 2, 1],
    "n": [-3.0, 4.5, 20.0, 7.0],
    "o": [2, 1, 0, 0],
    "m": [(), (0, 2), (1,), (0, 1, 2)],
    "t": [(Span(4, 7, "X"),), (), (Span(0, 3, "Y"),), ()],
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("plan", PLANS)
def test_every_kind_learns_in_every_family_under_every_plan(family: str, plan: str) -> None:
    """One table; a step with a gradient for each task, and one task alone answers as among all."""
    assert {SMALL[name].get("kind", "classify") for name in SMALL} == set(get_args(Kind))
    pooling = {"pooling": "pooler" if FAMILIES[family].pooler else "mean"}
    tasks = {name: tiny.task(**pooling | {"dropout": 0} | own) for name, own in SMALL.items()}
    encoder = tiny.encoder(family)
    rows = {name: tiny.rows(WORDS, LABELS[name]) for name in tasks}
    examples = examples_of(tasks, rows, encoder.tokenizer, 30)
    network = tiny.network(plan, tasks, encoder)
    training = Training(lr=1e-3, combine="pcgrad", dropout=0.0)
    stepper = Stepper(network, examples, training, dict.fromkeys(tasks, 1.0), [0])
    group = "+".join(tasks)
    loader = Loader(examples, lambda: {group: np.arange(4)})
    first = stepper.step(loader, 1e-3)
    assert first.losses.keys() == tasks.keys()
    for _ in range(3):
        last = stepper.step(loader, 1e-3)
    assert sum(last.losses.values()) < sum(first.losses.values())
    found = predict(network, examples)
    for name in tasks:
        alone = network.only(name)
        again = predict(alone, {name: examples[name]})[name]
        assert again.loss == pytest.approx(found[name].loss, rel=1e-4)
        copy = tiny.network(alone.plan, alone.tasks, encoder)
        copy.load_state_dict(alone.state_dict())
        assert predict(copy, {name: examples[name]})[name].loss == again.loss
