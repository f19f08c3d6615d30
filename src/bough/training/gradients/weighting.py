"""How much of each task's gradient counts: coefficients from the gradients' Gram matrix.

Every method here looks only at lengths and angles between the tasks' gradients, so a few numbers
say all it needs, whatever the size of the model. Those that draw at random are written out here,
because they draw from the run's own generator; the others are `solvers`', which is
imported only where one of them is asked for: its libraries take most of a second to load.

Left out: what needs more than a Gram matrix (GradDrop, ConFIG, ExcessMTL, MoDo, SDMGrad, trimmed
means), Krum (for hostile workers, not tasks), PCD (needs one task above the others), and Nash-MTL,
whose point is that of `fairgrad:1`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.recipe import methods

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


class GradientWeighting:
    """Coefficients for one method, with what it remembers between steps."""

    def __init__(self, method: str, generator: torch.Generator):
        self.name, self.number = methods.parse(method, methods.COMBINATIONS)
        self.generator = generator
        self.targets: dict[str, dict[str, float]] = {}  # GradVac's, by group and pair of tasks

    @property
    def looks(self) -> bool:
        """Whether the coefficients depend on the gradients at all."""
        return self.name not in ("sum", "mean", "random")

    def coefficients(self, group: str, tasks: Sequence[str], gram: Tensor | None) -> list[float]:
        """What to multiply each task's gradient by; `gram` may be None where the method does not
        look. `group` names whose parameters these are: what is remembered is remembered for it."""
        m = len(tasks)
        match self.name:
            case "sum":
                return [1.0] * m
            case "mean":
                return [1.0 / m] * m
            case "random":
                draw = torch.randn(m, generator=self.generator, dtype=torch.float64)
                return [float(w) for w in draw.softmax(0)]
        if gram is None:
            raise ValueError(f"{self.name} needs the Gram matrix")
        matrix: Matrix = gram.double().numpy()
        size = float(np.trace(matrix))
        if size == 0 or not np.isfinite(matrix).all():
            # Nothing to combine; or something that is no number, which the sum hands on to the
            # loop: that stops the run and says so.
            return [1.0] * m
        # The solvers' thresholds are absolute: at unit size they mean the same for all losses.
        weights = self._solve(matrix / size, group, tasks)
        if self.name == "fairgrad":
            # From G x = x^(-1/alpha) on the unit size back to the gradients' own.
            weights = weights * size ** (-self.number / (1 + self.number))
        return [float(w) for w in weights]

    def _solve(self, gram: Matrix, group: str, tasks: Sequence[str]) -> Vector:
        match self.name:
            case "pcgrad":
                return pcgrad(gram, self._order)
            case "gradvac":
                targets = self.targets.setdefault(group, {})
                return gradvac(gram, tasks, targets, self.number, self._order)
            case _:
                from bough.training.gradients import solvers

                return solvers.weights(self.name, self.number, gram)

    def _order(self, n: int) -> list[int]:
        order: list[int] = torch.randperm(n, generator=self.generator).tolist()
        return order

    def state_dict(self) -> dict[str, Any]:
        """What it remembers; the generator is the run's and saved with it."""
        return {"targets": {group: dict(pairs) for group, pairs in self.targets.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.targets = {group: dict(pairs) for group, pairs in state["targets"].items()}


def pcgrad(gram: Matrix, order: Callable[[int], Sequence[int]]) -> Vector:
    """Each task's gradient loses, task by task in random order, what points against the other's
    original gradient; the results are added up."""
    m = len(gram)
    total = np.zeros(m)
    for i in range(m):
        mix = np.zeros(m)
        mix[i] = 1.0
        for j in order(m):
            against = float(gram[j] @ mix)
            if j != i and against < 0:
                mix[j] -= against / gram[j, j]
        total += mix
    return total


def gradvac(
    gram: Matrix,
    tasks: Sequence[str],
    targets: dict[str, float],
    rate: float,
    order: Callable[[int], Sequence[int]],
) -> Vector:
    """Each task's gradient is bent towards another's until their cosine is at least what it
    usually is; `targets` holds that moving average per pair and is brought up to date."""
    m, small = len(gram), 1e-8
    lengths = np.sqrt(np.diagonal(gram))
    bent = np.eye(m)
    for i in range(m):
        others = [j for j in range(m) if j != i]
        for j in (others[k] for k in order(m - 1)):
            length = math.sqrt(max(float(bent[i] @ gram @ bent[i]), 0.0))
            cosine = float(bent[i] @ gram[j]) / (length * lengths[j] + small)
            pair = f"{tasks[i]}>{tasks[j]}"
            target = targets.get(pair, 0.0)
            if cosine < target:
                sine, wanted = (math.sqrt(max(1 - c * c, 0.0)) for c in (cosine, target))
                turn = target * sine - cosine * wanted
                bent[i, j] += length * turn / (lengths[j] * wanted + small)
            targets[pair] = float((1 - rate) * target + rate * cosine)
    return np.asarray(bent.sum(0), dtype=np.float64)
