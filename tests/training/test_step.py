"""One step: what reaches the optimizer is each method's own formula on plain gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchjd.aggregation as jd
import torchjd.scalarization as scalarization
from torch import Tensor, nn

from bough.data.examples import Examples, examples_of
from bough.data.loader import Loader, MicroBatch, row_groups
from bough.data.packing import TOKENS, collate
from bough.data.tokens import Ints
from bough.model.losses import loss
from bough.recipe import methods
from bough.recipe.training import Training
from bough.training.step import NotFiniteError, Stepper
from bough.training.train import train
from tests import folders, tiny
from tests.finished import FEW, final, fresh, logged, moved

TEXTS: list[tuple[str, ...]] = [
    ("the old tree",), ("is green and the leaf was not bright",), ("who",), ("a bough",),
    ("one root or under two",), ("what is very good",),
]  # fmt: skip
# Of the same texts c says the contrary of b, with the same head at first: surely a conflict.
LABELS = {"a": [0, 1, 1, 0, 1, 1], "b": [1, 1, 0, 0, 1, 0], "c": [0, 0, 1, 1, 0, 1]}
TASK = tiny.task(labels=("x", "y"), dropout=0)
CHOSEN = {"a": np.array([0, 1, 2, 3]), "b": np.array([1, 4, 5]), "c": np.array([4, 5, 1, 0])}
PLAN = "split@1/b+c"  # all share the words and a layer, b and c another


def examples() -> dict[str, Examples]:
    words = tiny.tokenizer()
    return {
        name: Examples.of(TASK, tiny.rows(TEXTS, labels), words, 40)
        for name, labels in LABELS.items()
    }


class Watched(Stepper):
    """A step whose combined gradients can be seen, just before the weights move."""

    def __init__(self, weights: Mapping[str, float] | None = None, **training: Any):
        tasks = dict.fromkeys(LABELS, TASK)
        network = tiny.network(PLAN, tasks, stir=0.1)
        network.cells["head/c"].load_state_dict(network.cells["head/b"].state_dict())
        settings = Training(**{"dropout": 0.0, "clip": None, "lr": 1e-2} | training)
        weights = dict.fromkeys(tasks, 1.0) if weights is None else weights
        self.examples = examples()
        super().__init__(network, self.examples, settings, weights, [3])
        self.gradients: dict[nn.Parameter, Tensor] = {}
        self.optimizer.register_step_pre_hook(self._look)

    def _look(self, *_: Any) -> None:
        learning = [p for p in self.parameters if p.grad is not None]
        self.gradients = {p: p.grad.detach().clone() for p in learning if p.grad is not None}

    def once(self, chosen: Mapping[str, Ints] = CHOSEN, lr: float = 1e-2, parts: int = 1) -> Any:
        return self.step(Loader(self.examples, lambda: chosen, parts), lr)

    def losses(self, chosen: Mapping[str, Ints] = CHOSEN) -> dict[str, Tensor]:
        """By a plain pass over each task's examples."""
        out = {}
        for name, numbers in chosen.items():
            batch = collate(self.examples, {name: numbers})
            outputs = self.network(batch.pack, batch.index)[name]
            out[name] = loss(self.network.tasks[name], outputs, batch.targets[name])
        return out

    def jacobian(self, parameters: Sequence[nn.Parameter], tasks: Sequence[str]) -> Tensor:
        """Each task's plain gradient, one row per task, by autograd."""
        losses = self.losses({task: CHOSEN[task] for task in tasks})
        return torch.stack([flat(torch.autograd.grad(losses[t], parameters)) for t in tasks])

    def seen(self, parameters: Sequence[nn.Parameter]) -> Tensor:
        return flat([self.gradients[p] for p in parameters])


def flat(gradients: Sequence[Tensor]) -> Tensor:
    return torch.cat([g.to_dense().flatten() for g in gradients]).double()


# --- rows that several tasks have labels for ----------------------------------------------------

# Of a row without a label a task has no example: b has none in the first, c none in the last two.
SHARED = {"a": LABELS["a"], "b": LABELS["b"][1:], "c": LABELS["c"][:-2]}


def shared() -> dict[str, Examples]:
    """The same texts as one table, some of its label cells empty."""
    lines = {"a": range(6), "b": range(1, 6), "c": range(4)}
    rows = {
        name: replace(tiny.rows([TEXTS[i] for i in lines[name]], labels), lines=[*lines[name]])
        for name, labels in SHARED.items()
    }
    return examples_of(dict.fromkeys(SHARED, TASK), rows, tiny.tokenizer(), 40)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("method", ["sum", "pcgrad", "mgda", "upgrad"])
