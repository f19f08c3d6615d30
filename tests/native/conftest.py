"""Kernels want a compiler: these tests are skipped, and say so, where there is none."""

from __future__ import annotations

import pytest

from bough.native.build import library


@pytest.fixture
def kernels() -> None:
    if library() is None:
        pytest.skip("no C compiler, or BOUGH_NATIVE=0: there are no kernels to try")
