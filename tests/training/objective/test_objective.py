"""The loss of a batch: with labels, with teachers, and with both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from bough.data.packing import collate
from bough.model.losses import loss
from bough.recipe.training import Training
from bough.training.objective.agreement import distance
from bough.training.objective.objective import Objective
from tests import tiny

TASKS = {"single": tiny.task(class_weights="balanced"), "twin": tiny.task(twin=True, number=True)}


def test_each_task_learns_by_what_it_has() -> None:
    examples = {name: tiny.examples()[name] for name in TASKS}
    taught = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.1, 0.8, 0.1]])
    examples["single"] = replace(
        examples["single"], taught=taught, labelled=torch.tensor([True, True, False])
    )
    batch = collate(examples, {"single": np.array([2, 0]), "twin": np.array([1])})
    outputs = {"single": torch.randn(2, 3), "twin": torch.rand(1, 1)}
    training = Training(distil={"weight": 0.5, "temperature": 2.0})
    objective = Objective(TASKS, examples, training)
    objective.begin(0.5)
    found = objective.losses(lambda: outputs, batch, torch.Generator())
    # Of the three classes, two have a label, each one: both count 2/3 * 2 / 2.
    label = loss(TASKS["single"], outputs["single"][1:], torch.tensor([2])) * 2 / 3
    teacher = distance(TASKS["single"], outputs["single"], taught[[2, 0]], 2.0)
    torch.testing.assert_close(found["single"], 0.75 * label / 2 + 0.25 * teacher)
    plain = loss(TASKS["twin"], outputs["twin"], torch.tensor([4.75]))
    torch.testing.assert_close(found["twin"], plain)
