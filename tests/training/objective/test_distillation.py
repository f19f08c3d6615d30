"""Labels and teachers, mixed and annealed, beside a computation by hand."""

from __future__ import annotations

import pytest
import torch

from bough.model.losses import loss
from bough.recipe.training import Distil
from bough.training.objective.agreement import distance
from bough.training.objective.distillation import mixed_loss, teacher_share
from tests import tiny

TASK = tiny.task(loss="ce", smoothing=0.1)
OUTPUTS = torch.tensor([[0.5, -1.0, 0.2], [0.0, 0.3, 0.1], [2.0, 0.0, -2.0]])
TARGETS = torch.tensor([0, 2, 1])
TAUGHT = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]])
ALL = torch.tensor([True, True, True])


def test_annealing_goes_from_the_teacher_to_the_label() -> None:
    distil = Distil(weight=0.8)
    shares = [teacher_share(distil, done / 4) for done in range(5)]
    assert shares == pytest.approx([0.8, 0.6, 0.4, 0.2, 0.0])
    assert teacher_share(Distil(weight=0.8, anneal=False), 0.7) == 0.8


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_loss_is_a_mixture(share: float) -> None:
    weights = torch.tensor([2.0, 1.0, 0.5])
    label = loss(TASK, OUTPUTS, TARGETS, weights)
    teacher = distance(TASK, OUTPUTS, TAUGHT, 2.0)
    found = mixed_loss(TASK, OUTPUTS, TARGETS, TAUGHT, ALL, share, 2.0, weights)
    torch.testing.assert_close(found, (1 - share) * label + share * teacher)


def test_by_hand() -> None:
    """-(1 - w) log p[y] + w sum q log(q / p), of each example, and the mean of them."""
    p, w = OUTPUTS.softmax(1), 0.4
    plain = tiny.task(loss="ce")
    each = [
        -(1 - w) * p[i, TARGETS[i]].log() + w * (TAUGHT[i] * (TAUGHT[i] / p[i]).log()).sum()
        for i in range(3)
    ]
    found = mixed_loss(plain, OUTPUTS, TARGETS, TAUGHT, ALL, w)
    torch.testing.assert_close(found, torch.stack(each).mean())


def test_its_gradient_is_that_of_mixed_targets() -> None:
    """As BAM! prints it: one target, w of the teacher's and the rest the label."""
    plain, w = tiny.task(loss="ce"), 0.4
    target = w * TAUGHT + (1 - w) * torch.eye(3)[TARGETS]
    gradients = []
    for mixed in (True, False):
        z = OUTPUTS.clone().requires_grad_()
        if mixed:
            value = -(target * z.log_softmax(1)).sum(1).mean()
        else:
            value = mixed_loss(plain, z, TARGETS, TAUGHT, ALL, w)
        value.backward()
        assert z.grad is not None
        gradients.append(z.grad)
    torch.testing.assert_close(*gradients)


def test_a_text_without_a_label_has_the_teachers_part_only() -> None:
    some = torch.tensor([True, False, True])
    label = loss(TASK, OUTPUTS[some], TARGETS[some])
    expected = 0.6 * label * 2 / 3 + 0.4 * distance(TASK, OUTPUTS, TAUGHT)
    torch.testing.assert_close(mixed_loss(TASK, OUTPUTS, TARGETS, TAUGHT, some, 0.4), expected)
    none = torch.zeros(3, dtype=torch.bool)
    found = mixed_loss(TASK, OUTPUTS, TARGETS, TAUGHT, none, 0.4)
    torch.testing.assert_close(found, 0.4 * distance(TASK, OUTPUTS, TAUGHT))


def test_parts_of_a_batch_add_up_to_the_whole() -> None:
    some = torch.tensor([True, False, True])
    whole = mixed_loss(TASK, OUTPUTS, TARGETS, TAUGHT, some, 0.4)
    parts = [
        len(OUTPUTS[at]) / 3 * mixed_loss(TASK, OUTPUTS[at], TARGETS[at], TAUGHT[at], some[at], 0.4)
        for at in (slice(0, 2), slice(2, 3))
    ]
    torch.testing.assert_close(parts[0] + parts[1], whole)
