"""A model's trunk, or one task, as a checkpoint that `transformers` loads.

The trunk goes back under its family's own names, LoRA merged into its matrices. A task goes along
where its family's sequence classifier computes the same; where it does not, the folder carries the
code that does (`remote_code`), and the reason is told.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, assert_never

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from bough.errors import UserError
from bough.export.folder import check_leaves, new_folder
from bough.export.remote_code import Tensors, carried, code, merged, output_form
from bough.files import write_atomically
from bough.inference.load import load_torch
from bough.inference.torch_model import MultiTaskModel
from bough.model.families.weight_names import CLASSIFIERS, PREFIXES, their_tensors
from bough.model.heads import Dense, Head
from bough.model.network import Network
from bough.model.transformer import Pooler
from bough.plan.encoder_shape import FAMILIES, Shape
from bough.plan.plan import Cell, Step
from bough.recipe.tasks import Task
from bough.runs.weights_file import write_weights

CLASSES = {  # how the names of the family's classes begin
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "electra": "Electra",
    "distilbert": "DistilBert",
    "mpnet": "MPNet",
    "modernbert": "ModernBert",
    "deberta-v2": "DebertaV2",
}
SPECIALS = {
    "pad_token": ("[PAD]", "<pad>"),
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "unk_token": ("[UNK]", "<unk>"),
    "mask_token": ("[MASK]", "<mask>"),
}


NO_TAGS = (
    "a tag task has no form in transformers that answers the same: bough reads a word at its first "
    "token, cuts words itself and keeps to sequences of tags that stand for spans; take the trunk "
    "alone (--trunk), or export ONNX"
)
TRUST = ", trust_remote_code=True"


class NoPlace(Exception):
    """What the family's own classes of transformers cannot hold."""


def write_transformers(
    source: str | Path, folder: str | Path, task: str | None = None, trunk: bool = False
) -> str:
    """The common trunk; or one task with its trunk; or, with `trunk`, that task's trunk alone.

    Returns what was written, and how it is loaded.
    """
    model = load_torch(source)
    check_leaves(model.network.shape, "transformers")
    if task is not None and task not in model.tasks:
        raise model.unknown(task)
    if task is not None and not trunk and model.tasks[task].kind == "tag":
        raise UserError(NO_TAGS)
    if trunk and task is None:
        raise UserError("--trunk is the trunk of one task; name it with --task")
    with new_folder(folder) as part:
        why = write_checkpoint(model, part, task, trunk)
    call = loading(task is None or trunk, repr(str(folder)), bool(why))
    return f"{folder}: load it with transformers.{call}" + (
        f"; its code goes along, as {why}" if why else ""
    )


def loading(trunk: bool, folder: str, code: bool) -> str:
    """How a folder is loaded."""
    kind = "AutoModel" if trunk else "AutoModelForSequenceClassification"
    return f"{kind}.from_pretrained({folder}{TRUST if code else ''})"


def write_checkpoint(
    model: MultiTaskModel, folder: Path, task: str | None, trunk: bool = False
) -> str:
    """The folder's files: weights, config, tokenizer, a page; and code, if the result says why."""
    network = model.network
    chosen = _common(network) if task is None else task
    alone = task is None or trunk
    try:
        tensors, config = _stock_trunk(network, chosen) if alone else _stock_task(network, chosen)
        why = ""
    except NoPlace as reason:
        tensors, config = carried(network, chosen, alone)
        for file, content in code().items():
            write_atomically(folder / file, content)
        why = str(reason)
    if not alone:
        labels = dict(enumerate(model.tasks[chosen].labels or ("value",)))
        config |= {
            "id2label": labels,
            "label2id": {label: i for i, label in labels.items()},
            "problem_type": _reading(model.tasks[chosen])[0],
        }
        if model.tasks[chosen].range is not None:  # which transformers does not ask for
            config["label_range"] = model.tasks[chosen].range
    settings = _tokenizer_settings(model.tokenizer, network.shape, model.longest)
    for part in SPECIALS:
        if config.get(f"{part}_id", 0) is None and part in settings:
            config[f"{part}_id"] = model.tokenizer.token_to_id(settings[part])
    write_atomically(folder / "model.safetensors", partial(write_weights, tensors=tensors))
    _write_json(folder / "config.json", config | {"dtype": "float32"})
    write_atomically(folder / "tokenizer.json", model.tokenizer.to_str())
    _write_json(folder / "tokenizer_config.json", settings)
    write_atomically(folder / "README.md", _page(model, chosen, alone, why))
    return why


