"""R-Drop and SMART beside their printed formulas."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bough.data.loader import Loader
from bough.data.packing import collate
from bough.errors import UserError
from bough.model.losses import loss
from bough.recipe.training import Training
from bough.training.objective.objective import Objective
from bough.training.objective.smoothness import MovedEmbeddings, r_drop, smart
from bough.training.step import Stepper
from bough.training.train import resume, train
from tests import folders, tiny
from tests.finished import FEW, final
from tests.same import assert_same_run

TASKS = {"single": tiny.task(loss="ce"), "twin": tiny.task(twin=True, number=True)}


def kl(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def test_r_drop_by_hand() -> None:
    """(CE(P1) + CE(P2)) / 2 + alpha (KL(P1, P2) + KL(P2, P1)) / 2."""
    one, other = torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([[0.5, 0.5, -2.0]])
    p, q = one.softmax(1)[0].tolist(), other.softmax(1)[0].tolist()
    losses = [{"single": loss(TASKS["single"], z, torch.tensor([1]))} for z in (one, other)]
    found = r_drop(TASKS, losses, [{"single": one}, {"single": other}], 0.7)["single"]
    expected = -(math.log(p[1]) + math.log(q[1])) / 2 + 0.7 * (kl(p, q) + kl(q, p)) / 2
    assert float(found) == pytest.approx(expected, rel=1e-5)


class Linear(nn.Module):
    """A network whose embeddings are its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Identity()
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(4, 5, generator=generator)
        self.w = torch.randn(5, 3, generator=generator)

    def forward(self) -> dict[str, Tensor]:
        return {"single": self.embeddings(self.x) @ self.w}


def test_the_embeddings_move_to_where_answers_change_most() -> None:
    """Projected onto the box after a long step along the gradient, its scale each token's own; and
    no move of the same size, by chance, changes as much."""
    network, radius = Linear(), 0.01
    moved = MovedEmbeddings([network.embeddings], radius, torch.Generator().manual_seed(1))
    start = radius * torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    clean = network()
    found = float(smart(TASKS, clean, network, moved)["single"])
    x = start.clone().requires_grad_()
    p = clean["single"].log_softmax(1)
    q = ((network.x + x) @ network.w).log_softmax(1)
    (gradient,) = torch.autograd.grad(both(p, q), x)
    step = 100 * radius * gradient / gradient.abs().amax(1, keepdim=True)
    worst = (start + step).clamp(-radius, radius)
    (noise,) = moved.noise
    torch.testing.assert_close(noise, worst)
    q = ((network.x + worst) @ network.w).log_softmax(1)
    assert found == pytest.approx(float(both(p, q)), rel=1e-4)
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        signs = radius * (2.0 * torch.randint(0, 2, (4, 5), generator=generator) - 1)
        q = ((network.x + signs) @ network.w).log_softmax(1)
        assert float(both(p, q)) <= 1.001 * found


def both(p: Tensor, q: Tensor) -> Tensor:
    """KL(p, q) + KL(q, p), the mean over examples."""
    return ((p.exp() * (p - q)).sum(1) + (q.exp() * (q - p)).sum(1)).mean()


def test_what_is_kept_cannot_be_moved() -> None:
    with pytest.raises(UserError, match=r"training\.smart moves the embeddings"):
        smart(TASKS, Linear()(), Linear(), MovedEmbeddings([], 0.1, torch.Generator()))


def stepper(**training: Any) -> tuple[Stepper, Loader]:
    examples = {name: tiny.examples()[name] for name in TASKS}
    settings = Training(**{"lr": 1e-3, "clip": None, **training})
    network = tiny.network("split@1", TASKS, stir=0.1)
    chosen = {name: np.arange(3) for name in TASKS}
    return Stepper(network, examples, settings, dict.fromkeys(TASKS, 1.0), [3]), Loader(
        examples, lambda: chosen
    )


def test_steps_with_them_cost_more_than_plain_ones() -> None:
    plain = sum(_losses().values())
    assert sum(_losses(r_drop=5.0).values()) > plain
    assert sum(_losses(smart={"weight": 100.0, "radius": 0.1}).values()) > plain


def _losses(**training: Any) -> dict[str, float]:
    made, loader = stepper(**training)
    return made.step(loader, 1e-3).losses


def test_without_dropout_r_drop_changes_nothing() -> None:
    tasks = {"single": TASKS["single"].model_copy(update={"dropout": 0.0})}
    examples = {"single": tiny.examples()["single"]}
    outputs = {"single": torch.randn(3, 3)}
    batch_losses = []
    for alpha in (0.0, 4.0):
        training = Training(r_drop=alpha)
        objective = Objective(tasks, examples, training)
        batch = collate(examples, {"single": np.arange(3)})
        found = objective.losses(lambda: outputs, batch, torch.Generator())
        batch_losses.append(found["single"])
    torch.testing.assert_close(*batch_losses)


def test_the_moved_pass_drops_the_same_units() -> None:
    """So that with no move at all the answers are the same, whatever the dropout."""
    made, loader = stepper(dropout=0.5, smart={"weight": 1e6, "radius": 1e-12})
    plain, other = stepper(dropout=0.5)
    assert made.step(loader, 1e-3).losses == pytest.approx(plain.step(other, 1e-3).losses, rel=1e-3)


@pytest.mark.parametrize("accumulate", [1, 2])  # 2: parts of two examples and of one
def test_where_nothing_moved_a_look_back_sees_what_was_before(accumulate: int) -> None:
    made, _ = stepper(dropout=0.5, weighting="famo", smart={"weight": 1.0, "radius": 0.1})
    examples = {name: tiny.examples()[name] for name in TASKS}
    loader = Loader(examples, lambda: {n: np.arange(3) for n in TASKS}, accumulate=accumulate)
    seen: list[Any] = []
    made.weighting.learn = lambda *both: seen.extend(both)  # type: ignore[method-assign]
    made.step(loader, 0.0)
    before, after = seen
    assert after == pytest.approx(before, rel=1e-5)


@pytest.mark.parametrize(
    "key", [{"r_drop": 1.0}, {"smart": {"weight": 1.0, "radius": 0.05}}, {"swa": 0.6}]
)
def test_runs_with_them_are_resumed_bit_for_bit(
    key: dict[str, Any], tiny_folder: Path, tmp_path: Path
) -> None:
    recipe = folders.small(
        tiny_folder, ("sentiment", "similarity"), **{**FEW, "evaluate_every": 2, **key}
    )
    whole = train(recipe, tmp_path / "whole")
    plain = folders.small(tiny_folder, ("sentiment", "similarity"), **{**FEW, "evaluate_every": 2})
    other = train(plain, tmp_path / "plain")
    weights = zip(final(whole).values(), final(other).values(), strict=True)
    assert all(torch.equal(one, two) for one, two in weights) == ("swa" in key)

    class Stop(Exception):
        pass

    class Stopping:
        steps = 0

        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: None

        def step(self, moment: object) -> None:
            self.steps += 1
            if self.steps == 4:
                raise Stop

    with pytest.raises(Stop):
        train(recipe, tmp_path / "stopped", display=Stopping())
    assert_same_run(whole, resume(tmp_path / "stopped"))