def test_a_table_of_several_tasks_is_passed_once_and_learned_like_tasks_apart(
    method: str, parts: int
) -> None:
    """The same rows as one table, and as three sets of their own: the same gradients."""
    table, apart = Watched(combine=method), Watched(combine=method)
    table.examples = shared()
    rows = np.array([0, 5, 2, 3])
    groups = row_groups(table.examples)
    assert list(groups) == ["a+b+c"]
    result = table.step(Loader(table.examples, lambda: {"a+b+c": rows}, parts), 1e-2)
    chosen = {"a": rows, "b": rows[rows > 0], "c": rows[rows < 4]}
    expected = apart.once(chosen, parts=1)
    assert result.losses == pytest.approx(expected.losses, rel=1e-5)
    assert table.gradients.keys() != {}
    for mine, theirs in zip(table.parameters, apart.parameters, strict=True):
        assert (mine in table.gradients) == (theirs in apart.gradients)
        if mine in table.gradients:
            torch.testing.assert_close(
                table.gradients[mine], apart.gradients[theirs], rtol=1e-4, atol=1e-6
            )
    assert result.tokens == sum(len(text.split()) + 2 for (text,) in (TEXTS[i] for i in rows))


# --- combine --------------------------------------------------------------------------------------

AGGREGATORS: dict[str, Callable[[], Callable[[Tensor], Tensor]]] = {
    "sum": jd.Sum,
    "mean": jd.Mean,
    "random": jd.Random,
    "pcgrad": jd.PCGrad,
    "gradvac": jd.GradVac,
    "cagrad": lambda: jd.CAGrad(0.4),
    "mgda": jd.MGDA,
    "imtl-g": jd.IMTLG,
    "aligned-mtl": jd.AlignedMTL,
    "upgrad": jd.UPGrad,
    "dualproj": jd.DualProj,
    "fairgrad": lambda: jd.FairGrad(1.0),
}
SOLVERS = {"cagrad": ("cvxpy", "clarabel"), "upgrad": ("quadprog",), "dualproj": ("quadprog",)}


@pytest.mark.parametrize("method", methods.COMBINATIONS)
def test_every_combination_is_torchjds_of_the_plain_gradients(method: str) -> None:
    for solver in SOLVERS.get(method, ()):
        pytest.importorskip(solver)
    weights = {"a": 1.0, "b": 5.0, "c": 1.0}  # with a loud task, a mean would hurt the others
    stepper = Watched(weights, combine=method)
    groups = stepper.combiner.groups
    theirs = [AGGREGATORS[method]() for _ in groups]
    conflicts = 0
    other = {"mean": 0.0, "sum": 0.0}  # how far the result is from these, at the most
    for _ in range(3):
        before = [
            stepper.jacobian(group.parameters, group.users)
            * torch.tensor([[weights[task]] for task in group.users])
            for group in groups
        ]
        conflicts += sum(int(((rows @ rows.T) < 0).any()) for rows in before)
        with torch.random.fork_rng():
            torch.random.set_rng_state(stepper.order.get_state())  # they draw from the global one
            expected = [
                rows[0] if len(rows) == 1 else theirs[i](rows) for i, rows in enumerate(before)
            ]
        result = stepper.once()
        if method != "sum":  # which takes all tasks' gradients at once
            assert set(result.coefficients) == {"a+b+c", "b+c"}
        for group, rows, wanted in zip(groups, before, expected, strict=True):
            error = (stepper.seen(group.parameters) - wanted).norm() / rows.norm()
            assert float(error) < 1e-3, group.name
            if len(rows) > 1:
                for name, plain in (("mean", rows.mean(0)), ("sum", rows.sum(0))):
                    other[name] = max(other[name], float((plain - wanted).norm() / rows.norm()))
    assert conflicts, "or the test does not see what the method is for"
    assert {name for name, most in other.items() if most < 1e-2} <= {method}


