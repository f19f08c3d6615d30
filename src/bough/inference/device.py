"""Where torch computes: the device that a name means, if this machine has it."""

from __future__ import annotations

import re

import torch

from bough.errors import UserError


def device_of(name: str) -> torch.device:
    """The device of this name, or for `auto` the best one here."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", name):
        raise UserError(f"device is {name!r}; expected auto, cpu, cuda, cuda:N or mps")
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": torch.backends.mps.is_available()}
    kind, _, number = name.partition(":")
    if int(number or 0) >= count[kind]:
        raise UserError(f"device is {name!r}, but torch sees none such here; set it to cpu")
    return torch.device(name)
