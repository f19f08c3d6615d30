"""One step of learning: forward, a backward per task where it matters, combine, move.

Everything that a step changes lives here, and is saved and restored as one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bough.data.batches import Batch, Examples, Ints, collate
from bough.model.dropout import DropoutGenerator
from bough.model.losses import class_weights, loss
from bough.model.network import Network
from bough.model.transformer import Embeddings
from bough.plan.plan import Cell
from bough.recipe.recipe import Training
from bough.training import loss_weighting, optimizer
from bough.training.gradient_combiner import Combiner, Group


class NotFiniteError(ArithmeticError):
    """A loss or gradient that is no number: nothing was moved."""


@dataclass(frozen=True)
class StepResult:
    """What came of a step."""

    losses: dict[str, float]  # of the tasks present, unweighted
    tokens: int
    norm: float  # of all gradients together, before clipping
    weights: dict[str, float]  # that the losses were multiplied by
    coefficients: dict[str, dict[str, float]]  # of the gradients: users of a part -> task -> number
    cosines: dict[str, dict[str, float]] | None = None


class Stepper:
    """The network and all that moves it."""

    def __init__(
        self,
        network: Network,
        examples: Mapping[str, Examples],
        training: Training,
        weights: Mapping[str, float],
        seed: Sequence[int],
        precision: str = "fp32",
    ):
        self.network = network
        self.examples = examples
        self.training = training
        self.precision = precision
        self.device = next(network.parameters()).device
        chance, order = np.random.SeedSequence(list(seed)).generate_state(2)
        self.chance = torch.Generator(self.device).manual_seed(int(chance))
        self.order = torch.Generator().manual_seed(int(order))
        self.class_weights = {
            name: None if own.targets is None else class_weights(network.tasks[name], own.targets)
            for name, own in examples.items()
        }
        for module in network.modules():
            if isinstance(module, Embeddings):
                # A step touches few words; the combiner puts their rows into a kept dense gradient.
                module.words.sparse = True
        users = network.plan.users()
        self.owned = {cell: [p for _, p in own] for cell, own in network.owned().items() if own}
        self.shared: dict[str, list[nn.Parameter]] = {}
        for cell, own in self.owned.items():
            if len(users[cell]) > 1:
                self.shared.setdefault(cell.place, []).extend(own)
        groups = [Group(users[cell], own) for cell, own in self.owned.items()]
        self.weighting = loss_weighting.parse(training.weighting, weights, self.order)
        self.combiner = Combiner(training.combine, groups, tuple(network.tasks), self.order)
        self.parameters = [p for own in self.owned.values() for p in own]
        self.optimiser = optimizer.build(
            (_part(cell, own) for cell, own in self.owned.items()),
            lr=training.lr,
            decay=training.decay,
            layer_decay=training.layer_decay,
            head_lr=training.head_lr,
            adapter_lr=training.adapter_lr,
        )
        self.average = optimizer.Average(self.parameters, training.ema) if training.ema else None

    def step(
        self, parts: Sequence[Mapping[str, Ints]], lr: float, cosines: bool = False
    ) -> StepResult:
        """Learn from these examples; several parts are accumulated into one step."""
        losses: dict[str, float] = {}
        weights: dict[str, float] = {}
        tokens = 0
        apart = cosines or self.combiner.apart
        before = self.chance.get_state()
        for part, share in zip(parts, _shares(parts), strict=True):
            found, size = self._backward(part, share, apart)
            tokens += size
            weights |= self.weighting.factors
            for name, value in found.items():
                losses[name] = losses.get(name, 0.0) + value * share[name]
        between = self.combiner.cosines(self.shared) if cosines else None
        coefficients = self.combiner.finish()
        norm = optimizer.clip(self.parameters, self.training.clip)
        bad = [name for name, value in losses.items() if not math.isfinite(value)]
        if bad or not math.isfinite(norm):
            self.optimiser.zero_grad(set_to_none=True)
            raise NotFiniteError(f"the loss of {', '.join(bad)}" if bad else "the gradient")
        optimizer.set_lr(self.optimiser, lr)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        looks_back = self.weighting.looks_back
        self.weighting.learn(self._again(parts, before, apart) if looks_back else None)
        if self.average is not None:
            self.average.update()
        return StepResult(losses, tokens, norm, weights, coefficients, between)

    def _backward(
        self, part: Mapping[str, Ints], share: Mapping[str, float], apart: bool
    ) -> tuple[dict[str, float], int]:
        """Forward and backward, of all tasks at once or of each task apart; losses and tokens.

        Apart costs the same: every example belongs to one task, so the tasks' graphs are disjoint.
        """
        groups = [{name: which} for name, which in part.items()] if apart else [part]
        found, tokens = self._forward(groups, self.chance)
        scaled = self.weighting.scale(found)
        for group in groups:
            torch.stack([scaled[name] * share[name] for name in group]).sum().backward()
            self.combiner.take(*group)
        return {name: value.item() for name, value in found.items()}, tokens

    def _forward(
        self, groups: Sequence[Mapping[str, Ints]], chance: torch.Generator
    ) -> tuple[dict[str, Tensor], int]:
        """The losses of each group of tasks, and how many tokens they took."""
        found: dict[str, Tensor] = {}
        tokens = 0
        for group in groups:
            batch = collate(self.examples, group)
            found |= self._losses(batch, DropoutGenerator(chance, self.training.dropout))
            tokens += batch.tokens
        return found, tokens

    def _losses(self, batch: Batch, dropout: DropoutGenerator | None) -> dict[str, Tensor]:
        with torch.autocast(self.device.type, torch.bfloat16, self.precision == "bf16"):
            outputs = self.network(batch.pack.to(self.device), batch.seats, dropout)
        return {
            name: loss(
                self.network.tasks[name],
                out,
                batch.targets[name].to(self.device),
                self.class_weights[name],
            )
            for name, out in outputs.items()
        }

    @torch.no_grad()
    def _again(
        self, parts: Sequence[Mapping[str, Ints]], chance: Tensor, apart: bool
    ) -> dict[str, Tensor]:
        """The losses of the same examples after the step, with the same dropout."""
        replay = torch.Generator(self.device)
        replay.set_state(chance)
        after: dict[str, Tensor] = {}
        for part, share in zip(parts, _shares(parts), strict=True):
            groups = [{name: which} for name, which in part.items()] if apart else [part]
            for name, value in self._forward(groups, replay)[0].items():
                after[name] = after.get(name, torch.zeros_like(value)) + value * share[name]
        return after

    def state(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "chance": self.chance.get_state(),
            "order": self.order.get_state(),
            "weighting": self.weighting.state_dict(),
            "combiner": self.combiner.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.chance.set_state(state["chance"])
        self.order.set_state(state["order"])
        self.weighting.load_state_dict(state["weighting"])
        self.combiner.load_state_dict(state["combiner"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])


def _shares(parts: Sequence[Mapping[str, Ints]]) -> list[dict[str, float]]:
    """How much of each task's examples of the step a part holds."""
    whole: Counter[str] = Counter()
    for part in parts:
        whole.update({name: len(which) for name, which in part.items()})
    return [{name: len(which) / whole[name] for name, which in part.items()} for part in parts]


def _part(cell: Cell, parameters: Sequence[nn.Parameter]) -> optimizer.Part:
    """Where a cell stands, for its rate of learning."""
    kind, _, number = cell.place.partition(" ")
    if kind in ("head", "late", "pooler"):  # above the layers, at the full rate
        return optimizer.Part("head", parameters)
    if kind == "embeddings":
        return optimizer.Part("trunk", parameters, 0)
    if kind == "layer":
        return optimizer.Part("trunk", parameters, int(number))
    return optimizer.Part("adapter", parameters)
