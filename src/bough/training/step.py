"""One step of learning: forward, a backward per task where it matters, combine, clip, move.

Everything that a step changes lives here, and is saved and restored as one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from bough.data.examples import Examples
from bough.data.loader import MicroBatch
from bough.data.packing import TOKENS
from bough.distributed import ALONE, Processes
from bough.model.dropout import DropoutGenerator
from bough.model.families.parts import EmbeddingsModule
from bough.model.network import Network
from bough.plan.plan import Cell
from bough.recipe.training import Training
from bough.training import loss_weighting, optimizer
from bough.training.gradients.combiner import Combiner, Group
from bough.training.objective.objective import Objective
from bough.training.weight_average import averaged


class NotFiniteError(ArithmeticError):
    """A loss or gradient that is no number: nothing was moved."""


@dataclass(frozen=True)
class StepResult:
    """What came of a step."""

    losses: dict[str, float]  # of the tasks present, unweighted
    tokens: int
    lr: float
    norm: float  # of all gradients together, before clipping
    weights: dict[str, float]  # that the losses were multiplied by
    coefficients: dict[str, dict[str, float]]  # of the gradients: users of a part -> task -> number
    cosines: dict[str, dict[str, float]] | None = None


class Batches(Protocol):
    """What steps learn from."""

    def next(self, apart: bool, most_tokens: int | None = None) -> list[MicroBatch]: ...


class Stepper:
    """The network and all that moves it."""

    def __init__(
        self,
        network: Network,
        examples: Mapping[str, Examples],
        training: Training,
        weights: Mapping[str, float],
        seed: Sequence[int],
        processes: Processes = ALONE,
    ):
        self.network = network
        self.processes = processes
        self.training = training
        self.device = next(network.parameters()).device
        dropout, order = np.random.SeedSequence(list(seed)).generate_state(2)
        if not processes.first:  # other examples, other chance; all else is decided alike
            dropout = np.random.SeedSequence([*seed, processes.rank]).generate_state(1)[0]
        self.dropout = torch.Generator(self.device).manual_seed(int(dropout))
        self.order = torch.Generator().manual_seed(int(order))  # of tasks, in some methods
        moving = [part for part in network.modules() if isinstance(part, EmbeddingsModule)]
        self.objective = Objective(network.tasks, examples, training, moving)
        words = network.lookups()
        for table in words:
            # A step touches few words; the combiner puts their rows into a kept dense gradient.
            table.sparse = True
        users = network.plan.users()
        cells = {cell: [p for _, p in named] for cell, named in network.owned().items() if named}
        self.parameters = [p for parameters in cells.values() for p in parameters]
        self.shared: dict[str, list[nn.Parameter]] = {}
        for cell, parameters in cells.items():
            if len(users[cell]) > 1:
                self.shared.setdefault(cell.place, []).extend(parameters)
        self.weighting = loss_weighting.parse(training.weighting, weights, self.order)
        # Where no task's loss has to be known for another's weight, one after the other will do. An
        # accelerator wants large passes more than small ones.
        one_by_one = self.device.type == "cpu" and not self.weighting.looks
        self.most_tokens = TOKENS if one_by_one else None
        self.combiner = Combiner(
            training.combine,
            [Group(users[cell], parameters) for cell, parameters in cells.items()],
            tuple(network.tasks),
            self.order,
            processes,
            [table.weight for table in words],
        )
        self.optimizer = optimizer.build(
            (_part(cell, parameters) for cell, parameters in cells.items()),
            lr=training.lr,
            decay=training.decay,
            layer_decay=training.layer_decay,
            head_lr=training.head_lr,
            adapter_lr=training.adapter_lr,
        )
        self.average = averaged(self.parameters, training)
        self.run_share = 0.0

    def begin(self, done: float) -> None:
        """The next step is one before which this share of the run is done."""
        self.objective.begin(done)
        self.run_share = done

    def step(self, loader: Batches, lr: float, cosines: bool = False) -> StepResult:
        """Learn from what the loader has next; with `cosines`, compare the tasks' gradients."""
        # Draw and load. Tasks apart cost the same where every example belongs to one task, as the
        # tasks' graphs are disjoint; rows that several tasks have labels for are passed once.
        apart = cosines or self.combiner.apart
        step = loader.next(apart, self.most_tokens)
        before = self.dropout.get_state()
        losses = dict.fromkeys((task for part in step for task in part.own), 0.0)
        weights: dict[str, float] = {}
        for part in step:
            # Forward, then a backward for each batch.
            plain = self._forward(part, self.dropout)
            weighted = self.weighting.scale(plain, self._means(plain, part))
            weights |= self.weighting.factors
            for batch in part.batches:
                terms = {task: weighted[task] * part.shares[task] for task in batch.index}
                alone = [[task] for task in terms] if apart else [[*terms]]
                for tasks in alone:
                    total = torch.stack([terms[task] for task in tasks]).sum()
                    total.backward(retain_graph=tasks is not alone[-1])
                    self.combiner.take(*tasks, apart=apart)
            for task, value in plain.items():
                losses[task] += value.item() * part.shares[task]
        # Over several processes, add up.
        tokens = sum(part.tokens for part in step)
        *sums, tokens_of_all = self.combiner.add_up([*losses.values(), tokens], apart)
        losses = dict(zip(losses, sums, strict=True))
        # Combine.
        compared = self.combiner.cosines(self.shared) if cosines else None
        coefficients = self.combiner.finish()
        # Clip.
        norm = optimizer.clip(self.parameters, self.training.clip)
        bad = [task for task, mean in losses.items() if not math.isfinite(mean)]
        if bad or not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            raise NotFiniteError(f"the loss of {', '.join(bad)}" if bad else "the gradient")
        # Move.
        optimizer.set_lr(self.optimizer, lr)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        after = self._again(step, before) if self.weighting.looks_back else None
        self.weighting.learn(losses, after)
        if self.average is not None:
            self.average.update(self.run_share)
        all_tokens = round(tokens_of_all)
        return StepResult(losses, all_tokens, lr, norm, weights, coefficients, compared)

    def _means(self, losses: Mapping[str, Tensor], part: MicroBatch) -> dict[str, float]:
        """The tasks' losses over all processes, where the weighting looks at them."""
        if not self.weighting.looks:
            return dict.fromkeys(part.own, math.nan)
        here = [float(losses[t].detach()) * own if own else 0.0 for t, own in part.own.items()]
        return dict(zip(part.own, self.processes.sums(here), strict=True))

    def _forward(self, part: MicroBatch, dropout: torch.Generator) -> dict[str, Tensor]:
        """The loss of each task."""
        losses: dict[str, Tensor] = {}
        for batch in part.batches:
            generator = DropoutGenerator(dropout, self.training.dropout)
            forward = partial(self.network, batch.pack.to(self.device), batch.index, generator)
            losses |= self.objective.losses(forward, batch, dropout)
        return losses

    @torch.no_grad()
    def _again(self, step: Sequence[MicroBatch], dropout: Tensor) -> dict[str, float]:
        """The losses of the same examples after the step, with the same dropout."""
        replay = torch.Generator(self.device)
        replay.set_state(dropout)
        after = dict.fromkeys((task for part in step for task in part.own), 0.0)
        for part in step:
            for task, value in self._forward(part, replay).items():
                after[task] += value.item() * part.shares[task]
        sums = self.processes.sums(list(after.values()))
        return dict(zip(after, sums, strict=True))

    def state(self) -> dict[str, Any]:
        """All that the next step depends on; the names are those of the checkpoint's form."""
        chance = self.processes.gather(self.dropout.get_state())
        by_rank = {"chance_by_rank": chance} if self.processes.count > 1 else {}
        return {
            "network": self.network.state_dict(),
            "optimiser": self.optimizer.state_dict(),
            "chance": chance[0],
            **by_rank,
            "order": self.order.get_state(),
            "weighting": self.weighting.state_dict(),
            "combiner": self.combiner.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimiser"])
        chance = state.get("chance_by_rank", [state["chance"]])
        if self.processes.rank < len(chance):  # else the run had fewer processes than now
            self.dropout.set_state(chance[self.processes.rank])
        self.order.set_state(state["order"])
        self.weighting.load_state_dict(state["weighting"])
        self.combiner.load_state_dict(state["combiner"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])


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
