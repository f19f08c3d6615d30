"""A network judged: its answers for every task's own examples, and their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from bough.data.batches import Examples, by_tokens, collate
from bough.model.losses import answers, loss
from bough.model.network import Network
from bough.recipe.tasks import Task
from bough.scoring.metrics import Predictions, aggregates, judged

TOKENS = 4096  # per pass
Pass = tuple[str, NDArray[Any]]  # a task and the numbers of its examples


@torch.inference_mode()
def predict(
    network: Network,
    examples: Mapping[str, Examples],
    watched: Callable[[Sequence[Pass]], Iterable[Pass]] = iter,
) -> dict[str, Predictions]:
    """Every task's answers for its own examples; the passes go through `watched`."""
    device = next(network.parameters()).device
    outputs = {
        name: torch.empty(len(own), network.tasks[name].outputs) for name, own in examples.items()
    }
    passes = [
        (name, part) for name, own in examples.items() for part in by_tokens(own.lengths, TOKENS)
    ]
    for name, part in watched(passes):
        batch = collate({name: examples[name]}, {name: part})
        got = network(batch.pack.to(device), batch.seats)[name]
        outputs[name][torch.from_numpy(part)] = got.float().cpu()
    out = {}
    for name, own in examples.items():
        task = network.tasks[name]
        values, probabilities = answers(task, outputs[name])
        cost = None if own.targets is None else float(loss(task, outputs[name], own.targets))
        out[name] = Predictions(
            values.numpy(), None if probabilities is None else probabilities.numpy(), cost
        )
    return out


def score(
    tasks: Mapping[str, Task],
    examples: Mapping[str, Examples],
    predictions: Mapping[str, Predictions],
    intervals: bool = False,
) -> dict[str, Any]:
    """The scores of one split: per task, and both aggregates."""
    per_task: dict[str, dict[str, Any]] = {}
    for name, own in examples.items():
        if own.targets is None:
            continue
        truth, found = own.targets.numpy(), predictions[name]
        per_task[name] = judged(tasks[name], found.values, truth, intervals)
        per_task[name]["loss"] = found.loss
    return {"tasks": per_task, **aggregates(tasks, per_task)}
