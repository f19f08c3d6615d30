"""Run directories as training writes them, with answers drawn from a known truth."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bough.comparison.compare import compare
from bough.data.checked_rows import Rows, digest, load
from bough.errors import UserError
from bough.plan.cost import cost
from bough.plan.encoder_shape import Shape
from bough.plan.plan import Plan
from bough.recipe.recipe import Recipe
from bough.recipe.tasks import Task
from bough.runs.run_dir import Writer
from bough.survey.spec import Survey
from bough.survey.survey_dir import SurveyDir

Make = Callable[..., Path]  # a run by name, plan, seed and settings
SHAPE = Shape("bert", 384, 6, 12, 1536, 30522, 512, 2, 384, 0, "gelu", 1e-12)
NAMES = ("sst", "quora", "sts")
WORDS = (
    *("old", "green", "slow", "bright", "tree", "bough", "leaf", "root", "film", "plot"),
    *("<b>bold</b>", "&", '"quoted"', "`x`", "|"),
)


def data(folder: Path, rows: int = 120) -> Path:
    """Small files for a sentiment, a duplicate and a similarity task, texts full of traps."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)

    def text() -> str:
        return " ".join(rng.choice(WORDS, 6)) + "<script>alert(1)</script>" * (rng.random() < 0.2)

    for split, many in (("train", 30), ("dev", rows)):
        sst = [f"{text()}\t{i % 5}" for i in range(many)]
        (folder / f"sst-{split}.tsv").write_text("\n".join(["text\tlabel", *sst]) + "\n")
        quora = [f"{text()}\t{text()}\t{i % 2}" for i in range(many)]
        (folder / f"quora-{split}.tsv").write_text("\n".join(["a\tb\tlabel", *quora]) + "\n")
        sts = [f"{text()}\t{text()}\t{i % 26 / 5}" for i in range(many)]
        (folder / f"sts-{split}.tsv").write_text("\n".join(["a\tb\tlabel", *sts]) + "\n")
    return folder


def recipe(folder: Path, plan: str, seed: int, **changes: Any) -> Recipe:
    tasks: dict[str, Any] = {
        "sst": {"kind": "classify", "text": "text"},
        "quora": {"kind": "classify", "text": ["a", "b"]},
        "sts": {"kind": "regress", "text": ["a", "b"], "range": [0, 5]},
    }
    chosen = changes.pop("tasks", NAMES)
    for name in tasks:
        tasks[name] |= {split: f"{name}-{split}.tsv" for split in ("train", "dev")}
        tasks[name] |= {"pooling": "pooler", "pair": "joint"}  # as a run says what was read
    made = {"plan": plan, "data": str(folder), "tasks": {n: tasks[n] for n in chosen}}
    overrides = [f"{key}={value}" for key, value in changes.items()]
    return Recipe.read(made | {"training": {"seed": seed}}, overrides)


def run(
    folder: Path,
    settings: Recipe,
    skill: Mapping[str, float] | None = None,
    *,
    cosines: bool = False,
    finished: bool = True,
    steps: int = 200,
    machine: Mapping[str, Any] | None = None,
) -> Path:
    """A finished run. `skill` moves a task's answers towards the truth, by nothing else than it;
    `machine` is what differs about what computed it."""
    writer = Writer(folder)
    seed = settings.training.seed
    plan = Plan.parse(settings.plan, tuple(settings.tasks), SHAPE.layers)
    # The same answers wherever the data lies, and whatever the defaults are.
    said = settings.model_copy(update={"data": "."}).model_dump_json(exclude_defaults=True)
    rng = np.random.default_rng([seed, zlib.crc32(said.encode())])
    loaded = {n: load(n, t, root=settings.root, policy="error") for n, t in settings.tasks.items()}
    tasks = {name: task for name, (task, _) in loaded.items()}
    writer.write("recipe.yaml", settings.dump())
    writer.write("plan.txt", f"{plan}\n")
    facts = {
        name: {
            s: {"rows": len(r), "sha256": digest(r), "skipped": 0, "repeated": r.repeated}
            for s, r in own.items()
        }
        for name, (_, own) in loaded.items()
    }
    where = {"python": "3.11", "system": "Linux x86_64", "processor": "Simulated <CPU>",
             "cores": 2, "threads": 2, "memory": 2**33, "gpu": None,
             "packages": {"bough": "0.1.0", "torch": "2.6"}, "data": facts}  # fmt: skip
    writer.write_json("environment.json", where | dict(machine or {}))
    static = cost(plan, SHAPE, {name: task.outputs for name, task in tasks.items()})
    pace = 0.2 * static.flops_together / 2e9 * float(np.exp(rng.normal() * 0.03))
    _log(writer, list(tasks), rng, steps, plan, cosines)
    if not finished:
        writer.close()
        return folder
    scores: dict[str, Any] = {}
    for name, (task, own) in loaded.items():
        ability = 0.8 + (skill or {}).get(name, 0.0) + 0.05 * rng.normal()
        scores[name], header, lines = _answers(name, task, own["dev"], plan, ability, rng)
        writer.write_csv(f"predictions/{name}-dev.csv", header, lines)
    costs = {
        "training_seconds": pace * steps * 1.1, "step_seconds": pace, "peak_memory": 2**30,
        "parameters": static.parameters, "learning_parameters": static.learning_parameters,
        "parameters_per_task": static.task_parameters, "bytes_to_serve": static.bytes_to_serve,
        "bytes_with_optimiser": 3 * static.bytes_to_serve,
        "flops_per_example": static.flops_per_example, "tokens": steps * 3000,
    }  # fmt: skip
    writer.write_json("cost.json", costs)
    without = {"train", "dev", "test"}
    model = {
        "plan": plan.text,
        "tasks": {n: t.model_dump(mode="json", exclude=without) for n, t in tasks.items()},
        "shape": asdict(SHAPE),
        "longest": 128,
        "facts": {"encoder": "minilm", "saw_quora": True},
    }
    writer.write("model/config.json", json.dumps(model))
    writer.write_json("scores.json", {"dev": {"tasks": scores}})
    writer.close()
    return folder


