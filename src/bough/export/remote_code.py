"""A task in transformers' form that none of its own classes can hold: the code goes along.

The folder has `modeling_bough.py` and `modeling_bough_trunk.py` (which need torch and transformers,
not bough), the weights under our cells' names, and in its config the cells on the path of the task
and of every task that it reads. LoRA is merged into the matrices it changes.
"""

from __future__ import annotations

from importlib import resources
from typing import Any, assert_never

from torch import Tensor

from bough.errors import UserError
from bough.model.adapters import LoRA, Narrow
from bough.model.heads import FUSED
from bough.model.network import Network
from bough.plan.plan import Cell, Step
from bough.recipe.tasks import Task

Tensors = dict[str, Tensor]
CODE = "modeling_bough.py"
TRUNK = "modeling_bough_trunk.py"


def code() -> dict[str, bytes]:
    """The files that go along."""
    folder = resources.files("bough.export")
    return {name: (folder / name).read_bytes() for name in (CODE, TRUNK)}


def carried(network: Network, name: str, trunk: bool) -> tuple[Tensors, dict[str, Any]]:
    """The tensors and the config of a task, or of its trunk alone."""
    if network.tasks[name].twin and not trunk:
        raise UserError(
            f"task {name!r} encodes the two texts of a pair apart, which a classifier of "
            "transformers has no place for; export it with --onnx instead, or its trunk alone "
            "with --trunk"
        )
    tensors: Tensors = {}
    paths, adapters = {}, {}
    for task in [name] if trunk else [*network.plan.sources(name), name]:
        steps = []
        for step in network.plan.path(task):
            kind, _, number = step.cell.place.partition(" ")
            if trunk and kind == "late":
                continue
            key, weights = merged(network, step)
            tensors |= {f"cells.{key}.{part}": tensor for part, tensor in weights.items()}
            adapters_here = [(a, c) for a, c in step.adapters if a.kind != "lora"]
            for adapter, cell in adapters_here:
                adapters[cell.key] = {
                    "kind": adapter.kind,
                    "size": adapter.size,
                    "heads": adapter.heads,
                    "layers": [f"{n}" for n in range(adapter.first, adapter.last + 1)],
                }
                tensors |= _cell(network, cell)
            steps.append([key, kind, int(number or 0), [cell.key for _, cell in adapters_here]])
        pooling = "mean" if network.tasks[task].pooling == "mean" else "first"
        paths[task] = {"steps": steps, "pooling": pooling}
        if not trunk:
            tensors |= _cell(network, Cell("head", task))
    parts = ("AutoModel", "BoughModel")
    if not trunk:
        parts = ("AutoModelForSequenceClassification", "BoughForSequenceClassification")
    stem = CODE.removesuffix(".py")
    shape = network.shape
    config: dict[str, Any] = {
        "model_type": "bough",
        "architectures": [parts[1]],
        "auto_map": {"AutoConfig": f"{stem}.BoughConfig", parts[0]: f"{stem}.{parts[1]}"},
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "vocab_size": shape.vocabulary,
        "shape": vars(shape) | {"offset": shape.offset, "network": shape.network},
        "task": name,
        "paths": paths,
        "adapters": adapters,
    }
    if not trunk:
        config["heads"] = {task: _head(network, task) for task in paths}
    return tensors, config


def _cell(network: Network, cell: Cell) -> Tensors:
    return {f"cells.{cell.key}.{name}": tensor for name, tensor in _state(network, cell).items()}


def _state(network: Network, cell: Cell) -> Tensors:
    return {k: v.detach().float().cpu() for k, v in network.cells[cell.key].state_dict().items()}


def output_form(task: Task) -> str:
    """What the outputs are, as `modeling_bough` tells them apart."""
    match task.kind:
        case "classify" | "ordinal":
            return task.loss_name
        case "multilabel":
            return "multilabel"
        case "regress":
            return "number"
        case "tag":
            return "tags"
        case _:
            assert_never(task.kind)


def _head(network: Network, name: str) -> dict[str, Any]:
    task = network.tasks[name]
    return {
        "norm": task.norm,
        "project": task.project,
        "hidden": [task.width] * (task.depth - 1) if task.head == "mlp" else [],
        "outputs": task.outputs,
        "form": output_form(task),
        "range": task.range or task.scale,
        "temperature": task.temperature or 1.0,
        "reads": [read.source for read in network.plan.reading(name)],
        "imports": network.imports[name],
        "reads_as": task.reads_as,
        "fusion": task.fusion,
        "fused": FUSED,
    }


def merged(network: Network, step: Step) -> tuple[str, Tensors]:
    """A cell's weights with its LoRA adapters in them, W + B A, and what this cell is called."""
    weights, key = _state(network, step.cell), step.cell.key
    names = {"o": "out", "i": "up", "f": "down"}
    width = network.shape.width
    for _, cell in step.adapters:
        module = network.cells[cell.key]
        if not isinstance(module, LoRA):
            continue
        key += f"+{cell.key}"
        number = int(step.cell.place.split()[1])
        for letter in module.matrices:
            part = module.parts[f"{number}{letter}"]
            assert isinstance(part, Narrow)
            change = (part.up.weight @ part.down.weight).detach().float().cpu()
            if letter in "qkv":
                start = "qkv".index(letter) * width
                weights["qkv.weight"] = weights["qkv.weight"].clone()
                weights["qkv.weight"][start : start + width] += change
            else:
                weights[f"{names[letter]}.weight"] = weights[f"{names[letter]}.weight"] + change
    return key, weights
