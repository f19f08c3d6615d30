"""What an encoder's vectors were made to be read by: its pooler, its first token or the mean.

A folder of sentence-transformers says so (`modules.json`, `1_Pooling/config.json`); else a pooler
in the checkpoint was trained to be read; else the family decides. No torch: a plan asks it, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open

from bough.errors import UserError
from bough.plan.encoder_shape import Shape
from bough.recipe.quora_caveat import saw_quora
from bough.recipe.tasks import Task

OwnPooling = Literal["pooler", "cls", "mean"]
# Of a checkpoint without pooler, by its family.
WITHOUT_POOLER: Mapping[str, tuple[OwnPooling, str]] = {
    "bert": ("mean", "without its pooler [CLS] is as raw as any token"),
    "roberta": ("cls", "<s> is what its authors fine-tune"),
    "xlm-roberta": ("cls", "<s> is what its authors fine-tune"),
    "camembert": ("cls", "<s> is what its authors fine-tune"),
    "electra": ("mean", "it was trained to judge every token, and [CLS] no more than others"),
    "distilbert": ("mean", "it was distilled without a task on [CLS]"),
    "mpnet": ("mean", "sentence encoders of this family read the mean"),
    "deberta-v2": ("cls", "[CLS] is what its authors fine-tune"),
    "modernbert": ("mean", "its local layers keep the ends of a long text from [CLS]"),
}
# sentence-transformers' name of a mode -> the nearest that we have; the last token has none.
MODES: Mapping[str, OwnPooling] = {
    "mean": "mean", "cls": "cls", "mean_sqrt_len_tokens": "mean", "weightedmean": "mean",
    "max": "mean",
}  # fmt: skip
# A mode's flag, in files written before `pooling_mode` was one word.
FLAGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class EncoderPooling:
    """An encoder's own pooling, and how it is known."""

    name: OwnPooling | None  # None: it cannot be told, or is one that we do not have
    reason: str
    compares: bool = False  # whether the encoder was made to give sentences comparable vectors

    def __str__(self) -> str:
        return f"{self.name or 'unknown'}, {self.reason}"

    def resolve(self, tasks: Mapping[str, Task]) -> dict[str, Task]:
        """The tasks, `pooling: auto` replaced by the encoder's own."""
        return {name: self._resolved(name, task) for name, task in tasks.items()}

    def _resolved(self, name: str, task: Task) -> Task:
        if task.pooling != "auto":
            return task
        if task.kind == "tag":
            return task.model_copy(update={"pooling": "words"})
        if self.name is None:
            raise UserError(
                f"tasks.{name}.pooling: auto cannot be told, {self.reason}; set mean, cls or pooler"
            )
        return task.model_copy(update={"pooling": self.name})


# A run always says its tasks' pooling; one that does not is from before, when this was the default.
BEFORE_AUTO = EncoderPooling("pooler", "the default of models from before")


def read_pooling(folder: Path, shape: Shape, names: Iterable[str] = ()) -> EncoderPooling:
    """The pooling of the encoder in this folder, which goes by these names."""
    file = folder / _pooling_folder(folder) / "config.json"
    if file.is_file():
        return _of_sentence_transformers(file)
    if saw_quora(names):  # a cache from before may lack the file
        why = "as the encoder was made for (a sentence encoder, by name)"
        return EncoderPooling("mean", why, compares=True)
    if shape.pooler:
        return EncoderPooling("pooler", "as the encoder was made for (its checkpoint has one)")
    pooling, why = WITHOUT_POOLER[shape.family]
    return EncoderPooling(pooling, f"as the encoder has no pooler ({shape.family}: {why})")


def has_pooler(folder: Path, default: bool) -> bool:
    """Whether the checkpoint has a pooler's weights, by their names; `default` if none is there."""
    try:
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            names = list(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        else:
            with safe_open(folder / "model.safetensors", "numpy") as weights:
                names = list(weights.keys())
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return default
    return any(name.endswith("pooler.dense.weight") for name in names)


def _pooling_folder(folder: Path) -> str:
    """Where `modules.json` says that the pooling is."""
    modules = _read(folder / "modules.json")
    for module in modules if isinstance(modules, list) else ():
        if isinstance(module, dict) and str(module.get("type")).endswith(".Pooling"):
            path = str(module.get("path"))
            if Path(path).name == path:  # nothing outside of the encoder's folder
                return path
    return "1_Pooling"


def _of_sentence_transformers(file: Path) -> EncoderPooling:
    where = file.parent.name
    config = _read(file)
    modes = _modes(config) if isinstance(config, dict) else []
    if not modes:
        return EncoderPooling(None, f"{file} names no pooling")
    known = [MODES[mode] for mode in modes if mode in MODES]
    if not known:
        return EncoderPooling(None, f"the encoder's own is {' and '.join(modes)} ({where})")
    pooling: OwnPooling = "mean" if "mean" in known else known[0]
    if modes == [pooling]:
        return EncoderPooling(pooling, f"as the encoder was made for ({where})", compares=True)
    why = f"the nearest to {' and '.join(modes)}, which the encoder was made for ({where})"
    return EncoderPooling(pooling, why, compares=True)


def _modes(config: Mapping[str, Any]) -> list[str]:
    mode = config.get("pooling_mode")
    if mode is None:
        return [name for flag, name in FLAGS.items() if config.get(flag) is True]
    return [str(one) for one in (mode if isinstance(mode, list) else [mode])]


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
