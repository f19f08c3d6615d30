"""Fixtures that several test files use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bough.errors import UserError
from bough.model import pretrained
from bough.model.pretrained import Encoder
from tests import folders, tiny

# `precision: auto` is fp32 on every machine, also in the processes that tests start; what is about
# bf16 says so. Before any test module is read: some keep the environment that they find.
os.environ["BOUGH_PRECISION"] = "fp32"


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Small products are faster, and the same everywhere, on one thread."""
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test finds or leaves states in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOUGH_CACHE", str(tmp_path_factory.mktemp("states")))
        yield


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder's folder, `rows` with a few of the embedded rows beside it."""
    folder = tmp_path_factory.mktemp("tiny")
    folders.data(folder / "rows")
    return folders.encoder(folder / "encoder", width=16)


@pytest.fixture(scope="session")
def tiny_encoder() -> Encoder:
    return tiny.encoder()


@pytest.fixture(scope="session")
def minilm() -> Encoder:
    try:
        return pretrained.load("minilm")
    except UserError:
        pytest.skip("the package with MiniLM is not installed")
