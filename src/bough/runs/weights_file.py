"""Weights written in safetensors' form as they lie: without a second copy of them in memory.

The library writes to a path, through a file of its own beside it, or makes one piece of bytes of
all tensors. A run that keeps its best model should need no room for that, and its files have to be
whole: so this writes into an open file, to the byte what the library would (a test holds it so).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch import Tensor

# As the library has them: names of types, and wide ones first, so that every tensor is aligned.
TYPES = {
    torch.int64: "I64", torch.float32: "F32", torch.int32: "I32", torch.bfloat16: "BF16",
    torch.float16: "F16", torch.bool: "BOOL",
}  # fmt: skip


class Sink(Protocol):
    """What takes bytes."""

    def write(self, data: Any, /) -> object: ...


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of what would be written."""
    whole = hashlib.sha256()
    write_weights(SimpleNamespace(write=whole.update), tensors)
    return whole.hexdigest()


def write_weights(file: Sink, tensors: Mapping[str, Tensor]) -> None:
    """The tensors, each once, by name: the same weights are always the same bytes."""
    order = [(n, t) for dtype in TYPES for n, t in sorted(tensors.items()) if t.dtype == dtype]
    if len(order) != len(tensors):
        raise TypeError(f"tensors of {[str(d) for d in TYPES]} can be written, and no others")
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in order:
        begin, end = end, end + tensor.nbytes
        offsets = [begin, end]
        kind = TYPES[tensor.dtype]
        header[name] = {"dtype": kind, "shape": [*tensor.shape], "data_offsets": offsets}
    head = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    head += b" " * (-len(head) % 8)
    file.write(len(head).to_bytes(8, "little") + head)
    for _, tensor in order:
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        file.write(raw.numpy().data)
