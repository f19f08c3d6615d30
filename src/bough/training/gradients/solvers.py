"""Weights of tasks that solve an equation or a small convex problem, from the Gram matrix.

Where `torchjd` gives the weights we take them from there; CAGrad's and the dual cone's problems are
solved with scipy, so that no further solver must be installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
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

from bough.training.gradients.weighting import Matrix, Vector


def weights(method: str, number: float, gram: Matrix) -> Vector:
    """The tasks' weights by this method; `gram` has unit trace."""
    match method:
        case "cagrad":
            return cagrad(gram, number)
        case "fairgrad":
            return fairgrad(gram, number)
        case "mgda":
            return _weights(MGDAWeighting(), gram)
        case "imtl-g":
            return _weights(IMTLGWeighting(), gram)
        case "aligned-mtl":
            return _weights(AlignedMTLWeighting(), gram)
        case "upgrad":
            return _weights(UPGradWeighting(projector=Projector()), gram)
        case "dualproj":
            return _weights(DualProjWeighting(projector=Projector()), gram)
    raise ValueError(f"no method {method!r}")


def cagrad(gram: Matrix, radius: float) -> Vector:
    """The step within `radius` times the mean gradient's length around the mean gradient that
    helps the worst-off task most."""
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
    # Where a mix of the gradients vanishes the cost has a kink, at which the search may get stuck.
    w = min(np.asarray(solution.x, dtype=np.float64), _shortest(gram), key=lambda w: cost(w)[0])
    length = math.sqrt(max(float(w @ gram @ w), 0.0))
    if length < 1e-4:
        # Some mix of the gradients vanishes: no step helps every task.
        return np.zeros(m)
    return 1 / m + reach / length * w


def _shortest(gram: Matrix) -> Vector:
    """The mix of the gradients that is shortest."""
    values, vectors = np.linalg.eigh(gram)
    root = np.sqrt(np.clip(values, 0, None))[:, None] * vectors.T
    # Whatever the sum is drawn to one with, the best direction stays the same.
    w = nnls(np.vstack([root, np.ones(len(gram))]), np.append(np.zeros(len(gram)), 1.0))[0]
    return np.asarray(w / w.sum(), dtype=np.float64)


def fairgrad(gram: Matrix, alpha: float) -> Vector:
    """The weights x > 0 with `G x = x^(-1/alpha)`. A task without gradient has no say."""
    heard = np.flatnonzero(np.diagonal(gram) > 0)
    found = np.zeros(len(gram))
    found[heard] = _weights(FairGradWeighting(alpha), gram[np.ix_(heard, heard)])
    return found


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