def test_the_gradients_are_of_the_weighted_losses() -> None:
    stepper = Watched({"a": 1.0, "b": 0.25, "c": 3.0}, combine="mean")
    shared = next(g for g in stepper.combiner.groups if len(g.users) == 3)
    rows = stepper.jacobian(shared.parameters, "abc")
    stepper.once()
    wanted = (rows[0] + 0.25 * rows[1] + 3 * rows[2]) / 3
    torch.testing.assert_close(stepper.seen(shared.parameters), wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("method", ["sum", "pcgrad"])
def test_parts_are_one_step(method: str) -> None:
    """Accumulated in uneven parts: the gradients, losses and tokens of the whole."""
    one, other = Watched(combine=method), Watched(combine=method)
    whole, parts = one.once(), other.once(parts=3)
    assert parts.losses == pytest.approx(whole.losses, rel=1e-5)
    assert parts.tokens == whole.tokens
    assert parts.norm == pytest.approx(whole.norm, rel=1e-4)
    torch.testing.assert_close(
        other.seen(other.parameters), one.seen(one.parameters), atol=1e-5, rtol=1e-4
    )


class OneByOne(Watched):
    """Too many tokens for one pass; counts the passes that are in memory together."""

    most_alive = 0

    def __init__(self, **training: Any):
        super().__init__(**training)
        assert self.most_tokens is None or self.most_tokens == TOKENS
        self.most_tokens = self.most_tokens and 1

    def _forward(self, part: MicroBatch, dropout: torch.Generator) -> dict[str, Tensor]:
        self.most_alive = max(self.most_alive, len(part.own))
        return super()._forward(part, dropout)


@pytest.mark.parametrize("weighting", ["static", "random", "dwa", "geometric"])
@pytest.mark.parametrize("method", ["sum", "pcgrad"])
def test_a_step_of_many_tokens_takes_one_task_after_the_other(method: str, weighting: str) -> None:
    """With the gradients, losses and tokens of the whole; but together where a task's weight hangs
    on the others' losses."""
    settings: dict[str, Any] = {"combine": method, "weighting": weighting}
    one, other = Watched(**settings), OneByOne(**settings)
    whole, parts = one.once(), other.once()
    assert other.most_alive == (1 if weighting in ("static", "random") else 3)
    assert parts.losses == pytest.approx(whole.losses, rel=1e-5)
    assert list(parts.losses) == list(whole.losses)
    assert parts.weights == pytest.approx(whole.weights)
    assert parts.tokens == whole.tokens
    torch.testing.assert_close(
        other.seen(other.parameters), one.seen(one.parameters), atol=1e-5, rtol=1e-4
    )


def test_cosines_are_those_of_the_plain_gradients() -> None:
    stepper = Watched()
    layer = stepper.shared["layer 1"]
    rows = stepper.jacobian(layer, "abc")
    unit = rows / rows.norm(dim=1, keepdim=True)
    loader = Loader(stepper.examples, lambda: CHOSEN)
    assert stepper.step(loader, 1e-2).cosines is None
    stepper = Watched()
    cosines = stepper.step(Loader(stepper.examples, lambda: CHOSEN), 1e-2, cosines=True).cosines
    assert cosines is not None
    assert set(cosines) == {"embeddings", "layer 1", "layer 2", "pooler"}
    assert set(cosines["layer 2"]) == {"b+c"}
    expected = {f"{x}+{y}": float(unit["abc".index(x)] @ unit["abc".index(y)])
                for x, y in ("ab", "ac", "bc")}  # fmt: skip
    assert cosines["layer 1"] == pytest.approx(expected, abs=1e-4)


# --- weigh ----------------------------------------------------------------------------------------

SCALARIZERS: dict[str, Callable[[], Any]] = {
    "static": scalarization.Sum,
    "uncertainty": lambda: scalarization.UW(3),
    "imtl-l": lambda: scalarization.IMTLL(3),
    "dwa": lambda: scalarization.DWA(2.0),
    "famo": lambda: scalarization.FAMO(3),
    "geometric": scalarization.GeometricMean,
    "tchebycheff": lambda: scalarization.STCH(0.1),
    "random": scalarization.Random,
}


@pytest.mark.parametrize("method", methods.WEIGHTINGS)
def test_every_weighting_is_torchjds_over_several_steps(method: str) -> None:
    """Its gradient is the one that moves the model, and its own numbers learn as theirs do."""
    stepper, theirs = Watched(weighting=method), SCALARIZERS[method]()
    learned = list(theirs.parameters()) if method in ("uncertainty", "imtl-l") else []
    adam = torch.optim.Adam(learned, lr=0.025) if learned else None
    factors = []
    for number in range(1, 7):
        losses = torch.stack(list(stepper.losses().values()))
        with torch.random.fork_rng():
            torch.random.set_rng_state(stepper.order.get_state())
            total = theirs(losses)
        slopes = torch.autograd.grad(total, [losses, *stepper.parameters, *learned])
        result = stepper.once()
        for parameter, slope in zip(learned, slopes[1 + len(stepper.parameters) :], strict=True):
            parameter.grad = slope
        factors.append(list(result.weights.values()))
        assert factors[-1] == pytest.approx(slopes[0].tolist(), rel=1e-3)
        wanted = flat(slopes[1 : 1 + len(stepper.parameters)])
        torch.testing.assert_close(
            stepper.seen(stepper.parameters), wanted, atol=1e-3 * float(wanted.norm()), rtol=1e-3
        )
        if adam is not None:
            adam.step()
        if method == "famo":
            with torch.no_grad():
                theirs.update(torch.stack(list(stepper.losses().values())))
        if number % 2 == 0:
            stepper.weighting.close_epoch()
            if method == "dwa":
                theirs.step()
    assert (len({tuple(own) for own in factors}) > 1) == (method != "static")


@pytest.mark.parametrize("combine", ["sum", "pcgrad"])
def test_famo_looks_again_with_the_same_dropout(
    combine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the same examples: where nothing moved, it sees the same losses."""
    stepper = Watched(weighting="famo", combine=combine, dropout=0.3)
    looks: list[Mapping[str, float]] = []
    learn = stepper.weighting.learn

    def looked(losses: Mapping[str, float], after: Mapping[str, float]) -> None:
        looks.append(after)
        learn(losses, after)

    monkeypatch.setattr(stepper.weighting, "learn", looked)
    for lr in (0.0, 1e-2):
        before = stepper.once(lr=lr, parts=2).losses
        after = looks.pop()
        same = after == pytest.approx(before, rel=1e-5)
        assert same == (lr == 0.0), (after, before)


# --- clip and move --------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 3])
def test_the_gradient_is_clipped_and_told_as_it_was(parts: int) -> None:
    """The whole step's, and not each part's."""
    free, clipped = Watched(), Watched(clip=0.01)
    norm = float(free.seen(free.parameters).norm()) if free.once(parts=parts) else math.nan
    result = clipped.once(parts=parts)
    assert result.norm == pytest.approx(norm, rel=1e-5)
    torch.testing.assert_close(
        clipped.seen(clipped.parameters), free.seen(free.parameters) * 0.01 / norm
    )


def test_the_step_is_adamws() -> None:
    stepper = Watched(decay=0.1)
    copies = [nn.Parameter(p.detach().clone()) for p in stepper.parameters]
    groups = [
        {"params": [c for c in copies if (c.ndim > 1) == decays], "weight_decay": 0.1 * decays}
        for decays in (True, False)
    ]
    adam = torch.optim.AdamW(groups, lr=1e-2)
    for lr in (1e-2, 3e-3, 7e-3):
        stepper.once(lr=lr)
        for copy, parameter in zip(copies, stepper.parameters, strict=True):
            copy.grad = stepper.gradients[parameter]
        for group in adam.param_groups:
            group["lr"] = lr
        adam.step()
        for copy, parameter in zip(copies, stepper.parameters, strict=True):
            torch.testing.assert_close(parameter, copy, atol=1e-6, rtol=1e-5)


def test_the_average_follows_every_step() -> None:
    stepper = Watched(ema=0.5)
    assert stepper.average is not None
    mean = stepper.parameters[0].detach().clone()
    for n in range(3):
        stepper.once()
        keep = min(0.5, (1 + n) / (10 + n))
        mean = keep * mean + (1 - keep) * stepper.parameters[0].detach()
    torch.testing.assert_close(stepper.average.means[0], mean)


@pytest.mark.parametrize("method", ["sum", "pcgrad"])
def test_what_is_no_number_moves_nothing(method: str) -> None:
    stepper = Watched(combine=method)
    with torch.no_grad():
        stepper.network.cells["head/b"].get_parameter("output.bias")[0] = math.nan
    before = [p.detach().clone() for p in stepper.parameters]
    with pytest.raises(NotFiniteError, match="the loss of b"):
        stepper.once()
    for parameter, old in zip(stepper.parameters, before, strict=True):
        assert torch.equal(parameter.nan_to_num(), old.nan_to_num())
        assert parameter.grad is None


def test_a_restored_step_goes_on_bit_for_bit() -> None:
    settings: dict[str, Any] = {
        "combine": "gradvac", "weighting": "famo", "dropout": 0.2, "ema": 0.9
    }  # fmt: skip
    whole, first, second = (Watched(**settings) for _ in range(3))
    results = [whole.once() for _ in range(4)]
    for _ in range(2):
        first.once()
    second.restore(first.state())
    assert [second.once() for _ in range(2)] == results[2:]
    for one, other in zip(whole.parameters, second.parameters, strict=True):
        assert torch.equal(one, other)


# --- seen from a whole run ------------------------------------------------------------------------


def test_the_coefficients_are_logged(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, **FEW, combine="mgda", plan="split@1/questions+similarity")
    for line in logged(train(recipe, tmp_path / "run")):
        groups = line["coefficients"]
        assert set(groups) == {"sentiment+questions+similarity", "questions+similarity"}
        for group, own in groups.items():
            assert set(own) == set(group.split("+"))
            assert sum(own.values()) == pytest.approx(1, abs=1e-4)


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
    steps = {round(value * 1e3, 2) for value in most.values()}
    assert steps == {0.25, 0.5, 1.0, 3.0, 7.0}, most


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


def test_half_precision(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, **FEW) | {"precision": "bf16"}
    full = recipe | {"precision": "fp32"}
    half, whole = train(recipe, tmp_path / "half"), train(full, tmp_path / "whole")
    for a, b in zip(logged(half), logged(whole), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=0.05)
        assert a["loss"] != b["loss"]
