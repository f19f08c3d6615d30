"""A run learns, judges, keeps the best, and leaves a whole directory behind."""

from __future__ import annotations

import gc
import json
import math
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import bough
from bough.data.dataset import Data
from bough.data.examples import Examples
from bough.errors import UserError
from bough.inference.evaluation import evaluate
from bough.inference.load import load_torch
from bough.model.network import Network
from bough.recipe.recipe import Recipe
from bough.runs.console import Display, Lines, Panel
from bough.scoring.evaluate import predict
from bough.training import trainer
from bough.training.phase import Phase
from bough.training.states.frozen_states import States
from bough.training.train import train
from tests import folders
from tests.finished import FEW, final, fresh, judged, logged, moved
from tests.same import predictions


def test_the_loss_falls_on_each_task(tiny_folder: Path, tmp_path: Path) -> None:
    run = train(folders.small(tiny_folder, epochs=20, lr=5e-3, warmup=0), tmp_path / "run")
    losses = [entry["loss"] for entry in logged(run)]
    for task in folders.TASKS:
        early, late = (np.mean([own[task] for own in part]) for part in (losses[:8], losses[-8:]))
        assert late < 0.95 * early, task


@pytest.mark.parametrize(
    "plan",
    ["separate", "split@1, late:IS, pal:8, feed~:sentiment>questions>similarity", "lora:4",
     "frozen@1, bottleneck:4", "frozen, late:SI"],
)  # fmt: skip
def test_every_kind_of_plan(plan: str, tiny_folder: Path, tmp_path: Path) -> None:
    run = train(folders.small(tiny_folder, **FEW, plan=plan, combine="pcgrad"), tmp_path / "run")
    assert str(bough.load(run.folder).plan) == (run.folder / "plan.txt").read_text().rstrip("\n")


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


def test_dwa_weighs_by_the_two_epochs_before(tiny_folder: Path, tmp_path: Path) -> None:
    """From the log alone: a task counts more the slower its mean loss fell."""
    recipe = folders.small(
        tiny_folder, epochs=4, batch=16, weighting="dwa", lr=5e-3, evaluate_rows=8
    )
    lines = logged(train(recipe, tmp_path / "run"))
    epochs = [lines[start : start + 4] for start in range(0, 16, 4)]
    means = [
        {t: np.mean([line["loss"][t] for line in own]) for t in folders.TASKS} for own in epochs
    ]
    for number, own in enumerate(epochs):
        expected = dict.fromkeys(folders.TASKS, 1.0)
        if number >= 2:
            one, two = means[number - 1], means[number - 2]
            powers = {task: math.exp(one[task] / two[task] / 2) for task in folders.TASKS}
            expected = {task: 3 * power / sum(powers.values()) for task, power in powers.items()}
            assert max(expected.values()) > 1.005, "a difference that can be seen"
        for line in own:
            assert line["weights"] == pytest.approx(expected, rel=1e-6)


# --- kept states ---------------------------------------------------------------------------------


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

    def noted(network: Network, examples: Mapping[str, Examples], **options: Any) -> Any:
        judged_from.append({own.first > 0 for own in examples.values()})
        return predict(network, examples, **options)

    monkeypatch.setattr(trainer, "predict", noted)
    told = folders.small(tiny_folder, **settings)
    kept = train(told, tmp_path / "kept")
    assert judged_from == [{True}] * 3, "two epochs and the end"
    assert calls == [(task, size) for size in (64, 16) for task in folders.TASKS]
    monkeypatch.setattr(trainer, "predict", predict)
    plain = train(told, tmp_path / "plain", overrides=["training.keep_states=false"])
    for found in (evaluate(kept.folder).scores, plain.scores["dev"]):
        for task, own in found["tasks"].items():
            known = kept.scores["dev"]["tasks"][task]
            for number in (own["metric"], "loss", "interval"):
                assert own[number] == pytest.approx(known[number], rel=1e-3), (task, number)
    for task in folders.TASKS:
        one, other = (predictions(run, task, "dev") for run in (kept, plain))
        if task != "similarity":
            assert [row["predicted"] for row in one] == [row["predicted"] for row in other]
        assert len(one) == len(other) == 16


