"""The convex problems, judged by their own conditions."""

import math

import numpy as np
import pytest
import torch

from bough.training.gradients.solvers import Projector, cagrad, weights
from tests.training.gradients.test_weighting import jacobian


@pytest.mark.parametrize("radius", [0.2, 0.4, 1.5])
@pytest.mark.parametrize("seed", range(30))
def test_cagrad_solves_its_problem(radius, seed):
    rows = jacobian(seed).numpy()
    gram = rows @ rows.T
    gram, rows = gram / np.trace(gram), rows / math.sqrt(np.trace(gram))
    m = len(rows)
    found = cagrad(gram, radius)
    if not found.any():  # no step helps every task: some mix of the gradients is nothing
        assert np.linalg.norm(rows.T @ _shortest(gram)) < 1e-3
        return
    mean, step = rows.mean(0), found @ rows
    assert np.linalg.norm(step - mean) == pytest.approx(radius * np.linalg.norm(mean), rel=1e-6)
    w = (found - 1 / m) / (found - 1 / m).sum()
    assert (w >= -1e-9).all()
    # Optimal: the worst-off task cannot gain, so its gain is the weighted gain of all.
    gains = rows @ step
    assert w @ gains - gains.min() < 1e-5


def _shortest(gram: np.ndarray) -> np.ndarray:
    w = np.full(len(gram), 1 / len(gram))
    for _ in range(20_000):
        toward = np.eye(len(gram))[np.argmin(gram @ w)] - w
        bend = toward @ gram @ toward
        w = w + toward * np.clip(-(toward @ gram @ w) / bend if bend > 0 else 0, 0, 1)
    return w


@pytest.mark.parametrize("seed", range(30))
def test_the_projector_solves_its_problem(seed):
    rows = jacobian(seed)
    gram = rows @ rows.T
    m = len(rows)
    for u, v in zip(torch.eye(m).double(), Projector()(torch.eye(m).double(), gram), strict=True):
        ridged = gram / gram.trace() + Projector.ridge * torch.eye(m).double()
        slope = ridged @ v
        assert (v >= u - 1e-12).all()
        assert (slope >= -1e-9).all()
        assert float(slope @ (v - u)) == pytest.approx(0, abs=1e-9)


def test_a_method_that_is_none_of_them() -> None:
    with pytest.raises(ValueError, match="no method 'pcgrad'"):
        weights("pcgrad", 0.0, np.eye(2) / 2)
