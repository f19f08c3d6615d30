"""Training: every option does what it says, and a run is its recipe and seed, nothing else."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import bough
from bough import demo
from bough.data.batches import Examples
from bough.data.dataset import Data
from bough.errors import UserError
from bough.model.network import Network
from bough.recipe import methods
from bough.recipe.recipe import Recipe
from bough.runs.console import Lines
from bough.runs.run_dir import Run
from bough.training import sampling, setup, trainer
from bough.training.api import judge, new_folder, resume, train
from bough.training.cached_states import States
from bough.training.evaluate import predict
from bough.training.optimizer import SCHEDULES, factor
from bough.training.phase import Progress
from bough.training.trainer import Failed
from tests import folders
from tests.same import predictions

FEW = {"steps": 4, "evaluate_rows": 8}


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pulls the plug here."""
    monkeypatch.setattr(os, "fsync", lambda number: None)


def logged(run: Run) -> list[dict[str, Any]]:
    return [entry for entry in run.metrics() if "loss" in entry]


def judged(run: Run) -> list[dict[str, Any]]:
    return [entry for entry in run.metrics() if "dev" in entry]


def final(run: Run) -> dict[str, Tensor]:
    """The weights after the last step, whichever were kept as the best."""
    state = torch.load(run.checkpoint, weights_only=True)
    weights: dict[str, Tensor] = state["stepper"]["network"]
    return weights


def fresh(recipe: Mapping[str, Any]) -> dict[str, Tensor]:
    told = Recipe.read(recipe)
    return setup.build(told, Data.gather(told))[0].network.state_dict()


def moved(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> set[str]:
    """The cells in which a weight changed."""
    return {name.split(".")[1] for name in after if not torch.equal(before[name], after[name])}


# --- it learns ----------------------------------------------------------------------------------


def test_the_loss_falls_on_each_task(tiny_folder: Path, tmp_path: Path) -> None:
    run = train(folders.small(tiny_folder, epochs=20, lr=5e-3, warmup=0), tmp_path / "run")
    losses = [entry["loss"] for entry in logged(run)]
    for task in folders.TASKS:
        early, late = (np.mean([own[task] for own in part]) for part in (losses[:8], losses[-8:]))
        assert late < 0.95 * early, task


def test_a_run_is_its_recipe_and_seed(tiny_folder: Path, tmp_path: Path) -> None:
    runs = [
        train(folders.small(tiny_folder, **FEW, combine="pcgrad", seed=seed), tmp_path / name)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    files = [(run.model / "model.safetensors").read_bytes() for run in runs]
    assert files[0] == files[1]
    assert files[0] != files[2]


def test_the_public_function_can_be_called_again_and_again(
    tiny_folder: Path, tmp_path: Path
) -> None:
    recipe = folders.small(tiny_folder, ("sentiment",), **FEW)
    for name in ("a", "b"):  # the room of the same name must not take its place
        run = bough.train(recipe, out=tmp_path / name)
        assert bough.load(run.folder).predict("Well.")["sentiment"].label
    with pytest.raises(UserError, match="finished"):
        bough.resume(tmp_path / "a")


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form", ["each", "round-robin", "proportional", "sqrt", "power:0.7", "annealed",
             "temperature:2", "temperature:2,cap:20", "method1", "method2", "method3", "in-turn"],
)  # fmt: skip
def test_every_sampling(form: str, tiny_folder: Path, tmp_path: Path) -> None:
    run = train(folders.small(tiny_folder, **FEW | {"steps": 6}, sampling=form), tmp_path / "run")
    lines = logged(run)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    seen = lines[-1]["examples"]
    assert lines[-1]["passes"] == {task: round(seen[task] / 64, 4) for task in seen}
    per_step = 3 if form in ("each", "method1", "method2", "method3") else 1
    assert sum(seen.values()) == 6 * 8 * per_step
    assert all(len(line["loss"]) == per_step for line in lines)


def test_the_list_of_samplings_is_complete() -> None:
    mark = next(m for m in test_every_sampling.pytestmark if m.name == "parametrize")
    forms = {form.partition(":")[0] for form in mark.args[1]}
    assert forms == {form.partition(":")[0] for form in sampling.FORMS}


