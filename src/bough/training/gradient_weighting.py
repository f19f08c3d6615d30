"""How much of each task's gradient counts: coefficients from the gradients' Gram matrix.

Every method here looks only at lengths and angles between the tasks' gradients, so a few numbers
say all it needs, whatever the size of the model. Where `torchjd` gives the weights we take them
from there. Three draw at random and are written out here, because ours draw from the run's own
generator; CAGrad's and the dual cone's small convex problems are solved with scipy, so that no
further solver must be installed.

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
from scipy.optimize import LinearConstraint, minimize, nnls
from torch import Tensor
from torchjd.aggregation import (
    AlignedMTLWeighting,
    DualProjWeighting,
    FairGradWeighting,
    IMTLGWeighting,
    MGDAWeighting,
    UPGradWeighting,
)
from torchjd.linalg import DualConeProjector

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
            case "cagrad":
                return cagrad(gram, self.number)
            case "fairgrad":
                return fairgrad(gram, self.number)
            case "mgda":
                return _weights(MGDAWeighting(), gram)
            case "imtl-g":
                return _weights(IMTLGWeighting(), gram)
            case "aligned-mtl":
                return _weights(AlignedMTLWeighting(), gram)
            case "upgrad":
                return _weights(UPGradWeighting(projector=Projector()), gram)
            case _:
                return _weights(DualProjWeighting(projector=Projector()), gram)

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


def cagrad(gram: Matrix, radius: float) -> Vector:
    """The step within `radius` times the mean gradient's length around the mean gradient that
    helps the worst-off task most. `gram` has unit trace."""
    m = len(gram)
    along = gram.mean(1)
    reach = radius * math.sqrt(max(float(along.mean()), 0.0))

    def cost(w: Vector) -> tuple[float, Vector]:
        pull = gram @ w
        length = math.sqrt(max(float(w @ pull), 1e-30))
        return float(along @ w) + reach * length, along + reach * pull / length

    solution = minimize(
        cost,
        np.full(m, 1 / m),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * m,
        constraints=LinearConstraint(np.ones(m), 1, 1),
        options={"ftol": 1e-14, "maxiter": 200},
    )
    w = np.asarray(solution.x, dtype=np.float64)
    length = math.sqrt(max(float(w @ gram @ w), 0.0))
    if length < 1e-4:
        # Some mix of the gradients vanishes: no step helps every task.
        return np.zeros(m)
    return 1 / m + reach / length * w


def fairgrad(gram: Matrix, alpha: float) -> Vector:
    """The weights x > 0 with `G x = x^(-1/alpha)`. A task without gradient has no say."""
    heard = np.flatnonzero(np.diagonal(gram) > 0)
    weights = np.zeros(len(gram))
    weights[heard] = _weights(FairGradWeighting(alpha), gram[np.ix_(heard, heard)])
    return weights


class Projector(DualConeProjector):
    """The nearest direction that hurts no task: `min v'Gv, v >= u`, as a non-negative least
    squares problem in `v - u`. The small ridge is torchjd's, so that the results are, too."""

    ridge = 1e-4

    def __call__(self, vectors: Tensor, gram: Tensor) -> Tensor:
        size = gram.diagonal().sum().clamp(min=torch.finfo(torch.float64).tiny)
        unit = (gram / size).double().numpy() + self.ridge * np.eye(len(gram))
        root = np.linalg.cholesky(unit).T

        def project(u: Vector) -> Vector:
            return u + nnls(root, -root @ u)[0]

        projected = np.apply_along_axis(project, -1, vectors.double().numpy())
        return torch.from_numpy(projected).to(vectors.dtype)


def _weights(weighting: Callable[[Tensor], Tensor], gram: Matrix) -> Vector:
    return np.asarray(weighting(torch.from_numpy(gram)).numpy(), dtype=np.float64)
