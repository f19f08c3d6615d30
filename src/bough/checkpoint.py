"""A model's trunk, or one task, as a checkpoint that `transformers` loads.

The trunk goes back under its family's own names, LoRA merged into its matrices. A task goes along
where its family's sequence classifier computes the same; what it cannot compute is named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from tokenizers import Tokenizer
from torch import Tensor, nn

from bough.adapters import LoRA, Narrow
from bough.encoder import expected
from bough.export import new_folder
from bough.families import FAMILIES, Shape
from bough.files import write_atomically
from bough.heads import Dense, Head
from bough.mistakes import Mistake
from bough.model import MultiTaskModel, load
from bough.network import Network
from bough.plan import Cell, Step
from bough.trunk import Pooler

Tensors = dict[str, Tensor]


class Reader(NamedTuple):
    """How a family's sequence classifier reads [CLS]: its hidden layer, and its tensors' names."""

    model: str
    activation: str
    hidden: str
    output: str


ROBERTA = ("tanh", "classifier.dense", "classifier.out_proj")
READERS: Mapping[str, Reader] = {
    "bert": Reader("BertForSequenceClassification", "tanh", "bert.pooler.dense", "classifier"),
    "roberta": Reader("RobertaForSequenceClassification", *ROBERTA),
    "xlm-roberta": Reader("XLMRobertaForSequenceClassification", *ROBERTA),
    "camembert": Reader("CamembertForSequenceClassification", *ROBERTA),
    "mpnet": Reader("MPNetForSequenceClassification", *ROBERTA),
    "distilbert": Reader(
        "DistilBertForSequenceClassification", "relu", "pre_classifier", "classifier"
    ),
}  # ELECTRA's has a GELU, which no head of ours has
TRUNKS = {
    "bert": "BertModel",
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
    "camembert": "CamembertModel",
    "electra": "ElectraModel",
    "distilbert": "DistilBertModel",
    "mpnet": "MPNetModel",
}
SPECIALS = {
    "pad_token": ("[PAD]", "<pad>"),
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "unk_token": ("[UNK]", "<unk>"),
    "mask_token": ("[MASK]", "<mask>"),
}


def write_transformers(
    source: str | Path, folder: str | Path, task: str | None = None, trunk: bool = False
) -> Path:
    """The common trunk; or one task with its trunk; or, with `trunk`, that task's trunk alone."""
    model = load(source)
    if task is not None and task not in model.tasks:
        raise model.unknown(task)
    with new_folder(folder) as part:
        write_checkpoint(model, part, task, trunk)
    return Path(folder)


def write_checkpoint(
    model: MultiTaskModel, folder: Path, task: str | None, trunk: bool = False
) -> None:
    """The folder's files: weights, config, tokenizer."""
    network = model.network
    family = network.shape.family
    prefix = FAMILIES[family].prefix
    walker = task or _common(network)
    tensors = _trunk(network, walker)
    config = network.shape.config()
    if task is None or trunk:
        config["architectures"] = [TRUNKS[family]]
        pooler = next((s.cell for s in network.plan.way(walker) if s.cell.place == "pooler"), None)
        if pooler is not None and FAMILIES[family].pooler:
            tensors |= _named("pooler.dense", _dense(network.cells[pooler.key]))
    else:
        read_out, settings = _task(network, task)
        tensors = {prefix + name: tensor for name, tensor in tensors.items()} | read_out
        config |= settings
    content = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(folder / "model.safetensors", save(content, {"format": "pt"}))
    _write_json(folder / "config.json", config)
    write_atomically(folder / "tokenizer.json", model.tokenizer.to_str())
    settings = _tokenizer_settings(model.tokenizer, network.shape, model.longest)
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(file: Path, content: Any) -> None:
    write_atomically(file, json.dumps(content, indent=1) + "\n")


# The trunk.


def _common(network: Network) -> str:
    """A task that may speak for all: they share every step of the trunk."""
    plan = network.plan
    first, *others = plan.tasks
    for other in others:
        if _trunk_way(network, other) != _trunk_way(network, first):
            raise Mistake(
                f"under plan {plan.text!r} tasks {first!r} and {other!r} have different trunks; "
                "choose one with --task"
            )
    return first


def _trunk_way(network: Network, task: str) -> list[Step]:
    return [s for s in network.plan.way(task) if s.cell.place.startswith(("embeddings", "layer "))]


def _trunk(network: Network, task: str) -> Tensors:
    """The tensors on this task's way, under the family's names, without prefix."""
    shape = network.shape
    ours: Tensors = {}
    for step in _trunk_way(network, task):
        own = {
            k: v.detach().float().cpu()
            for k, v in network.cells[step.cell.key].state_dict().items()
        }
        for adapter, cell in step.adapters:
            module = network.cells[cell.key]
            if not isinstance(module, LoRA):
                raise _hindered(f"task {task!r} has {adapter.kind} adapters in its trunk")
            _merge(own, module, int(step.cell.place.split()[1]), shape.width)
        ours |= {f"{step.cell.place}.{name}": tensor for name, tensor in own.items()}
    names = expected(replace(shape, pooler=False))
    out: Tensors = {}
    for name, theirs in names.items():
        parts = ours[name].chunk(len(theirs))
        out |= dict(zip(theirs, parts, strict=True))
    return out


