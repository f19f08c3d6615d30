"""The norm of a sum, with and without a kernel."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bough.native import kernels
from bough.native.norm import norm_of, norm_of_sum, wide


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [32, 20])  # the second has no kernel
def test_equals_torch(dtype: torch.dtype, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    norm = nn.LayerNorm(width)
    nn.init.normal_(norm.weight)
    x, z = torch.randn(9, width).to(dtype), torch.randn(9, width).to(dtype)
    keep = torch.rand(9, width) > 0.5
    wanted = norm(x.float() + z.float() * keep * 2)
    error = 1e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(
        norm_of_sum(x, z, keep, 2.0, norm).float(), wanted, atol=error, rtol=error
    )
    monkeypatch.setattr(kernels, "available", lambda *rows: False)
    torch.testing.assert_close(
        norm_of_sum(x, z, keep, 2.0, norm).float(), wanted, atol=error, rtol=error
    )
    assert norm_of(x, norm).dtype == dtype


def test_wide() -> None:
    assert wide(torch.zeros(1).bfloat16()).dtype == torch.float32
    assert wide(torch.zeros(1).double()).dtype == torch.float64
