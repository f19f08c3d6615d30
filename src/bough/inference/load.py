"""Opening a model: one way for all that bough has written, whatever computes its answers."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors

from bough.errors import UserError
from bough.inference import onnx_model
from bough.inference.device import device_of
from bough.inference.folder import WEIGHTS_FILE, find, read_metadata
from bough.inference.model import Model
from bough.inference.onnx_names import TEXTS_FILE
from bough.inference.torch_model import MultiTaskModel
from bough.parts_of_speech.taggers import tagger
from bough.runs.model_facts import digest
from bough.runs.run_dir import Run


def load(
    source: str | os.PathLike[str] | Run,
    device: str = "cpu",
    *,
    threads: int | None = None,
    precision: str = "auto",
) -> Model:
    """Open a model; a folder of `bough export --onnx` answers through onnxruntime, others by torch.

    Args:
        source: A run or its directory, a model folder, an ONNX folder, or an id on the hub.
        device: Where torch computes: `cpu`, `cuda`, `cuda:N`, `mps` or `auto`.
        threads: Of one pass. Torch has one such number for the whole process.
        precision: Of the trunk's products: `fp32`, `bf16`, or `auto`, the faster one here; or
            `int8`, if `bough eval RUN --precision int8` has measured what that costs.

    Raises:
        UserError: There is no model, it is damaged, the device is not there, or `threads` is none.

    Example:
        >>> model = bough.load("runs/first")
        >>> model.predict("A fine film.")["sentiment"].label in model.tasks["sentiment"].labels
        True
    """
    if threads is not None and threads < 1:
        raise UserError(f"threads is {threads}; expected 1 or more")
    folder = find(source)
    if is_onnx(folder):
        if device not in ("auto", "cpu"):
            raise UserError(f"{folder}: an ONNX export is run on the cpu, not on {device}")
        if precision != "auto":
            raise UserError(
                f"{folder}: an ONNX export answers in the precision it was written in; leave "
                f"precision {precision!r} out, or name the run itself"
            )
        return onnx_model.load(folder, threads)
    if threads is not None:
        torch.set_num_threads(threads)
    model = load_torch(folder, device)
    model.answer_in(precision)
    if precision == "int8" and not model.facts.get("int8"):
        named = source.folder if isinstance(source, Run) else source
        raise UserError(
            f"{named}: what int8 costs this model's scores has not been measured; do so first, "
            f"on the dev rows of all its tasks: bough eval {named} --precision int8"
        )
    return model


def load_torch(source: str | os.PathLike[str] | Run, device: str = "cpu") -> MultiTaskModel:
    """The model with its weights in torch, in fp32: to be trained or exported."""
    place = device_of(device)
    folder = find(source)
    if is_onnx(folder):
        raise UserError(
            f"{folder}: an ONNX export, whose weights torch cannot read; name the run it came from"
        )
    network, tokenizer, longest, facts = read_metadata(folder)
    weights = folder / WEIGHTS_FILE
    try:
        content = weights.read_bytes()  # mapped, it would change the model when overwritten
        tensors = load_tensors(content)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{weights}: cannot be read ({error})") from None
    try:
        network.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise UserError(f"{weights}: does not fit the config.json beside it ({reason})") from None
    facts["sha256"] = digest([content])
    network.unfreeze()
    network.to(place)
    if network.shape.tagger:
        tagger(network.shape.tagger)  # whose package is missed now, and not by the first text
    return MultiTaskModel(network, tokenizer, longest, facts, origin=folder)


def is_onnx(folder: Path) -> bool:
    return (folder / TEXTS_FILE).is_file() and not (folder / WEIGHTS_FILE).is_file()