def test_a_phase_is_gone_when_the_next_begins(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its optimiser keeps twice the weights: two of them would be in memory for nothing."""
    phases: list[weakref.ref[Phase]] = []
    alive: list[int] = []

    class Counted(Phase):
        def __init__(self, *args: Any):
            alive.append(sum(other() is not None for other in phases))
            super().__init__(*args)
            phases.append(weakref.ref(self))

    monkeypatch.setattr(trainer, "Phase", Counted)
    recipe = folders.small(tiny_folder, steps=None, phases=[{"steps": 2}] * 3, evaluate_rows=8)
    collects = gc.isenabled()
    gc.disable()  # it comes by when it likes
    try:
        train(recipe, tmp_path / "run")
    finally:
        if collects:
            gc.enable()
    assert alive == [0, 0, 0]


def test_a_phase_that_learns_has_no_kept_states_at_the_end(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = computed(monkeypatch, tmp_path / "cache")
    phases = [{"frozen": True, "epochs": 1}, {"epochs": 1}]
    run = train(folders.small(tiny_folder, phases=phases, select="last"), tmp_path / "run")
    assert len(calls) == 2 * len(folders.TASKS)
    assert evaluate(run.folder).scores == run.scores["dev"]


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
    monkeypatch.setattr("bough.training.states.frozen_states.IN_MEMORY", 0)
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


# --- judging -------------------------------------------------------------------------------------


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


def test_a_phase_whose_tasks_do_not_count_is_not_cut_short(
    tiny_folder: Path, tmp_path: Path
) -> None:
    """And what picks the model may be a task of it all the same."""
    phases = [{"tasks": ["sentiment"], "epochs": 4}, {"tasks": ["similarity"], "epochs": 1}]
    recipe = folders.small(tiny_folder, lr=1e-12, patience=1, evaluate_rows=8, phases=phases)
    assert len(judged(train(recipe, tmp_path / "run"))) == 5
    recipe["training"] |= {"select": "sentiment", "patience": None}
    told = judged(train(recipe, tmp_path / "select"))
    assert [entry["best"] for entry in told] == [True, False, False, False, False]


@pytest.mark.parametrize("select", ["raw", "normalised", "sum", "last", "similarity", "sentiment"])
def test_the_kept_model_is_the_selected_one(select: str, tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, epochs=4, lr=1e-2, warmup=0, select=select, seed=3)
    run = train(recipe, tmp_path / "run")
    told = judged(run)

    def value(scores: dict[str, Any]) -> float:
        main = {name: own[own["metric"]] for name, own in scores["tasks"].items()}
        return float(scores.get(select, main.get(select, sum(main.values()))))

    values = [value(entry["dev"]) for entry in told]
    best = len(values) - 1 if select == "last" else int(np.argmax(values))
    flags = [i for i, entry in enumerate(told) if entry["best"]]
    assert flags[-1] == best
    kept = run.scores["dev"]
    for task, own in told[best]["dev"]["tasks"].items():
        late = ("interval", "ece", "commonest")
        at_the_end = {k: v for k, v in kept["tasks"][task].items() if k in late}
        assert kept["tasks"][task] == own | at_the_end
    assert kept["raw"] == told[best]["dev"]["raw"]
    assert evaluate(run.folder).scores == kept


@pytest.mark.parametrize("display", [Lines, Panel])
def test_the_end_says_which_step_is_kept(
    display: Callable[[], Display],
    tiny_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    few = {**FEW, "evaluate_every": 1, "lr": 1e-12}
    train(folders.small(tiny_folder, **few), tmp_path / "run", display=display())
    assert capsys.readouterr().err.splitlines()[-1].strip() == "kept: step 1, of 4"
    few = few | {"heads": "fitted"}
    train(folders.small(tiny_folder, **few), tmp_path / "fitted", display=display())
    last = " ".join(capsys.readouterr().err.split()[-13:])
    assert last == "kept: step 0, of 4: the encoder as it was, with fitted heads"
    recipe = folders.small(tiny_folder, **few, select="last")
    train(recipe, tmp_path / "last", display=display())
    assert "kept" not in capsys.readouterr().err


def test_evaluation_on_a_sample_and_at_steps(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, steps=7, evaluate_every=3, evaluate_rows=9)
    run = train(recipe, tmp_path / "run")
    assert [entry["step"] for entry in judged(run)] == [3, 6, 7]
    assert {own["rows"] for e in judged(run) for own in e["dev"]["tasks"].values()} == {9}
    assert {own["rows"] for own in run.scores["dev"]["tasks"].values()} == {16}


# --- what is left behind -------------------------------------------------------------------------


def test_what_a_finished_run_holds(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, epochs=1, plan="split@1")
    rows = tiny_folder.parent / "rows"
    recipe["tasks"]["sentiment"] = recipe["tasks"]["sentiment"] | {"test": "sentiment-dev.csv"}
    run = train(recipe, tmp_path / "run")
    assert run.finished
    told = Recipe.read(recipe | {"precision": "fp32"})
    tasks = {
        n: t.model_copy(update={"pooling": "pooler"} | ({"pair": "joint"} if t.paired else {}))
        for n, t in Data.gather(told).tasks.items()
    }
    known = told.model_copy(update={"tasks": tasks})  # the tiny encoder has a pooler
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
    cost, model = run.cost, load_torch(run.folder)
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


def test_the_model_is_calibrated_at_the_end(tiny_folder: Path, tmp_path: Path) -> None:
    """Scores are those of the same run without it, and the temperature goes with the model."""
    recipe = folders.small(tiny_folder, steps=6, lr=1e-2)
    run = train(recipe, tmp_path / "run")
    plain = train(
        recipe,
        tmp_path / "plain",
        ["tasks.sentiment.temperature=1", "tasks.questions.temperature=1"],
    )
    model = load_torch(run)
    for name in ("sentiment", "questions"):
        fitted, given = (r.scores["dev"]["tasks"][name] for r in (run, plain))
        known = model.facts["calibration"][name]
        assert known["ece_before"] == pytest.approx(given.pop("ece"), abs=1e-6)
        assert known["ece"] == fitted.pop("ece")
        assert fitted == given
        assert model.tasks[name].temperature == known["temperature"] != 1
        assert load_torch(plain).tasks[name].temperature == 1
    assert model.tasks["similarity"].temperature is None
    assert Recipe.read(run.recipe_file).tasks["sentiment"].temperature is None, "as it was asked"
    assert evaluate(run).scores == run.scores["dev"]
    assert load_torch(plain).facts["calibration"] == {}
    card = (run.model / "README.md").read_text()
    assert "| task | temperature | ECE before | ECE, as it is here |" in card
    assert "were fitted to the dev rows" in card
    alone = model.only("sentiment")
    assert alone.facts["calibration"].keys() == {"sentiment"}
    text = "A fine film."
    assert alone.predict(text)["sentiment"].score == pytest.approx(
        model.predict(text)["sentiment"].score, abs=1e-6
    )


def test_a_model_from_before_has_no_temperature(tiny_folder: Path, tmp_path: Path) -> None:
    run = train(folders.small(tiny_folder, **FEW), tmp_path / "run")
    file = run.model / "config.json"
    content = json.loads(file.read_text())
    for task in content["tasks"].values():
        del task["temperature"]
    del content["facts"]["calibration"]
    file.write_text(json.dumps(content))
    model = load_torch(run)
    assert {task.temperature for task in model.tasks.values()} == {None}
    assert model.predict("A fine film.")["sentiment"].label


def test_a_loss_that_explodes_is_said(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "is far above what knowing nothing costs: the learning rate is too high"
    recipe = folders.small(tiny_folder, ("sentiment",), steps=40, warmup=0, evaluate_rows=8)
    train(recipe, tmp_path / "fine", ["training.lr=1e-3"], Lines())
    assert said not in capsys.readouterr().err
    train(recipe, tmp_path / "wild", ["training.lr=3"], Lines())
    told = capsys.readouterr().err
    assert told.count(said) == 1
    assert "lower training.lr (3)" in told


def test_classes_are_called_by_their_names(tiny_folder: Path, tmp_path: Path) -> None:
    """In answers, predictions, the card and exports; the files say 0 and 1."""
    given = [("A fine film.", 0), ("Not for me.", 1)] * 4
    recipe = folders.small(tiny_folder, ("sentiment",), **FEW)
    named = {"train": given, "dev": given, "labels": {0: "praise", 1: "blame"}}
    recipe["tasks"] = {"sentiment": recipe["tasks"]["sentiment"] | named}
    run = train(recipe, tmp_path / "run")
    model = load_torch(run)
    assert (model.predict("A fine film.")["sentiment"].probabilities or {}).keys() == {
        "praise",
        "blame",
    }
    lines = (run.folder / "predictions" / "sentiment-dev.csv").read_text().splitlines()
    assert lines[0] == "id,label,predicted,p(praise),p(blame)"
    assert lines[1].split(",")[1] == "praise"
    assert "one of 2: praise, blame" in (run.model / "README.md").read_text()
    assert evaluate(model, [("Fine.", 1), ("Fine.", "praise")]).confusion["sentiment"].sum() == 2
    assert evaluate(run).scores == run.scores["dev"]
    from bough.export.transformers_export import write_checkpoint

    (tmp_path / "out").mkdir()
    write_checkpoint(model, tmp_path / "out", "sentiment")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["id2label"] == {"0": "praise", "1": "blame"}


def test_a_mistyped_plan_is_said_before_the_data_is_read(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("the data is read")

    monkeypatch.setattr(Data, "gather", read)
    with pytest.raises(UserError, match="the nearest plan that works"):
        train(folders.small(tiny_folder, plan="splat@1"), tmp_path / "run")
    with pytest.raises(AssertionError, match="the data is read"):
        train(folders.small(tiny_folder, plan="split@1"), tmp_path / "run")