def _page(model: MultiTaskModel, name: str, trunk: bool, why: str) -> str:
    """What the folder is, and how it is used."""
    task, plan = model.tasks[name], model.plan.text
    what, tag, then = f"Task `{name}`", "pipeline_tag: text-classification\n", []
    if trunk:
        what, tag = f"The trunk, as task `{name}` passes it,", ""
        then = ["vectors = model(**inputs).last_hidden_state[:, 0]"]
    else:
        then = _reading(task)[1]
    call = loading(trunk, "folder", bool(why))
    texts = '"One text.", "Another text."' if task.paired and not trunk else '"One text."'
    lines = [
        "import torch",
        f"from transformers import {call.split('.')[0]}, AutoTokenizer",
        "",
        'folder = "."  # where this file is',
        # The tokenizer is of no code, but the folder's config is read with it.
        f"tokenizer = AutoTokenizer.from_pretrained(folder{TRUST if why else ''})",
        f"model = {call}.eval()",
        f'inputs = tokenizer({texts}, truncation=True, return_tensors="pt")',
        "with torch.inference_mode():",
        *(f"    {line}" for line in then),
    ]
    goes = f" Its code goes along, as {why}; it needs torch and transformers." if why else ""
    return (
        f"---\nlibrary_name: transformers\n{tag}---\n\n"
        f"{what} of a bough model with the plan `{plan}`, in transformers' form.{goes}\n\n"
        + "\n".join(["```python", *lines, "```", ""])
    )


def _reading(task: Task) -> tuple[str, list[str]]:
    """What transformers calls such a task, and how its answer is read."""
    match task.kind:
        case "multilabel":
            return "multi_label_classification", [
                "shares = model(**inputs).logits.sigmoid()[0].tolist()",
                "answer = dict(zip(model.config.id2label.values(), shares))",
            ]
        case "classify" | "ordinal":
            return "single_label_classification", [
                "shares = model(**inputs).logits.softmax(1)[0].tolist()",
                "answer = dict(zip(model.config.id2label.values(), shares))",
            ]
        case "regress":
            return "regression", ["answer = model(**inputs).logits[0, 0].item()"]
        case "tag":
            raise UserError(NO_TAGS)
        case _:
            assert_never(task.kind)


def _write_json(file: Path, content: Any) -> None:
    write_atomically(file, json.dumps(content, indent=1) + "\n")


# The trunk.


def _common(network: Network) -> str:
    """A task that may speak for all: they share every step of the trunk."""
    plan = network.plan
    first, *others = plan.tasks
    for other in others:
        if _trunk_path(network, other) != _trunk_path(network, first):
            raise UserError(
                f"under plan {plan.text!r} tasks {first!r} and {other!r} have different trunks; "
                "choose one with --task"
            )
    return first


def _trunk_path(network: Network, task: str) -> list[Step]:
    return [s for s in network.plan.path(task) if s.cell.place.startswith(("embeddings", "layer "))]


def _trunk(network: Network, task: str) -> Tensors:
    """The tensors on this task's path, under the family's names, without prefix."""
    ours: Tensors = {}
    for step in _trunk_path(network, task):
        for adapter, _ in step.adapters:
            if adapter.kind != "lora":
                raise NoPlace(
                    f"task {task!r} has {adapter.kind} adapters in its trunk, which transformers "
                    "has no place for"
                )
        ours |= {f"{step.cell.place}.{name}": t for name, t in merged(network, step)[1].items()}
    return their_tensors(ours, replace(network.shape, pooler=False))


def _stock_trunk(network: Network, chosen: str) -> tuple[Tensors, dict[str, Any]]:
    family = network.shape.family
    tensors = _trunk(network, chosen)
    for module in (network.cells[step.cell.key] for step in network.plan.path(chosen)):
        if isinstance(module, Pooler) and FAMILIES[family].pooler:
            tensors |= _named("pooler.dense", module.dense)
    return tensors, network.shape.config() | {"architectures": [f"{CLASSES[family]}Model"]}


