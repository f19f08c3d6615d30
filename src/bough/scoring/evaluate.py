"""A network judged: its answers for every task's own examples, and their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.data.examples import Examples, output_places, output_rows
from bough.data.loader import row_groups
from bough.data.packing import by_tokens, collate
from bough.data.tokens import Ints
from bough.distributed import ALONE, Processes
from bough.formatting import number
from bough.model.losses import answers, loss, tempered
from bough.model.network import Network
from bough.recipe.tasks import Task
from bough.scoring.calibration import calibration_error, distance_from_right, fit_temperature
from bough.scoring.classes import commonest_share, shown_above
from bough.scoring.entities import span_confidence
from bough.scoring.metrics import Predictions, aggregates, judged
from bough.spans.decoding import marked
from bough.spans.words import as_objects

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
    shapes = {
        name: (output_rows(source), network.tasks[name].outputs)
        for name, source in examples.items()
    }
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
            outputs[name][output_places(examples[name], chosen[name])] = rows.float().cpu()
    processes.add_up(found)
    return {
        name: read_out(network.tasks[name], outputs[name], source)
        for name, source in examples.items()
    }


def read_out(task: Task, outputs: Tensor, examples: Examples) -> Predictions:
    """What a task's outputs for a whole set say."""
    targets = examples.targets
    values, probabilities = answers(task, outputs)
    mean_loss = None if targets is None else float(loss(task, outputs, targets))
    shares = None if probabilities is None else probabilities.numpy()
    if task.kind == "tag":
        assert shares is not None
        return _marked(task, shares, examples, mean_loss)
    return Predictions(values.numpy(), shares, mean_loss)


def _marked(
    task: Task, shares: NDArray[np.float32], examples: Examples, mean_loss: float | None
) -> Predictions:
    """Spans, of the probabilities of the words' tags."""
    words = examples.words
    assert words is not None
    found = marked(task.tags, shares, [words.words(n) for n in range(len(examples))])
    return Predictions(
        as_objects([tuple(item.span for item in own) for own in found]),
        shares,
        mean_loss,
        as_objects([tuple(item.score for item in own) for own in found]),
    )


def calibrate(
    tasks: dict[str, Task], examples: Mapping[str, Examples], predictions: dict[str, Predictions]
) -> dict[str, dict[str, float]]:
    """Give each task with probabilities that has none the temperature that fits these rows, and its
    predictions the probabilities that follow; what that changed."""
    found = {}
    for name, predicted in predictions.items():
        task, targets, shares = tasks[name], examples[name].targets, predicted.probabilities
        if shares is None or targets is None or task.temperature is not None:
            continue
        choices, truth = _choices(task, shares, targets)
        temperature = fit_temperature(choices, truth)
        fitted = tempered(torch.from_numpy(choices), temperature).numpy()
        if task.kind == "multilabel":
            fitted = fitted[:, 1].reshape(shares.shape)
        tasks[name] = task.model_copy(update={"temperature": temperature})
        before = predicted
        if task.kind == "tag":
            predictions[name] = _marked(task, fitted, examples[name], predicted.loss)
        else:
            predictions[name] = replace(predicted, probabilities=fitted)
        found[name] = {
            "temperature": temperature,
            "ece_before": _calibration_error(task, before, examples[name]),
            "ece": _calibration_error(task, predictions[name], examples[name]),
        }
    return found


def _choices(
    task: Task, shares: NDArray[Any], targets: Tensor
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The probabilities of all that was chosen between, and what was right: each word's tag, or
    whether each label holds, is a choice of its own."""
    match task.kind:
        case "tag":
            return shares, targets[targets >= 0].numpy()
        case "multilabel":
            both = np.stack([1 - shares.ravel(), shares.ravel()], 1)
            return both, targets.long().ravel().numpy()
        case _:
            return shares, targets.numpy()


def _calibration_error(task: Task, predicted: Predictions, examples: Examples) -> float:
    truth, targets = examples.truth, examples.targets
    assert truth is not None
    assert targets is not None
    if predicted.scores is not None:
        found = (predicted.values.tolist(), predicted.scores.tolist(), truth.tolist())
        return distance_from_right(*span_confidence(*found))
    assert predicted.probabilities is not None
    return calibration_error(*_choices(task, predicted.probabilities, targets))


def score(
    tasks: Mapping[str, Task],
    examples: Mapping[str, Examples],
    predictions: Mapping[str, Predictions],
    intervals: bool = False,
) -> dict[str, Any]:
    """The scores of one split: per task, and both aggregates.

    With `intervals` also how far the probabilities can be trusted: while a run goes on they are
    not calibrated yet; and the share of the rows that have the commonest class.
    """
    per_task: dict[str, dict[str, Any]] = {}
    for name, source in examples.items():
        truth, predicted = source.truth, predictions[name]
        if truth is None:
            continue
        shares = predicted.probabilities
        per_task[name] = judged(tasks[name], predicted.values, truth, intervals, shares)
        if intervals and tasks[name].kind in ("classify", "ordinal"):
            per_task[name]["commonest"] = commonest_share(truth)
        if intervals and shares is not None:
            per_task[name]["ece"] = _calibration_error(tasks[name], predicted, source)
        per_task[name]["loss"] = predicted.loss
    return {"tasks": per_task, **aggregates(tasks, per_task)}


def learned_nothing(scores: Mapping[str, Any]) -> list[str]:
    """A sentence on each task that is not shown to know more than which class is the commonest."""
    return [
        f"task {name!r}: accuracy {number(found['accuracy'])} is not shown to be above "
        f"{number(found['commonest'])}, which always answering the commonest class would have"
        for name, found in scores["tasks"].items()
        if found["metric"] == "accuracy"
        and "commonest" in found  # which of several labels there is none
        and not shown_above(found["interval"], found["commonest"])
    ]