@pytest.mark.parametrize("method", methods.COMBINATIONS)
def test_every_combination(method: str, tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, **FEW, combine=method, plan="split@1/questions+similarity")
    run = train(recipe, tmp_path / "run")
    assert all(math.isfinite(line["gradient_norm"]) for line in logged(run))
    changed = moved(fresh(recipe), final(run))
    assert len(changed) == len(run_cells(recipe)), "every cell is somebody's and learns"


def run_cells(recipe: Mapping[str, Any]) -> set[str]:
    return {name.split(".")[1] for name in fresh(recipe)}


@pytest.mark.parametrize("method", methods.WEIGHTINGS)
def test_every_weighting(method: str, tiny_folder: Path, tmp_path: Path) -> None:
    """Its weights are logged, and they are what moved the model."""
    runs = [
        train(folders.small(tiny_folder, **FEW, weighting=how), tmp_path / how.replace(":", "-"))
        for how in dict.fromkeys(("static", method))
    ]
    lines = logged(runs[-1])
    assert all(set(line["weights"]) == set(folders.TASKS) for line in lines)
    if method == "static":
        assert all(set(line["weights"].values()) == {1.0} for line in lines)
        return
    if method in ("geometric", "tchebycheff", "random"):  # the others begin with equal weights
        assert len({round(value, 6) for value in lines[0]["weights"].values()}) == 3
    if method != "dwa":  # which needs two epochs to see a difference
        assert moved(final(runs[0]), final(runs[1]))


def test_the_coefficients_of_surgery_are_logged(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, **FEW, combine="mgda", plan="split@1/questions+similarity")
    for line in logged(train(recipe, tmp_path / "run")):
        told = line["coefficients"]
        assert set(told) == {"sentiment+questions+similarity", "questions+similarity"}
        for group, own in told.items():
            assert set(own) == set(group.split("+"))
            assert sum(own.values()) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule(schedule: str, tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, **FEW, schedule=schedule, warmup=0.5, lr=1e-3)
    rates = [line["lr"] for line in logged(train(recipe, tmp_path / "run"))]
    assert rates == [1e-3 * factor(step, 4, 0.5, schedule) for step in range(4)]


