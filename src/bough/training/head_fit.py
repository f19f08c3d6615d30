"""Where heads begin: fitted to what the untouched encoder says of the training rows.

A fresh head sends random gradients into the encoder until it has learned where the classes lie, and
with few rows training may end before that. So the last linear map of every head is fitted first, a
convex problem with one answer, and training goes on from there (https://arxiv.org/abs/2202.10054).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bough.data.examples import Examples, output_places, output_rows
from bough.data.packing import by_tokens, collate
from bough.model.heads import Head
from bough.model.losses import class_weights, loss
from bough.model.network import Network
from bough.plan.plan import Cell
from bough.training.optimizer import LBFGS

MOST_ROWS = 4000  # of a task: more make the beginning slower and hardly better
WORDS_COUNT = 5  # so many words of a text say as much as a text: neighbours are alike
STRENGTH = 1.0  # of the fit against its penalty: scikit-learn's C, on vectors of length 1
ITERATIONS = 200


def few_rows(examples: Examples) -> Examples:
    """As many as heads are fitted to: of a tag task as many words, more or less."""
    words = 1 if examples.words is None else output_rows(examples) / max(len(examples), 1)
    few = examples.sample(max(round(WORDS_COUNT * MOST_ROWS / max(words, WORDS_COUNT)), 1))
    if len(np.unique(few.index)) < len(few.sequences):  # a table that is another task's, too
        few = few.of_numbers(np.arange(len(few)))
    return few


def fit_heads(network: Network, examples: Mapping[str, Examples]) -> None:
    """Fit every head, those that others read before their readers."""
    for name in network.plan.order():
        head = network.cells[Cell("head", name).key]
        assert isinstance(head, Head)
        if name in examples and head.output is not None and head.cosine is None:
            rows = examples[name]
            fit_linear(head, _inputs(network, name, head.output, rows), rows.targets)


def fit_linear(head: Head, inputs: Tensor, targets: Tensor | None) -> None:
    """Give the head's last map the least penalised loss on these inputs, [examples, width]."""
    assert head.output is not None
    assert targets is not None
    task, targets = head.task, targets.to(inputs.device)
    centre = inputs.mean(0)
    scale = _scales(head, inputs - centre)
    scaled = (inputs - centre) / scale
    weight = torch.zeros_like(head.output.weight, requires_grad=True)
    bias = torch.zeros_like(head.output.bias, requires_grad=True)
    weights = class_weights(task, targets.cpu())
    penalty = 1 / (2 * STRENGTH * len(inputs))
    optimizer = LBFGS(
        [weight, bias], max_iter=ITERATIONS, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def penalised() -> Tensor:
        optimizer.zero_grad()
        value = loss(task, scaled @ weight.T + bias, targets, weights)
        value = value + penalty * weight.square().sum()
        value.backward()
        return value

    optimizer.step(penalised)
    with torch.no_grad():
        head.output.weight.copy_(weight / scale)
        head.output.bias.copy_(bias - (weight / scale) @ centre)


def _scales(head: Head, centred: Tensor) -> Tensor:
    """What each input is divided by, so that rows have length 1 on average, and so that the penalty
    weighs on every kind of feature alike: a cosine is one number beside hundreds, and small."""
    kinds = head.kinds if centred.shape[1] == sum(head.kinds) else [centred.shape[1]]
    lengths = [part.square().sum(1).mean().sqrt() for part in centred.split(kinds, 1)]
    each = (torch.stack(lengths) * len(kinds) ** 0.5).clamp(min=1e-6)
    return torch.cat([one.expand(size) for one, size in zip(each, kinds, strict=True)])


@torch.no_grad()
def _inputs(network: Network, name: str, output: nn.Linear, examples: Examples) -> Tensor:
    """What a task's last map is given for each example, or each word, without dropout."""
    device = output.weight.device
    rows = torch.empty(output_rows(examples), output.in_features, device=device)
    given: list[Tensor] = []

    def keep(_: nn.Module, arguments: tuple[Any, ...]) -> None:
        given.append(arguments[0])

    hook = output.register_forward_pre_hook(keep)
    try:
        for part in by_tokens(examples.lengths):
            batch = collate({name: examples}, {name: part})
            network(batch.pack.to(device), batch.index)
            rows[output_places(examples, part).to(device)] = given.pop().float()
    finally:
        hook.remove()
    return rows
