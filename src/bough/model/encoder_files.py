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
from bough.plan.encoder_shape import Shape


def weight_files(folder: Path) -> list[Path]:
    index, old = folder / "model.safetensors.index.json", folder / "pytorch_model.bin"
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    if index.is_file():
        return read_index(index)
    if old.is_file():
        return [old]
    raise UserError(f"{folder}: no model.safetensors there; an encoder folder has one")


def read_tensors(folder: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for file in weight_files(folder):
        if file.suffix == ".bin":
            return read_bin(file)
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


def read_tokenizer(folder: Path, shape: Shape) -> Tokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise UserError(
            f"{file}: no such file; save the encoder's fast tokenizer there "
            "(transformers: AutoTokenizer.from_pretrained(...).save_pretrained(folder))"
        )
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except BaseException as error:  # tokenizers raises plain Exception, and worse from its core
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise UserError(f"{file}: not a tokenizer file ({error})") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    _check(tokenizer, shape, file)
    return tokenizer


def _check(tokenizer: Tokenizer, shape: Shape, file: Path) -> None:
    """That its tokens are rows of the encoder's tables, and each text begins with a special one."""
    try:
        # Letters that hardly a vocabulary has: what stands for them must be there.
        texts = [tokenizer.encode(text) for text in ("a text", "\ua500 \U00013000")]
        pair = tokenizer.encode("one", "other")
    except BaseException as error:  # tokenizers raises plain Exception, and worse from its core
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise UserError(f"{file}: cannot read a text ({error})") from None
    for encoding in (*texts, pair):
        if sum(encoding.special_tokens_mask) == len(encoding.ids) and encoding is not texts[1]:
            raise UserError(f"{file}: makes no tokens of a text; save the encoder's tokenizer anew")
        if not encoding.special_tokens_mask[:1] == [1]:
            raise UserError(
                f"{file}: puts no special token before a text, as [CLS]; save the encoder's "
                "tokenizer anew, with its post-processor"
            )
    vocabulary = tokenizer.get_vocab()
    largest = max([*vocabulary.values(), *(i for e in (*texts, pair) for i in e.ids)])
    if largest >= shape.vocabulary:
        raise UserError(
            f"{file}: has a token of number {largest:,}, and the encoder knows "
            f"{shape.vocabulary:,}; it is of another encoder"
        )
    highest = max(i for e in (*texts, pair) for i in e.type_ids)
    if shape.types > 1 and highest >= shape.types:
        raise UserError(
            f"{file}: numbers texts, as those of a pair, up to {highest}, and the encoder "
            f"knows {shape.types}; it is of another encoder"
        )