def test_rates_of_layers_heads_and_adapters(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(
        tiny_folder, steps=1, lr=1e-3, warmup=0, decay=0, dropout=0, clip=None, plan="bottleneck:4",
        layer_decay=0.5, head_lr=3, adapter_lr=7, evaluate_rows=8,
    )  # fmt: skip
    before, run = fresh(recipe), train(recipe, tmp_path / "run")
    # The first step of Adam moves every weight that has a gradient by its rate.
    most: dict[str, float] = {}
    for name, after in final(run).items():
        place = name.split(".")[1].split(":")[0].split("=")[0]
        step = float((after - before[name]).abs().max())
        most[place] = max(most.get(place, 0.0), step)
    said = {round(value * 1e3, 2) for value in most.values()}
    assert said == {0.25, 0.5, 1.0, 3.0, 7.0}, most


@pytest.mark.parametrize("combine", ["sum", "mean", "mgda", "cagrad"])
def test_a_task_of_weight_0_is_as_good_as_absent(
    combine: str, tiny_folder: Path, tmp_path: Path
) -> None:
    """It is judged; it neither moves, nor decays, nor changes what the others learn."""
    idle = {"questions": 0, "similarity": 0}
    recipe = folders.small(tiny_folder, **FEW, weights=idle, decay=0.5, combine=combine)
    run = train(recipe, tmp_path / "run")
    changed = moved(fresh(recipe), final(run))
    heads = {name for name in changed if "head" in name}
    assert len(heads) == 1
    assert "sentiment" in heads.pop()
    assert set(run.scores["dev"]["tasks"]) == set(folders.TASKS)
    alone = folders.small(tiny_folder, ("sentiment",), **FEW, decay=0.5)
    losses = [line["loss"]["sentiment"] for line in logged(train(alone, tmp_path / "alone"))]
    assert losses == [line["loss"]["sentiment"] for line in logged(run)]


def test_an_absent_task_does_not_move(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, steps=2, sampling="round-robin", decay=0.5, plan="split@1")
    changed = moved(fresh(recipe), final(train(recipe, tmp_path / "run")))
    assert changed
    assert not {name for name in changed if "similarity" in name}
    assert {name for name in changed if "questions" in name}


def test_accumulation_is_one_larger_batch(tiny_folder: Path, tmp_path: Path) -> None:
    """The same examples, the same number of passes, the same weights but for rounding."""
    runs = []
    for name, batch, parts in (("whole", 16, 1), ("parts", 4, 4)):
        recipe = folders.small(
            tiny_folder, batch=batch, accumulate=parts, dropout=0, length_window=0, evaluate_rows=8
        )
        for task in recipe["tasks"]:
            recipe["tasks"][task] = recipe["tasks"][task] | {"dropout": 0}
        runs.append(train(recipe, tmp_path / name))
    one, other = (logged(run) for run in runs)
    assert [line["passes"] for line in one] == [line["passes"] for line in other]
    assert one[-1]["passes"] == dict.fromkeys(folders.TASKS, 1.0)
    for a, b in zip(one, other, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert a["gradient_norm"] == pytest.approx(b["gradient_norm"], rel=1e-3)


@pytest.mark.parametrize("how", ["in-turn", "method1", "annealed"])
def test_accumulation_of_uneven_parts(how: str, tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, batch=5, accumulate=3, sampling=how, evaluate_rows=8)
    lines = logged(train(recipe, tmp_path / "run"))
    if how == "in-turn":
        assert lines[-1]["passes"] == dict.fromkeys(folders.TASKS, 1.0)
    assert all(math.isfinite(x) for line in lines for x in line["loss"].values())


def test_phases(tiny_folder: Path, tmp_path: Path) -> None:
    phases = [
        {"frozen": True, "steps": 3, "lr": 1e-2, "schedule": "constant", "warmup": 0},
        {"epochs": 1, "lr": 1e-4, "batch": 16},
    ]
    recipe = folders.small(tiny_folder, phases=phases[:1], evaluate_rows=8)
    first = train(recipe, tmp_path / "first")
    changed = moved(fresh(recipe), final(first))
    assert changed
    assert all("head" in name for name in changed), changed
    both = train(folders.small(tiny_folder, phases=phases, evaluate_rows=8), tmp_path / "both")
    lines = logged(both)
    assert [line["phase"] for line in lines] == [0] * 3 + [1] * 4
    assert [line["lr"] for line in lines[:3]] == [1e-2] * 3
    assert max(line["lr"] for line in lines[3:]) == pytest.approx(1e-4)
    assert lines[2]["examples"]["questions"] == 24
    assert lines[-1]["examples"]["questions"] == 64, "a phase counts its own examples"
    assert len(moved(final(first), final(both))) > len(changed)
    assert [entry["step"] for entry in judged(both)] == [3, 7]


def test_a_frozen_plan_moves_heads_only(tiny_folder: Path, tmp_path: Path) -> None:
    kept = folders.small(tiny_folder, epochs=2, plan="frozen", evaluate_rows=8)
    runs = [
        train(kept, tmp_path / "kept"),
        train(kept, tmp_path / "again"),
        train(kept, tmp_path / "plain", overrides=["training.keep_states=false"]),
    ]
    assert all("head" in name for name in moved(fresh(kept), final(runs[0])))
    assert final(runs[0]).keys() == final(runs[1]).keys()
    for name, weight in final(runs[0]).items():
        assert torch.equal(weight, final(runs[1])[name])
        torch.testing.assert_close(weight, final(runs[2])[name], atol=1e-4, rtol=1e-3)


def computed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[tuple[str, int]]:
    """In a cache of its own: for which tasks, and how many sequences, states are computed."""
    monkeypatch.setenv("BOUGH_CACHE", str(folder))
    calls: list[tuple[str, int]] = []
    compute = States._compute

    def counted(self: States, task: str, examples: Examples, *rest: Any) -> Any:
        calls.append((task, len(examples.sequences)))
        return compute(self, task, examples, *rest)

    monkeypatch.setattr(States, "_compute", counted)
    return calls


@pytest.mark.parametrize("how", ["plan", "phases"])
def test_the_end_is_judged_by_the_kept_states(
    how: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = computed(monkeypatch, tmp_path / "cache")
    settings: dict[str, Any] = {"plan": "frozen", "epochs": 2}
    if how == "phases":
        settings = {"phases": [{"frozen": True, "epochs": 1}, {"frozen": True, "epochs": 1}]}
    judged_from: list[set[bool]] = []

    def noted(network: Network, examples: Mapping[str, Examples]) -> Any:
        judged_from.append({own.first > 0 for own in examples.values()})
        return predict(network, examples)

    monkeypatch.setattr(trainer, "predict", noted)
    told = folders.small(tiny_folder, **settings)
    kept = train(told, tmp_path / "kept")
    assert judged_from == [{True}] * 3, "two epochs and the end"
    assert calls == [(task, size) for size in (64, 16) for task in folders.TASKS]
    monkeypatch.setattr(trainer, "predict", predict)
    plain = train(told, tmp_path / "plain", overrides=["training.keep_states=false"])
    for found in (judge(kept.folder, "dev"), plain.scores["dev"]):
        for task, own in found["tasks"].items():
            known = kept.scores["dev"]["tasks"][task]
            for number in (own["metric"], "loss", "interval"):
                assert own[number] == pytest.approx(known[number], rel=1e-3), (task, number)
    for task in folders.TASKS:
        one, other = (predictions(run, task, "dev") for run in (kept, plain))
        if task != "similarity":
            assert [row["predicted"] for row in one] == [row["predicted"] for row in other]
        assert len(one) == len(other) == 16


def test_a_phase_that_learns_has_no_kept_states_at_the_end(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = computed(monkeypatch, tmp_path / "cache")
    phases = [{"frozen": True, "epochs": 1}, {"epochs": 1}]
    run = train(folders.small(tiny_folder, phases=phases, select="last"), tmp_path / "run")
    assert len(calls) == 2 * len(folders.TASKS)
    assert judge(run.folder, "dev") == run.scores["dev"]


def test_states_of_all_sets_are_worth_a_look_at_half_of_them(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = computed(monkeypatch, tmp_path / "cache")
    few = folders.data(tmp_path / "few", train=8)
    recipe = folders.small(tiny_folder, plan="frozen", evaluate_rows=4, sampling="round-robin")
    smallest = {"train": str(few / "similarity-train.csv")}
    recipe["tasks"]["similarity"] = recipe["tasks"]["similarity"] | smallest
    for steps, worth in ((8, False), (9, True)):  # of 8 examples each; the sets have 136
        calls.clear()
        train(recipe, tmp_path / str(steps), overrides=[f"training.steps={steps}"])
        assert (("questions", 64) in calls) == worth


def test_without_room_for_states_a_run_goes_on(
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("bough.training.cached_states.IN_MEMORY", 0)
    monkeypatch.setenv("BOUGH_CACHE_GB", "0")
    calls = computed(monkeypatch, tmp_path / "cache")
    recipe = folders.small(tiny_folder, epochs=1, plan="frozen")
    run = train(recipe, tmp_path / "run", display=Lines())
    assert not calls
    assert run.finished
    assert capsys.readouterr().err.count("have no room in the cache") == 1
    monkeypatch.setenv("BOUGH_CACHE_GB", "10GB")
    with pytest.raises(UserError, match="BOUGH_CACHE_GB is '10GB'"):
        train(recipe, tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


def test_the_average_of_weights_is_judged_and_kept(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, **FEW, ema=0.5, select="last")
    run = train(recipe, tmp_path / "run")
    best, last = load_file(run.model / "model.safetensors"), final(run)
    state = torch.load(run.checkpoint, weights_only=True)["stepper"]["average"]
    assert state["steps"] == 4
    assert moved(best, last)
    means = {m.shape for m in state["means"]}
    assert {w.shape for w in best.values()} == means
    assert any(torch.equal(w, m) for w in best.values() for m in state["means"] if w.numel() > 99)


def test_early_stopping(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, epochs=9, lr=1e-12, patience=2, evaluate_rows=8)
    run = train(recipe, tmp_path / "run")
    assert [entry["best"] for entry in judged(run)] == [True, False, False]
    assert logged(run)[-1]["step"] == 24
    # A phase that gave up early does not take the next one's patience with it.
    phases = [{"epochs": 5}, {"epochs": 5}]
    recipe["training"] |= {"phases": phases, "epochs": 1}
    told = judged(train(recipe, tmp_path / "phases"))
    assert [entry["best"] for entry in told] == [True, False, False, False, False]


@pytest.mark.parametrize("select", ["raw", "normalised", "sum", "last", "similarity", "sentiment"])
def test_the_kept_model_is_the_selected_one(select: str, tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, epochs=4, lr=1e-2, warmup=0, select=select, seed=3)
    run = train(recipe, tmp_path / "run")
    told = judged(run)

    def value(scores: dict[str, Any]) -> float:
        main = {name: own[own["metric"]] for name, own in scores["tasks"].items()}
        return scores[select] if select in scores else main.get(select, sum(main.values()))

    values = [value(entry["dev"]) for entry in told]
    best = len(values) - 1 if select == "last" else int(np.argmax(values))
    flags = [i for i, entry in enumerate(told) if entry["best"]]
    assert flags[-1] == best
    kept = run.scores["dev"]
    for task, own in told[best]["dev"]["tasks"].items():
        assert kept["tasks"][task] == own | {"interval": kept["tasks"][task]["interval"]}
    assert kept["raw"] == told[best]["dev"]["raw"]
    assert judge(run.folder, "dev") == kept


def test_evaluation_on_a_sample_and_at_steps(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, steps=7, evaluate_every=3, evaluate_rows=9)
    run = train(recipe, tmp_path / "run")
    assert [entry["step"] for entry in judged(run)] == [3, 6, 7]
    assert {own["rows"] for e in judged(run) for own in e["dev"]["tasks"].values()} == {9}
    assert {own["rows"] for own in run.scores["dev"]["tasks"].values()} == {16}


def test_cosines_are_logged(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, **FEW, cosines_every=2, log_every=100, plan="split@1")
    lines = logged(train(recipe, tmp_path / "run"))
    assert [line["step"] for line in lines] == [2, 4]
    for line in lines:
        assert set(line["cosines"]) == {"embeddings", "layer 1"}
        assert set(line["cosines"]["layer 1"]) == {
            "sentiment+questions", "sentiment+similarity", "questions+similarity"
        }  # fmt: skip
        assert all(-1 <= c <= 1 for own in line["cosines"].values() for c in own.values())


@pytest.mark.parametrize(
    "plan",
    ["separate", "split@1, late:IS, pal:8, feed~:sentiment>questions>similarity", "lora:4",
     "frozen@1, bottleneck:4", "frozen, late:SI"],
)  # fmt: skip
def test_every_kind_of_plan(plan: str, tiny_folder: Path, tmp_path: Path) -> None:
    run = train(folders.small(tiny_folder, **FEW, plan=plan, combine="pcgrad"), tmp_path / "run")
    assert str(bough.load(run.folder).plan) == (run.folder / "plan.txt").read_text().rstrip("\n")


def test_half_precision(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, **FEW) | {"precision": "bf16"}
    full = folders.small(tiny_folder, **FEW)
    half, whole = train(recipe, tmp_path / "half"), train(full, tmp_path / "whole")
    for a, b in zip(logged(half), logged(whole), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=0.05)
        assert a["loss"] != b["loss"]


def test_tasks_with_all_kinds_of_heads_and_losses(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, **FEW, plan="split@1")
    twin = {"pair": "twin", "pooling": "mean"}
    recipe["tasks"] = {
        "sentiment": folders.TASKS["sentiment"]
        | {"loss": "ordinal", "metric": "mcc", "norm": True},
        "questions": folders.TASKS["questions"]
        | {"head": "mlp", "depth": 2, "width": 8, "loss": "mse", "class_weights": "balanced"},
        "similarity": folders.TASKS["similarity"]
        | twin | {"head": "cosine-linear", "project": True, "metric": "spearman", "loss": "huber"},
        "apart": folders.TASKS["questions"]
        | twin | {"features": ["sum", "cosine"], "smoothing": 0.1, "metric": "f1"},
    }  # fmt: skip
    run = train(recipe, tmp_path / "run")
    metrics = {name: own["metric"] for name, own in run.scores["dev"]["tasks"].items()}
    assert metrics == {
        "sentiment": "mcc", "questions": "accuracy", "similarity": "spearman", "apart": "f1"
    }  # fmt: skip


# --- what is left behind ------------------------------------------------------------------------


def test_what_a_finished_run_holds(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, epochs=1, plan="split@1")
    rows = tiny_folder.parent / "rows"
    recipe["tasks"]["sentiment"] = recipe["tasks"]["sentiment"] | {"test": "sentiment-dev.csv"}
    run = train(recipe, tmp_path / "run")
    assert run.finished
    told = Recipe.read(recipe)
    known = told.model_copy(update={"tasks": Data.gather(told).tasks})
    assert Recipe.read(run.recipe_file) == known
    assert run.plan == "split@1"
    assert set(run.scores) == {"dev", "test"}
    assert run.scores["test"]["tasks"]["sentiment"] == run.scores["dev"]["tasks"]["sentiment"]
    environment = run.environment
    assert environment["packages"]["bough"] == bough.__version__
    assert environment["data"]["questions"]["train"]["rows"] == 64
    answers = predictions(run, "sentiment", "dev")
    lines = (rows / "sentiment-dev.csv").read_text().splitlines()[1:]
    assert [row["label"] for row in answers] == [line.rpartition(",")[2] for line in lines]
    for row in answers:
        shares = {k: float(v) for k, v in row.items() if k.startswith("p(")}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert f"p({row['predicted']})" == max(shares, key=lambda k: shares[k])
    right = np.mean([row["label"] == row["predicted"] for row in answers])
    assert right == pytest.approx(run.scores["dev"]["tasks"]["sentiment"]["accuracy"])
    values = [float(row["predicted"]) for row in predictions(run, "similarity", "dev")]
    assert all(0 <= value <= 5 for value in values)
    text = json.dumps([run.scores, run.cost, environment, list(run.metrics())], allow_nan=False)
    assert "NaN" not in text


def test_the_cost_of_a_run(tiny_folder: Path, tmp_path: Path) -> None:
    run = train(folders.small(tiny_folder, epochs=1, plan="split@1"), tmp_path / "run")
    cost, model = run.cost, bough.load(run.folder)
    weights = sum(p.numel() for p in model.network.parameters())
    assert cost["parameters"] == cost["learning_parameters"] == weights
    assert cost["bytes_to_serve"] == 4 * weights
    assert cost["bytes_with_optimiser"] == 12 * weights
    assert set(cost["parameters_per_task"]) == set(folders.TASKS)
    for task, own in cost["parameters_per_task"].items():
        assert own == sum(p.numel() for p in model.only(task).network.parameters())
    assert cost["tokens"] == logged(run)[-1]["tokens"]
    assert 0 < cost["step_seconds"] < cost["training_seconds"]
    assert cost["peak_memory"] > 1e8
    flops = cost["flops_per_example"]
    assert flops["sentiment"] < 0.8 * flops["questions"], "a pair has more tokens"
    size = (run.model / "model.safetensors").stat().st_size
    assert cost["bytes_to_serve"] < size < cost["bytes_to_serve"] + 20_000
    frozen = train(folders.small(tiny_folder, **FEW, plan="frozen"), tmp_path / "frozen").cost
    assert frozen["learning_parameters"] < 0.1 * frozen["parameters"]


# --- mistakes and failures ----------------------------------------------------------------------


def test_a_loss_that_is_no_number_stops_the_run(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(
        tiny_folder, steps=30, lr=1e30, warmup=0, clip=None, evaluate_every=1, evaluate_rows=8,
        schedule="constant",
    )  # fmt: skip
    with pytest.raises(Failed, match=r"not a finite number at step \d+; the last .* Lower"):
        train(recipe, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert all(torch.isfinite(weight).all() for weight in final(run).values())
    assert bough.load(run.folder).predict("Well.")
    assert not run.finished
    with pytest.raises(Failed, match="not a finite number"):  # the same again, not silence
        resume(run.folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"encoder": "no/such/encoder/at/all"}, "there is no such folder"),
        ({"plan": "split@9"}, "9"),
        ({"device": "cuda"}, "set it to cpu"),
        ({"data": "/nowhere"}, "data: no such folder"),
        ({"training": {"sampling": "each2"}}, "did you mean 'each'"),
        ({"training": {"combine": "pcgard"}}, "did you mean 'pcgrad'"),
        ({"training": {"weighting": "famoo"}}, "did you mean 'famo'"),
    ],
)
def test_mistakes_leave_no_trace(
    change: dict[str, Any], said: str, tiny_folder: Path, tmp_path: Path
) -> None:
    if "device" in change and torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(UserError, match=said) as caught:
        train(folders.small(tiny_folder) | change, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_runs_classes_are_its_own(tiny_folder: Path, tmp_path: Path) -> None:
    """A file that has changed since, or is gone, does not give the model's classes other names."""
    rows = folders.data(tmp_path / "rows")
    run = train(folders.recipe(tiny_folder, rows=rows, **FEW), tmp_path / "run")
    told = judge(run.folder, "dev")
    file = rows / "sentiment-train.csv"
    file.write_text(file.read_text() + "9,a new row,aaa\n")
    assert judge(run.folder, "dev") == told
    file.unlink()
    assert judge(run.folder, "dev") == told
    assert Recipe.read(run.recipe_file).tasks["sentiment"].labels


def test_a_phase_that_gave_up_stays_over() -> None:
    """By the clock its length is a forecast, which must not be made from where it gave up."""
    progress = Progress(done=120, seconds=10.0, over=True)
    assert Progress(**vars(progress)) == progress
    following = progress.next_phase()
    assert (following.over, following.done) == (False, 0)


def test_where_a_run_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert new_folder("recipes/three.yaml") == Path("runs/three")
    os.makedirs("runs/three")
    assert new_folder("recipes/three.yaml") == Path("runs/three-2")
    assert new_folder({}) == Path("runs/run")


def test_cut_and_skipped_texts_are_told(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = folders.small(tiny_folder, **FEW) | {"max_length": 8, "rows": "skip"}
    bad = [{"text": "Fine.", "label": "positive"}, {"text": "", "label": "neutral"}]
    recipe["tasks"]["sentiment"] = recipe["tasks"]["sentiment"] | {"dev": bad}
    train(recipe, tmp_path / "run", display=Lines())
    told = capsys.readouterr().err
    assert "sequences cut to 8 tokens" in told
    assert "skipped 1 of 2 rows" in told
    assert "step 4/4" in told
    assert "raw" in told


# --- the real data ------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.skipif("BOUGH_DATA" not in os.environ, reason="BOUGH_DATA names no data")
def test_the_real_data(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(__file__).parents[2] / "recipes" / "cs224n.yaml"
    overrides = [
        f"encoder={tiny_folder}", "plan=split@1", "max_length=64", "training.steps=300",
        "training.lr=1e-2", "training.evaluate_rows=200", "training.log_every=1",
        "training.warmup=0", "training.sampling=each", "training.batch=16",
    ]  # fmt: skip
    run = train(file, tmp_path / "run", overrides, Lines())
    told = capsys.readouterr().err
    assert "quora-dev.csv: skipped 2 of 20,214 rows: line 2577" in told
    assert "line 14222" in told
    losses = [entry["loss"] for entry in logged(run)]
    for task in ("sst", "quora", "sts"):
        early, late = (np.mean([own[task] for own in part]) for part in (losses[:20], losses[-60:]))
        assert late < early, task
    assert run.scores["dev"]["tasks"]["quora"]["rows"] == 20_212


def test_the_demo_recipe_is_trainable(tiny_folder: Path, tmp_path: Path) -> None:
    overrides = [f"encoder={tiny_folder}", "training.steps=2", "training.evaluate_rows=8"]
    run = train(demo.recipe(), tmp_path / "run", overrides)
    assert set(run.scores["dev"]["tasks"]) == set(demo.SAMPLES)
