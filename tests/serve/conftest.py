"""Fixtures of the server's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving import Server, model, served


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model().save(tmp_path_factory.mktemp("served") / "model")


@pytest.fixture(scope="session")
def server(folder: Path) -> Iterator[Server]:
    with served(folder, "--threads", "2") as process:
        yield process
