"""What a machine is fastest in, and what can be demanded."""

from __future__ import annotations

import pytest
import torch

from bough.errors import UserError
from bough.native import precision
from bough.native.precision import fastest, narrow, resolve

CPU = torch.device("cpu")


@pytest.mark.parametrize(("gain", "chosen"), [(3.0, "bf16"), (1.1, "fp32"), (0.2, "fp32")])
def test_the_faster_one_is_chosen(
    gain: float, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this processor has no products in bf16")
    seconds = {torch.float32: gain, torch.bfloat16: 1.0}
    monkeypatch.setattr(precision, "_seconds", seconds.__getitem__)
    monkeypatch.delenv("BOUGH_PRECISION", raising=False)
    assert fastest(CPU) == resolve("auto", CPU) == chosen


def test_what_is_demanded_is_meant() -> None:
    assert (resolve("fp32", CPU), resolve("bf16", CPU)) == ("fp32", "bf16")
    assert (narrow("fp32"), narrow("bf16")) == (None, torch.bfloat16)


def test_a_machine_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOUGH_PRECISION", "bf16")
    assert (resolve("auto", CPU), resolve("fp32", CPU)) == ("bf16", "fp32")
    monkeypatch.setenv("BOUGH_PRECISION", "half")
    with pytest.raises(UserError, match="BOUGH_PRECISION is 'half'; expected auto, fp32 or bf16"):
        resolve("auto", CPU)
