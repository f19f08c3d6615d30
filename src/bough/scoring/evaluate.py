"""A network judged: its answers for every task's own examples, and their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from bough.data.examples import Examples
from bough.data.packing import by_tokens, collate
from bough.data.tokens import Ints
from bough.model.losses import answers, loss
from bough.model.network import Network
from bough.processes import ALONE, Processes
from bough.recipe.tasks import Task
from bough.scoring.metrics import Predictions, aggregates, judged

Pass = tuple[str, Ints]  # a task and the numbers of its examples


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
    passes = [
        (name, part) for name, source in examples.items() for part in by_tokens(source.lengths)
    ]
    for name, part in watched(processes.share(passes)):
        batch = collate(examples, {name: part})
        rows = network(batch.pack.to(device), batch.index)[name]
        outputs[name][torch.from_numpy(part)] = rows.float().cpu()
    processes.add_up(found)
    predictions = {}
    for name, source in examples.items():
        task, rows = network.tasks[name], outputs[name]
        values, probabilities = answers(task, rows)
        mean_loss = None if source.targets is None else float(loss(task, rows, source.targets))
        predictions[name] = Predictions(
            values.numpy(), None if probabilities is None else probabilities.numpy(), mean_loss
        )
    return predictions


def score(
    tasks: Mapping[str, Task],
    examples: Mapping[str, Examples],
    predictions: Mapping[str, Predictions],
    intervals: bool = False,
) -> dict[str, Any]:
    """The scores of one split: per task, and both aggregates."""
    per_task: dict[str, dict[str, Any]] = {}
    for name, source in examples.items():
        if source.targets is None:
            continue
        predicted = predictions[name]
        truth = source.targets.numpy()
        per_task[name] = judged(tasks[name], predicted.values, truth, intervals)
        per_task[name]["loss"] = predicted.loss
    return {"tasks": per_task, **aggregates(tasks, per_task)}
