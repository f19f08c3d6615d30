"""Fixtures that several test files use."""

from __future__ import annotations

import pytest
import torch

from bough.encoder import Encoder

from . import tiny


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Small products are faster, and the same everywhere, on one thread."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_encoder() -> Encoder:
    return tiny.encoder()