def _merge(own: Tensors, module: LoRA, n: int, width: int) -> None:
    """W + B A, for every matrix that the adapter changes."""
    names = {"o": "out", "i": "up", "f": "down"}
    for letter in module.matrices:
        part = module.parts[f"{n}{letter}"]
        assert isinstance(part, Narrow)
        change = (part.up.weight @ part.down.weight).detach().float().cpu()
        if letter in "qkv":
            start = "qkv".index(letter) * width
            own["qkv.weight"] = own["qkv.weight"].clone()
            own["qkv.weight"][start : start + width] += change
        else:
            own[f"{names[letter]}.weight"] = own[f"{names[letter]}.weight"] + change


def _hindered(what: str, more: str = "") -> Mistake:
    return Mistake(
        f"{what}, which transformers has no place for; export it with --onnx instead{more}"
    )


# One task.


def _task(network: Network, name: str) -> tuple[Tensors, dict[str, Any]]:
    """The tensors and settings of the family's sequence classifier for this task."""
    task, family = network.tasks[name], network.shape.family
    _check_form(network, name)
    reader = READERS.get(family)
    chain = _chain(network, name)
    wanted = None if reader is None else [reader.activation]
    if reader is None or [activation for activation, _ in chain] != wanted:
        has = " and ".join(f"a {a} layer" for a, _ in chain) or "nothing"
        theirs = "a gelu layer" if reader is None else f"a {reader.activation} layer"
        raise _apart(
            f"task {name!r} has {has} between [CLS] and its output where {family} models of "
            f"transformers have {theirs}"
        )
    ((_, hidden),) = chain
    if hidden.weight.shape != (network.shape.width, network.shape.width):
        raise _apart(f"task {name!r} has a hidden layer of width {len(hidden.weight)}")
    weight, bias, settings = _output(network, name)
    tensors = _named(reader.hidden, hidden)
    tensors |= {f"{reader.output}.weight": weight, f"{reader.output}.bias": bias}
    labels = dict(enumerate(task.labels or ("value",)))
    settings |= {
        "architectures": [reader.model],
        "id2label": labels,
        "label2id": {label: i for i, label in labels.items()},
    }
    return tensors, settings


def _apart(what: str) -> Mistake:
    return _hindered(what, ", or its trunk alone with --trunk")


def _check_form(network: Network, name: str) -> None:
    task = network.tasks[name]
    sources = [read.source for read in network.plan.reading(name)]
    if sources:
        raise _apart(f"task {name!r} reads the output of {sources[0]!r}")
    if task.twin:
        raise _apart(f"task {name!r} encodes the two texts of a pair apart")
    if task.pooling == "mean":
        raise _apart(f"task {name!r} reads the mean of the tokens")
    for what in ("norm", "project"):
        if getattr(task, what):
            raise _apart(f"task {name!r} has a {what!r} before its head")
    if task.kind == "classify" and task.loss_name not in ("ce", "bce"):
        raise _apart(f"task {name!r} has outputs for loss {task.loss_name!r}")


def _chain(network: Network, name: str) -> list[tuple[str, nn.Linear]]:
    """The layers between [CLS] and the output layer."""
    chain = []
    for step in network.plan.way(name):
        module = network.cells[step.cell.key]
        if isinstance(module, Pooler):
            chain.append(("tanh", module.dense))
        elif isinstance(module, Dense):
            chain.append(("relu", module.linear))
    hidden = _head(network, name).hidden
    assert hidden is not None
    return chain + [("relu", _dense(dense)) for dense in hidden]


def _head(network: Network, name: str) -> Head:
    head = network.cells[Cell("head", name).key]
    assert isinstance(head, Head)
    return head


def _dense(module: nn.Module) -> nn.Linear:
    linear = module.dense if isinstance(module, Pooler) else module.linear
    assert isinstance(linear, nn.Linear)
    return linear


def _output(network: Network, name: str) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """The output layer as transformers reads it.

    Of two classes ours has one logit z: theirs get [0, z], whose softmax is our sigmoid. Ours gives
    a number as its share of the range: theirs is the number itself, the range multiplied in.
    """
    task, output = network.tasks[name], _head(network, name).output
    assert output is not None
    weight, bias = output.weight.detach().float().cpu(), output.bias.detach().float().cpu()
    if task.kind == "regress":
        assert task.range is not None
        low, high = task.range
        return weight * (high - low), bias * (high - low) + low, {"problem_type": "regression"}
    if task.loss_name == "bce":
        weight = torch.cat([torch.zeros_like(weight), weight])
        bias = torch.cat([torch.zeros_like(bias), bias])
    return weight, bias, {"problem_type": "single_label_classification"}


def _named(name: str, linear: nn.Linear) -> Tensors:
    return {
        f"{name}.weight": linear.weight.detach().float().cpu(),
        f"{name}.bias": linear.bias.detach().float().cpu(),
    }


def _tokenizer_settings(tokenizer: Tokenizer, shape: Shape, longest: int) -> dict[str, Any]:
    """What tokenizer.json does not say: the special tokens' parts and the model's inputs."""
    inputs = ["input_ids", "attention_mask"]
    if shape.types > 1:
        inputs.insert(1, "token_type_ids")
    found = {
        part: next((word for word in words if tokenizer.token_to_id(word) is not None), None)
        for part, words in SPECIALS.items()
    }
    return {
        # The family's own class would put its own splitting and templates in place of the file's.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "model_input_names": inputs,
        **{part: word for part, word in found.items() if word is not None},
    }
