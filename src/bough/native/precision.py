"""In which precision this machine multiplies fastest.

The trunk's products may be in bf16: weights, norms, softmax, losses and the optimiser stay in fp32.
Whether that pays is the processor's; a few products tell.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Literal

import torch

from bough.distributed import Processes
from bough.errors import UserError, shorten

Precision = Literal["fp32", "bf16"]
GAIN = 1.3  # bf16 must be so many times as fast: what is gained elsewhere is less
ROUNDS = 5
ROWS, WIDTH = 512, 768  # of the products that are timed: a few milliseconds each


def fastest(device: torch.device) -> Precision:
    """The precision to choose where none is demanded."""
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    if device.type != "cpu" or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "fp32"
    gained = _seconds(torch.float32) / _seconds(torch.bfloat16)
    return "bf16" if gained > GAIN else "fp32"


def resolve(precision: str, device: torch.device) -> Precision:
    """What `auto` means here: what BOUGH_PRECISION says, or the fastest; others mean themselves."""
    asked = os.environ.get("BOUGH_PRECISION", "auto") if precision == "auto" else precision
    if asked == "auto":
        return fastest(device)
    if asked in ("fp32", "bf16"):
        return "bf16" if asked == "bf16" else "fp32"
    name = "BOUGH_PRECISION" if precision == "auto" else "precision"
    answers = " (int8 is for answers: predict, eval and serve --precision int8)"
    raise UserError(f"{name} is {shorten(asked)}; expected auto, fp32 or bf16{answers}")


def agreed(
    precision: str, device: torch.device, processes: Processes, say: Callable[[str], None]
) -> Precision:
    """As demanded, or what is fastest for all the processes that train together."""
    chosen = resolve(precision, device)
    if precision != "auto":
        return chosen
    (fast,) = processes.sums([chosen == "bf16"])
    if fast < processes.count:
        return "fp32"
    demanded = os.environ.get("BOUGH_PRECISION", "auto") != "auto"
    why = "as BOUGH_PRECISION says" if demanded else "in which this machine is faster than in fp32"
    say(f"precision: products in bf16, {why}; weights, norms and losses stay in fp32")
    return "bf16"


def narrow(precision: Precision) -> torch.dtype | None:
    """What a network's rows are made, if they are not as its weights."""
    return torch.bfloat16 if precision == "bf16" else None


def _seconds(dtype: torch.dtype) -> float:
    """The shortest time of a product: what else runs on the machine only ever adds to it."""
    x, weight = torch.zeros(ROWS, WIDTH, dtype=dtype), torch.zeros(WIDTH, WIDTH, dtype=dtype)
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        torch.nn.functional.linear(x, weight)
        times.append(time.perf_counter() - start)
    return min(times)
