"""A network judged: its answers for every task's own examples, and their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bough.data.examples import Examples
from bough.data.loader import row_groups
from bough.data.packing import by_tokens, collate
from bough.data.tokens import Ints
from bough.distributed import ALONE, Processes
from bough.model.losses import answers, loss, tempered
from bough.model.network import Network
from bough.recipe.tasks import Task
from bough.scoring.calibration import calibration_error, fit_temperature
from bough.scoring.metrics import Predictions, aggregates, judged

Pass = tuple[str, Ints]  # a group of tasks and the numbers of its rows


@torch.inference_mode()
def predict(
    network: Network,
    examples: Mapping[str, Examples],
    watched: Callable[[Sequence[Pass]], Iterable[Pass]] = iter,
    processes: Processes = ALONE,
) -> dict[str, Predictions]:
    """Every task's answers for its own examples; the passes go through `watched`.

    Several processes share the passes out; what each has found is put together once at the end.
    """
    device = next(network.parameters()).device
    shapes = {name: (len(source), network.tasks[name].outputs) for name, source in examples.items()}
    sizes = [rows * width for rows, width in shapes.values()]
    found = torch.zeros(sum(sizes))
    outputs = {
        name: part.view(shape)
        for (name, shape), part in zip(shapes.items(), found.split(sizes), strict=True)
    }
    groups = row_groups(examples)
    passes = [(group, part) for group, rows in groups.items() for part in by_tokens(rows.lengths)]
    for group, part in watched(processes.share(passes)):
        chosen = groups[group].of(part)
        batch = collate(examples, chosen)
        for name, rows in network(batch.pack.to(device), batch.index).items():
            outputs[name][torch.from_numpy(chosen[name])] = rows.float().cpu()
    processes.add_up(found)
    return {
        name: read_out(network.tasks[name], outputs[name], source.targets)
        for name, source in examples.items()
    }


def read_out(task: Task, outputs: Tensor, targets: Tensor | None) -> Predictions:
    """What a task's outputs for a whole set say."""
    values, probabilities = answers(task, outputs)
    mean_loss = None if targets is None else float(loss(task, outputs, targets))
    shares = None if probabilities is None else probabilities.numpy()
    return Predictions(values.numpy(), shares, mean_loss)


def calibrate(
    tasks: dict[str, Task], examples: Mapping[str, Examples], predictions: dict[str, Predictions]
) -> dict[str, dict[str, float]]:
    """Give each classify task that has none the temperature that fits these rows, and its
    predictions the probabilities that follow; what that changed."""
    found = {}
    for name, predicted in predictions.items():
        task, targets, shares = tasks[name], examples[name].targets, predicted.probabilities
        if shares is None or targets is None or task.temperature is not None:
            continue
        truth = targets.numpy()
        temperature = fit_temperature(shares, truth)
        fitted = tempered(torch.from_numpy(shares), temperature).numpy()
        tasks[name] = task.model_copy(update={"temperature": temperature})
        predictions[name] = replace(predicted, probabilities=fitted)
        found[name] = {
            "temperature": temperature,
            "ece_before": calibration_error(shares, truth),
            "ece": calibration_error(fitted, truth),
        }
    return found


def score(
    tasks: Mapping[str, Task],
    examples: Mapping[str, Examples],
    predictions: Mapping[str, Predictions],
    intervals: bool = False,
) -> dict[str, Any]:
    """The scores of one split: per task, and both aggregates.

    With `intervals` also how far the probabilities can be trusted: while a run goes on they are
    not calibrated yet.
    """
    per_task: dict[str, dict[str, Any]] = {}
    for name, source in examples.items():
        if source.targets is None:
            continue
        predicted = predictions[name]
        truth = source.targets.numpy()
        per_task[name] = judged(tasks[name], predicted.values, truth, intervals)
        if intervals and predicted.probabilities is not None:
            per_task[name]["ece"] = calibration_error(predicted.probabilities, truth)
        per_task[name]["loss"] = predicted.loss
    return {"tasks": per_task, **aggregates(tasks, per_task)}
