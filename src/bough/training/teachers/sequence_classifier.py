"""A sequence classifier in transformers' format, opened as a model of one task.

Each family reads [CLS] through one layer more before its output; that layer takes the place that
our pooler or a head's hidden layer has. A folder that `bough export` wrote with its own code is
opened, too; the code in it is not run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from bough.errors import UserError, shorten
from bough.inference.torch_model import MultiTaskModel
from bough.model.encoder_files import read_tensors, read_tokenizer
from bough.model.families.weight_names import CLASSIFIERS, translate
from bough.model.heads import Dense, Head
from bough.model.network import Network, plan_of
from bough.plan.encoder_shape import Shape
from bough.plan.plan import Cell
from bough.recipe.labels import class_name
from bough.recipe.tasks import Task

NAME = "task"  # what the one task is called
CARRIED = "bough"  # the model_type of a folder that has bough's own code
SEVERAL = "multi_label_classification"  # what transformers calls several labels at once


class GeluLayer(nn.Module):
    """ELECTRA's, which no head of ours has."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.linear(x))


def is_classifier(folder: Path) -> bool:
    """Whether this is a folder in transformers' format."""
    return "model_type" in _config(folder)


def _config(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{folder / 'config.json'}: cannot be read ({error})") from None
    return content if isinstance(content, dict) else {}


def open_classifier(
    folder: Path, asking: Task, range_: tuple[float, float] | None
) -> MultiTaskModel:
    """The model, its one task called NAME, on texts of the form that `asking` has.

    `range_` has the lowest and the highest number of one that answers with numbers; where nobody
    knows them, it may answer any.
    """
    config = _config(folder)
    labels = _labels(config, folder)
    settings: dict[str, Any] = {"text": asking.text}
    if labels is None:
        written = config.get("label_range")  # by `bough export`
        ends = range_ or (tuple(written) if written else asking.range)
        settings |= {"kind": "regress", "range": ends, "scale": None if ends else (0.0, 1.0)}
    elif config.get("problem_type") == SEVERAL:
        settings |= {"kind": "multilabel", "labels": labels}
    else:
        settings |= {"kind": "classify", "labels": labels, "loss": "ce"}
    if config["model_type"] == CARRIED:
        return _carried(folder, config, settings)
    return _stock(folder, settings)


def _labels(config: Mapping[str, Any], folder: Path) -> tuple[str, ...] | None:
    """The classes in order; None where the answer is a number."""
    named = config.get("id2label")
    if not isinstance(named, Mapping):
        named = {i: f"LABEL_{i}" for i in range(2)}  # as transformers has it
    if config.get("problem_type") == "regression" or len(named) == 1:
        return None
    try:
        return tuple(class_name(named[key]) for key in sorted(named, key=int))
    except ValueError:
        raise UserError(f"{folder / 'config.json'}: id2label is {shorten(named)}") from None


def _stock(folder: Path, settings: dict[str, Any]) -> MultiTaskModel:
    """One of a family's own classes."""
    shape = Shape.read(folder)
    reader = CLASSIFIERS.get(shape.family)
    if reader is None:
        known = ", ".join(CLASSIFIERS)
        raise UserError(f"{folder}: classifiers of {shape.family} are not read, only of {known}")
    theirs = read_tensors(folder)
    parts = [f"{part}.{kind}" for part in reader[1:] for kind in ("weight", "bias")]
    missing = [name for name in parts if name not in theirs]
    if missing:
        raise UserError(
            f"{folder}: has no tensor {missing[0]!r}: it is no sequence classifier of "
            f"{shape.family}; name one that was fine-tuned"
        )
    hidden_weight, hidden_bias, weight, bias = (theirs[part].float() for part in parts)
    trunk, _ = translate(theirs, shape, folder)
    if reader.activation == "tanh":
        settings |= {"pooling": "pooler"}
        trunk |= {"pooler.dense.weight": hidden_weight, "pooler.dense.bias": hidden_bias}
    else:
        settings |= {"pooling": "cls", "head": "mlp", "depth": 2, "width": shape.width}
    network = _network(Task(**settings), replace(shape, pooler=reader.activation == "tanh"))
    head = _head(network)
    for cell in network.plan.users():
        if cell.place != "head":
            own = {k[len(cell.place) + 1 :]: v for k, v in trunk.items() if _of(k, cell.place)}
            network.cells[cell.key].load_state_dict(own, assign=True)
    state = {"output.weight": weight, "output.bias": bias}
    if reader.activation != "tanh":
        state |= {"hidden.0.linear.weight": hidden_weight, "hidden.0.linear.bias": hidden_bias}
    _fill(head, state, folder)
    if reader.activation == "gelu":
        assert head.hidden is not None
        relu = head.hidden[0]
        assert isinstance(relu, Dense)
        head.hidden[0] = GeluLayer(relu.linear)
    task, output = network.tasks[NAME], head.output
    if task.range is not None:  # theirs is the number itself, ours its share of the range
        assert output is not None
        low, high = task.range
        output.weight = nn.Parameter(output.weight / (high - low))
        output.bias = nn.Parameter((output.bias - low) / (high - low))
    return _model(network, folder)


def _of(name: str, place: str) -> bool:
    return name.startswith(f"{place}.")


def _carried(folder: Path, config: Mapping[str, Any], settings: dict[str, Any]) -> MultiTaskModel:
    """What `bough export` wrote with its own code: cells under our names."""
    advice = "name the run it came from instead"
    if "heads" not in config:
        raise UserError(f"{folder}: a trunk without a head answers nothing; {advice}")
    name, heads, paths = config["task"], config["heads"], config["paths"]
    head, path = heads[name], paths[name]
    if len(paths) > 1 or config["adapters"] or any(step[1] == "late" for step in path["steps"]):
        raise UserError(f"{folder}: an export with adapters, late layers or feeds; {advice}")
    kinds = {step[1]: True for step in path["steps"]}
    pooling = "mean" if path["pooling"] == "mean" else "pooler" if "pooler" in kinds else "cls"
    settings |= {
        "pooling": pooling, "norm": head["norm"], "project": head["project"],
        "temperature": None if settings["kind"] == "regress" else head["temperature"],
    }  # fmt: skip
    if settings["kind"] == "classify":
        settings["loss"] = head["form"]
    elif settings["kind"] == "regress":  # as shares of these; one without a range may leave them
        settings["range" if config.get("label_range") else "scale"] = tuple(head["range"])
    if head["hidden"]:
        settings |= {"head": "mlp", "depth": len(head["hidden"]) + 1, "width": head["hidden"][0]}
    known = {field.name for field in fields(Shape)}  # beside what its code wants to know
    sizes = {key: value for key, value in config["shape"].items() if key in known}
    network = _network(Task(**settings), Shape(**sizes))
    theirs = read_tensors(folder)
    keys = {f"{kind} {number}".removesuffix(" 0"): key for key, kind, number, _ in path["steps"]}
    keys["head"] = Cell("head", name).key
    for cell in network.plan.users():
        start = f"cells.{keys[cell.place]}."
        own = {k[len(start) :]: v for k, v in theirs.items() if k.startswith(start)}
        _fill(network.cells[cell.key], own, folder)
    return _model(network, folder)


def _network(task: Task, shape: Shape) -> Network:
    tasks = {NAME: task}
    return Network(plan_of("full", tasks, shape), tasks, shape)


def _head(network: Network) -> Head:
    head = network.cells[Cell("head", NAME).key]
    assert isinstance(head, Head)
    return head


def _fill(module: nn.Module, state: dict[str, Tensor], folder: Path) -> None:
    try:
        module.load_state_dict(state, assign=True)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise UserError(f"{folder}: its weights do not fit its config.json ({reason})") from None


def _model(network: Network, folder: Path) -> MultiTaskModel:
    longest = network.shape.longest
    settings = folder / "tokenizer_config.json"
    if settings.is_file():
        said = json.loads(settings.read_text(encoding="utf-8")).get("model_max_length")
        if isinstance(said, int | float) and said >= 1:
            longest = min(longest, int(said))
    network.unfreeze()
    return MultiTaskModel(network, read_tokenizer(folder, network.shape), longest)
