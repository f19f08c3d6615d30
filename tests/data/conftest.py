"""Fixtures of the data's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.reading import Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: str | bytes) -> str:
        raw = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(raw)
        return str(tmp_path / name)

    return write
