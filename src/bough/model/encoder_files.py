"""Reading what an encoder's folder holds: its tensors under their own names, and its tokenizer.

Weights come from safetensors, or from a `.bin` file through torch's weights-only reader; code of
a checkpoint is never run.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from bough.errors import UserError


def read_tensors(folder: Path) -> dict[str, Tensor]:
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        files = [folder / "model.safetensors"]
    elif index.is_file():
        files = read_index(index)
    elif (folder / "pytorch_model.bin").is_file():
        return read_bin(folder / "pytorch_model.bin")
    else:
        raise UserError(f"{folder}: no model.safetensors there; an encoder folder has one")
    tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            tensors |= load_file(file)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{file}: cannot be read as safetensors ({error})") from None
    return tensors


def read_index(file: Path) -> list[Path]:
    """The files over which the weights are spread."""
    try:
        names = set(json.loads(file.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{file}: not an index of safetensors files") from None
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise UserError(f"{file}: names {name!r}; expected the name of a file beside it")
    return [file.parent / name for name in sorted(names)]


def read_bin(file: Path) -> dict[str, Tensor]:
    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True)
        return {name: tensor for name, tensor in loaded.items() if isinstance(tensor, Tensor)}
    except Exception as error:  # anything may come of a file that is not what it says
        raise UserError(
            f"{file}: holds more or other than weights ({type(error).__name__}) and was not "
            "loaded; save the encoder as model.safetensors"
        ) from None


def read_tokenizer(folder: Path) -> Tokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise UserError(
            f"{file}: no such file; save the encoder's fast tokenizer there "
            "(transformers: AutoTokenizer.from_pretrained(...).save_pretrained(folder))"
        )
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises plain Exception
        raise UserError(f"{file}: not a tokenizer file ({error})") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
