"""Models to export, and how far an export's answers are from theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.export.onnx_export import write_files
from bough.export.onnx_modules import PairsModule, TextsModule
from bough.inference import onnx_model
from bough.inference.model import Model, Text
from bough.inference.onnx_names import IDS, TYPES
from bough.inference.torch_model import MultiTaskModel
from bough.plan.plan import Plan
from bough.recipe.tasks import Task
from tests import tiny

CLOSE = 1e-4
TASKS = {
    "a": tiny.task(),
    "b": tiny.task(joint=True, number=True),
    "c": tiny.task(joint=True, labels=("no", "yes")),
}
TWINS = {
    "a": tiny.task(),
    "b": tiny.task(joint=True, number=True, pooling="mean"),
    "c": tiny.task(twin=True, labels=("no", "yes")),
    "d": tiny.task(twin=True, number=True, head="cosine"),
}


def sentences(count: int, seed: int = 0, longest: int = 9) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(tiny.WORDS, rng.integers(1, longest))) for _ in range(count)]


def mixed(count: int = 9) -> list[Text]:
    """Single texts and pairs by turns."""
    some = sentences(2 * count)
    return [
        a if i % 2 else (a, b) for i, (a, b) in enumerate(zip(some[::2], some[1::2], strict=True))
    ]


def pairs(count: int = 9) -> list[Text]:
    return [text for text in mixed(count) if isinstance(text, tuple)]


def model_of(
    plan: str | Plan, tasks: Mapping[str, Task], family: str = "bert", **sizes: Any
) -> MultiTaskModel:
    source = tiny.encoder(family, **sizes)
    fitting = {
        n: t
        if t.pooling != "pooler" or source.shape.pooler
        else t.model_copy(update={"pooling": "cls"})
        for n, t in tasks.items()
    }
    network = tiny.network(plan, fitting, source, stir=0.1)
    return MultiTaskModel(network, source.tokenizer, source.shape.longest)


def exported(model: MultiTaskModel, folder: Path, int8: bool = False) -> onnx_model.OnnxModel:
    """The model written and loaded; seconds for every graph, so most tests take `untraced`."""
    folder.mkdir(exist_ok=True)
    write_files(model, folder, int8)
    for file in folder.glob("*.onnx"):
        onnx.checker.check_model(str(file), full_check=True)
    return onnx_model.load(folder, threads=1)


class Untraced:
    """The module that a graph is traced from, run as the graph is."""

    def __init__(self, module: TextsModule | PairsModule):
        self.module = module

    def run(self, names: Sequence[str], feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        given = {name: torch.from_numpy(value) for name, value in feeds.items()}
        with torch.no_grad():
            if isinstance(self.module, TextsModule):
                values = self.module(given[IDS], given[TYPES])
            else:
                values = self.module([given[name] for name in self.module.inputs])
        named = dict(zip(self.module.outputs, values, strict=True))
        return [named[name].numpy() for name in names]


def untraced(model: MultiTaskModel) -> onnx_model.OnnxModel:
    """What an export computes, without ONNX between."""
    return onnx_model.OnnxModel(
        model.network,
        model.tokenizer,
        model.longest,
        {},
        Untraced(TextsModule(model.network)),
        Untraced(PairsModule(model.network)),
    )


def by_number(answered: tuple[list[int], Tensor]) -> Tensor:
    return answered[1][torch.tensor(answered[0]).argsort()]


def worst(
    model: Model, other: Model, texts: list[Text], asked: list[tuple[str, ...]] | None = None
) -> float:
    """The largest difference of any output of any task."""
    asked = asked or [model.asked(text, None, i) for i, text in enumerate(texts)]
    ours, theirs = (m.outputs(*m.forms(texts, asked), asked) for m in (model, other))
    assert ours.keys() == theirs.keys()
    for task in ours:
        assert sorted(ours[task][0]) == sorted(theirs[task][0])
    return max(float((by_number(ours[t]) - by_number(theirs[t])).abs().max()) for t in ours)