def _answers(
    name: str, task: Task, rows: Rows, plan: Plan, ability: float, rng: np.random.Generator
) -> tuple[dict[str, Any], list[str], list[list[Any]]]:
    """Scores, header and lines of the predictions; hardness is the task's, taste the plan's."""
    many = len(rows)
    hard, taste = (
        np.random.default_rng(zlib.crc32(key.encode())).normal(size=many)
        for key in (name, f"{name} {plan.text}")
    )
    level = ability - hard + 0.2 * taste + 0.6 * rng.normal(size=many)
    truth = np.array(rows.labels)
    if task.kind == "regress":
        error = np.maximum(1.5 - 0.5 * level, 0.1)  # however able, nobody is right by less
        values = np.clip(truth + rng.choice([-1, 1], many) * error, 0, 5)
        lines = [[i, t, f"{v:.6f}"] for i, t, v in zip(rows.ids, truth, values, strict=True)]
        pearson = float(np.corrcoef(values, truth)[0, 1])
        return {"metric": "pearson", "pearson": pearson}, ["id", "label", "predicted"], lines
    labels = task.labels or ()
    p = np.zeros((many, len(labels)))
    right = 0.05 + 0.9 * stats.norm.cdf(level * 1.2)
    other = (truth + 1 + rng.integers(0, len(labels) - 1, many)) % len(labels)
    p[np.arange(many), truth.astype(int)] = right
    p[np.arange(many), other] += 1 - right
    classes = p.argmax(1)
    lines = [
        [i, labels[t], labels[c], *(f"{x:.6f}" for x in q)]
        for i, t, c, q in zip(rows.ids, truth.astype(int), classes, p, strict=True)
    ]
    header = ["id", "label", "predicted", *(f"p({label})" for label in labels)]
    return {"metric": "accuracy", "accuracy": float(np.mean(classes == truth))}, header, lines


def _log(
    writer: Writer,
    tasks: Sequence[str],
    rng: np.random.Generator,
    steps: int,
    plan: Plan,
    cosines: bool,
) -> None:
    shared = [p for p, names in plan.rows() if len(set(names)) < len(names)]
    for step in range(20, steps + 1, 20):
        fade = float(np.exp(-step / steps * 2))
        entry: dict[str, Any] = {
            "step": step, "phase": 0, "epoch": step / steps * 3,
            "loss": {name: fade + 0.3 + 0.05 * float(rng.normal()) for name in tasks},
            "lr": 5e-5, "gradient_norm": 1.0, "tokens": step * 3000, "seconds": step * 0.2,
        }  # fmt: skip
        if cosines:
            entry["cosines"] = {
                place: {
                    f"{a}+{b}": float(np.clip(rng.normal(0.3 - 0.08 * i, 0.1), -1, 1))
                    for j, a in enumerate(tasks)
                    for b in tasks[j + 1 :]
                }
                for i, place in enumerate(shared)
            }
        writer.log(entry)
        if step % (steps // 4 or 1) == 0:
            metric = {"sst": "accuracy", "quora": "accuracy", "sts": "pearson"}
            dev = {
                n: {"metric": metric[n], metric[n]: 0.8 - 0.5 * fade + 0.02 * float(rng.normal())}
                for n in tasks
            }
            writer.log({"step": step, "dev": {"tasks": dev}, "best": True})


def survey(
    folder: Path, plans: Sequence[str], seeds: int, rows: int = 120, **settings: Any
) -> Path:
    source = data(folder / "data", rows)
    for plan in plans:
        for seed in range(seeds):
            name = f"{plan.replace(':', '-').replace(', ', '-')}-{seed}"
            run(folder / "runs" / name, recipe(source, plan, seed), **settings)
    return folder


def refused(paths: Sequence[Path], **settings: Any) -> str:
    """The sentence with which a comparison is refused."""
    with pytest.raises(UserError) as caught:
        compare(paths, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def surveyed(folder: Path, plans: dict[str, str]) -> Path:
    """A survey of two plans, cell -> plan, all done; sharing makes sts much better."""
    source = data(folder / "data")
    better: dict[str, dict[str, float]] = {"separate": {}, "full": {"sts": 2.0}}
    base = recipe(source, "full", 0)
    survey = Survey.read(
        {"recipe": base.model_dump(mode="json"), "seeds": 3, "baseline": next(iter(plans)),
         "asks": "Does sharing\n  help?", "budgets": {"small": {}},
         "cells": {cell: {"plan": plan} for cell, plan in plans.items()}}
    )  # fmt: skip
    SurveyDir(folder).settle(survey.resolved())
    for spec in survey.resolved().run_specs():
        plan = plans[spec.cell]
        place = SurveyDir(folder).run(spec.name).folder
        run(place, recipe(source, plan, spec.seed), better[plan])
    return folder
