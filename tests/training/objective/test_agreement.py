"""Distances between answers, each beside its formula."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bough.model.losses import loss
from bough.recipe.tasks import Task
from bough.training.objective.agreement import disagreement, distance, soft_answers
from tests import tiny

TASKS = {
    "ce": tiny.task(loss="ce"),
    "bce": tiny.task(labels=("no", "yes"), loss="bce"),
    "ordinal": tiny.task(loss="ordinal"),
    "share": tiny.task(labels=("no", "yes"), loss="mse"),
    "mse": tiny.task(number=True),
    "mae": tiny.task(number=True, loss="mae"),
    "huber": tiny.task(number=True, loss="huber"),
}


def outputs(task: Task, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(7, task.outputs, generator=generator)
    in_between = task.kind == "regress" or task.loss_name == "mse"
    return made.sigmoid() if in_between else made


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_nothing_is_nearer_than_the_teacher_itself(name: str, temperature: float) -> None:
    """Its own outputs are at distance 0, and a small step along the gradient leads there."""
    task = TASKS[name]
    teacher, student = outputs(task, 0), outputs(task, 1).requires_grad_()
    if name == "ordinal":  # chances that do not fall are set right in the answer
        teacher = teacher.sort(1, descending=True).values
    taught = soft_answers(task, teacher)
    assert float(distance(task, teacher, taught, temperature)) == pytest.approx(0, abs=1e-6)
    far = distance(task, student, taught, temperature)
    assert far.item() > 1e-3
    far.backward()
    assert student.grad is not None
    nearer = distance(task, student - 0.1 * student.grad, taught, temperature)
    assert nearer.item() < far.item()


def test_it_is_hintons_formula() -> None:
    """T^2 sum q log(q / p), q and p the softmax of the logits over T."""
    teacher, student, t = outputs(TASKS["ce"], 0), outputs(TASKS["ce"], 1), 2.5
    total = 0.0
    for z, y in zip(teacher.tolist(), student.tolist(), strict=True):
        q = [math.exp(v / t) for v in z]
        p = [math.exp(v / t) for v in y]
        for a, b in zip(q, p, strict=True):
            share = a / sum(q)
            total += share * math.log(share / (b / sum(p)))
    found = distance(TASKS["ce"], student, soft_answers(TASKS["ce"], teacher), t)
    assert float(found) == pytest.approx(t * t * total / 7, rel=1e-5)


def test_two_classes_by_one_logit_are_two_classes_by_two() -> None:
    one, two = TASKS["bce"], tiny.task(labels=("no", "yes"), loss="ce")
    teacher, student = outputs(one, 0), outputs(one, 1)
    as_two = torch.cat([torch.zeros_like(student), student], 1)
    taught = soft_answers(one, teacher)
    torch.testing.assert_close(
        distance(one, student, taught, 2.0), distance(two, as_two, taught, 2.0)
    )


def test_thresholds_are_taught_one_by_one() -> None:
    """Of three classes: the chance of more than the first, and of more than the second."""
    task = TASKS["ordinal"]
    taught = torch.tensor([[0.2, 0.5, 0.3]])
    student = torch.tensor([[0.4, -1.0]])
    expected = 0.0
    for above, logit in ((0.8, 0.4), (0.3, -1.0)):
        p = 1 / (1 + math.exp(-logit))
        expected += above * math.log(above / p) + (1 - above) * math.log((1 - above) / (1 - p))
    assert float(distance(task, student, taught)) == pytest.approx(expected / 2, rel=1e-5)


@pytest.mark.parametrize("name", ["mse", "mae", "huber"])
def test_numbers_have_the_tasks_own_loss(name: str) -> None:
    task = TASKS[name]
    taught = torch.linspace(0, 5, 7)[:, None]
    expected = loss(task, outputs(task, 1), taught[:, 0])
    torch.testing.assert_close(distance(task, outputs(task, 1), taught, 4.0), expected)


def test_disagreement_is_the_mean_of_both_directions() -> None:
    task = TASKS["ce"]
    one, other = outputs(task, 0), outputs(task, 1)
    p, q = one.softmax(1), other.softmax(1)
    both = (p * (p / q).log()).sum(1) + (q * (q / p).log()).sum(1)
    torch.testing.assert_close(disagreement(task, one, other), both.mean() / 2)
    assert float(disagreement(task, one, one)) == 0
    number = TASKS["mse"]
    a, b = outputs(number, 0), outputs(number, 1)
    torch.testing.assert_close(disagreement(number, a, b), ((a - b) ** 2).mean())
    two = TASKS["bce"]
    a, b = outputs(two, 0), outputs(two, 1)
    as_two = [torch.cat([torch.zeros_like(z), z], 1) for z in (a, b)]
    wide = tiny.task(labels=("no", "yes"), loss="ce")
    torch.testing.assert_close(disagreement(two, a, b), disagreement(wide, *as_two))