# One task.


def _stock_task(network: Network, name: str) -> tuple[Tensors, dict[str, Any]]:
    """The tensors and settings of the family's sequence classifier for this task."""
    family = network.shape.family
    _check_form(network, name)
    trunk = _trunk(network, name)
    reader = CLASSIFIERS.get(family)
    if reader is None:
        raise NoPlace(f"classifiers of {family} in transformers read a text otherwise")
    chain = _chain(network, name)
    if [activation for activation, _ in chain] != [reader.activation]:
        has = " and ".join(f"a {a} layer" for a, _ in chain) or "nothing"
        raise NoPlace(
            f"task {name!r} has {has} between [CLS] and its output where {family} models of "
            f"transformers have a {reader.activation} layer"
        )
    ((_, hidden),) = chain
    if hidden.weight.shape != (network.shape.width, network.shape.width):
        raise NoPlace(
            f"task {name!r} has a hidden layer of width {len(hidden.weight)}, where {family} "
            f"models of transformers have {network.shape.width}"
        )
    weight, bias = _output(network, name)
    tensors = {PREFIXES[family] + part: tensor for part, tensor in trunk.items()}
    tensors |= _named(reader.hidden, hidden)
    tensors |= {f"{reader.output}.weight": weight, f"{reader.output}.bias": bias}
    architecture = f"{CLASSES[family]}ForSequenceClassification"
    return tensors, network.shape.config() | {"architectures": [architecture]}


def _check_form(network: Network, name: str) -> None:
    task = network.tasks[name]
    sources = [read.source for read in network.plan.reading(name)]
    what = ""
    if sources:
        what = f"reads the output of {sources[0]!r}"
    elif task.pooling == "mean":
        what = "reads the mean of the tokens"
    elif task.norm or task.project:
        what = f"has a {'norm' if task.norm else 'project'!r} before its head"
    elif output_form(task) not in ("ce", "bce", "number", "multilabel"):
        what = f"has outputs for loss {task.loss_name!r}"
    elif task.twin:
        what = "encodes the two texts of a pair apart"
    if what:
        raise NoPlace(f"task {name!r} {what}, which transformers has no place for")


def _chain(network: Network, name: str) -> list[tuple[str, nn.Linear]]:
    """The layers between [CLS] and the output layer."""
    chain = []
    for module in (
        *(network.cells[step.cell.key] for step in network.plan.path(name)),
        *(_head(network, name).hidden or ()),
    ):
        if isinstance(module, Pooler):
            chain.append(("tanh", module.dense))
        elif isinstance(module, Dense):
            chain.append(("relu", module.linear))
    return chain


def _head(network: Network, name: str) -> Head:
    head = network.cells[Cell("head", name).key]
    assert isinstance(head, Head)
    return head


def _output(network: Network, name: str) -> tuple[Tensor, Tensor]:
    """The output layer as transformers reads it.

    Of two classes ours has one logit z: theirs get [0, z], whose softmax is our sigmoid. Ours gives
    a number as its share of the range: theirs is the number itself, the range multiplied in. The
    temperature is divided out, so that their softmax is our probabilities.
    """
    task, output = network.tasks[name], _head(network, name).output
    assert output is not None
    weight, bias = output.weight.detach().float().cpu(), output.bias.detach().float().cpu()
    if output_form(task) == "number":
        low, high = task.ends
        return weight * (high - low), bias * (high - low) + low
    if output_form(task) == "bce":
        weight = torch.cat([torch.zeros_like(weight), weight])
        bias = torch.cat([torch.zeros_like(bias), bias])
    temperature = task.temperature or 1.0
    return weight / temperature, bias / temperature


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
    specials = {
        part: next((word for word in words if tokenizer.token_to_id(word) is not None), None)
        for part, words in SPECIALS.items()
    }
    return {
        # The family's own class would put its own splitting and templates in place of the file's.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "model_input_names": inputs,
        **{part: word for part, word in specials.items() if word is not None},
    }
