"""A device is one that this machine has."""

from __future__ import annotations

import pytest

from bough.errors import UserError
from bough.inference.device import device_of


def test_a_device_that_is_there() -> None:
    assert device_of("cpu").type == "cpu"
    assert device_of("auto").type in ("cpu", "cuda")


@pytest.mark.parametrize(
    ("device", "said"), [("foo", "expected auto, cpu"), ("cuda:99", "torch sees none such here")]
)
def test_a_device_that_is_not_there(device: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        device_of(device)
