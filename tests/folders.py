"""A small encoder's folder as a hub would have it, and recipes that train it on embedded data."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from bough import demo
from bough.model.families.weight_names import expected
from bough.model.network import FRESH
from bough.plan.encoder_shape import Shape
from tests import tiny

TASKS: dict[str, dict[str, Any]] = {
    "sentiment": {"kind": "classify", "text": "text", "label": "label",
                  "train": "sentiment-train.csv", "dev": "sentiment-dev.csv"},
    "questions": {"kind": "classify", "text": ["question1", "question2"], "label": "label",
                  "train": "questions-train.csv", "dev": "questions-dev.csv"},
    "similarity": {"kind": "regress", "text": ["sentence1", "sentence2"], "label": "score",
                   "range": [0, 5], "train": "similarity-train.csv", "dev": "similarity-dev.csv"},
}  # fmt: skip


def encoder(folder: Path, layers: int = 2, width: int = 32) -> Path:
    """Random BERT weights with a tokenizer made from the embedded texts."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    texts = [file.read_text(encoding="utf-8") for file in sorted(demo.folder().glob("*.csv"))]
    counts = Counter(re.findall(r"[a-z]+|[0-9]|[^\w\s]", "\n".join(texts).lower()))
    letters = sorted(set("".join(counts)))
    pieces = dict.fromkeys([*specials, *letters, *("##" + letter for letter in letters)])
    pieces |= dict.fromkeys(word for word, _ in counts.most_common())
    # Not trained: a trainer's pieces are others in each process.
    vocabulary = {piece: number for number, piece in enumerate([*pieces][:1500])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    words = len(vocabulary)
    shape = Shape("bert", width, layers, 4, 2 * width, words, 64, 2, width, 0, "gelu", 1e-12)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(shape.config()), encoding="utf-8")
    save_file(weights(shape), folder / "model.safetensors")
    return folder


def of_family(folder: Path, family: str) -> Path:
    """A random encoder of this family, under the names that its checkpoints have."""
    source = tiny.encoder(family)
    folder.mkdir(parents=True, exist_ok=True)
    source.tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(source.shape.config()), encoding="utf-8")
    tensors: dict[str, torch.Tensor] = {}
    for ours, theirs in expected(source.shape).items():
        parts = source.tensors[ours].chunk(len(theirs))
        tensors |= {name: part.clone() for name, part in zip(theirs, parts, strict=True)}
    save_file(tensors, folder / "model.safetensors")
    return folder


def all_kinds(folder: Path, rows: int = 24) -> list[dict[str, Any]]:
    """One table, `rows.jsonl`, with a label of every kind for texts of the tiny vocabulary."""
    rng = np.random.default_rng(0)
    made = []
    for i in range(rows):
        texts = [" ".join(rng.choice(tiny.WORDS, rng.integers(1, 9))) for _ in range(3)]
        made.append({
            "text": texts[0], "one": texts[1], "two": texts[2],
            "classify": "xyz"[i % 3], "regress": i % 6, "joint": ("no", "yes")[i % 2],
            "twin": i % 4 / 3, "ordinal": i % 4, "multilabel": ["a", "b"][: i % 3],
            "tag": [{"start": 0, "end": len(texts[0].split()[0]),
                     "label": ("place", "person")[i % 2]}],
        })  # fmt: skip
    lines = "".join(json.dumps(row) + "\n" for row in made)
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    return made


def sentence_encoder(folder: Path, pooling: Any, name: str = "1_Pooling") -> Path:
    """What sentence-transformers puts beside an encoder's files."""
    (folder / name).mkdir(parents=True)
    (folder / name / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    kinds = {"": "Transformer", name: "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in kinds.items()
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    return folder


def weights(shape: Shape) -> dict[str, torch.Tensor]:
    """Fresh weights under the names of a BERT checkpoint."""
    generator = torch.Generator().manual_seed(0)
    d = shape.width
    sizes = {
        "words": (shape.vocabulary, d), "positions": (shape.positions, d),
        "types": (shape.types, d), "qkv": (d, d), "out": (d, d), "up": (shape.inner, d),
        "down": (d, shape.inner), "dense": (d, d),
    }  # fmt: skip
    out: dict[str, torch.Tensor] = {}
    for ours, theirs in expected(shape).items():
        part, kind = ours.split(".")[-2:]
        for name in theirs:
            if part.startswith("norm"):
                out[name] = torch.ones(d) if kind == "weight" else torch.zeros(d)
            elif kind == "bias":
                out[name] = torch.zeros(sizes[part][0])
            else:
                out[name] = torch.randn(sizes[part], generator=generator) * FRESH * 3
    return out


def data(folder: Path, train: int = 64, dev: int = 16) -> Path:
    """The first rows of the embedded files, for runs of a second."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(demo.folder().glob("*.csv")):
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        size = train if file.stem.endswith("-train") else dev
        (folder / file.name).write_text("".join(lines[: size + 1]), encoding="utf-8")
    return folder


def recipe(
    folder: Path,
    tasks: tuple[str, ...] = tuple(TASKS),
    rows: Path | None = None,
    **training: Any,
) -> dict[str, Any]:
    """A recipe on the encoder in `folder`, with the embedded rows or those in `rows`."""
    settings = {
        "epochs": 1, "batch": 16, "lr": 1e-3, "log_every": 5, "heads": "fresh", **training
    }  # fmt: skip
    plan = settings.pop("plan", "full")
    return {
        "encoder": str(folder),
        "plan": plan,
        "data": str(rows or demo.folder()),
        "tasks": {name: TASKS[name] for name in tasks},
        "training": settings,
    }


def small(folder: Path, tasks: tuple[str, ...] = tuple(TASKS), **training: Any) -> dict[str, Any]:
    """A recipe on the fixture `tiny_folder` and its few rows."""
    settings = {"batch": 8, "log_every": 1, **training}
    return recipe(folder, tasks, folder.parent / "rows", **settings)


def course(folder: Path) -> Path:
    """The embedded rows in the form of the course's files: tab separated, with its columns."""
    folder.mkdir(parents=True, exist_ok=True)
    levels = {"very negative": 0, "negative": 1, "neutral": 2, "positive": 3, "very positive": 4}
    forms = {
        "sentiment": ("ids-sst", ["sentence"], "sentiment"),
        "questions": ("quora", ["sentence1", "sentence2"], "is_duplicate"),
        "similarity": ("sts", ["sentence1", "sentence2"], "similarity"),
    }
    for name, (stem, texts, label) in forms.items():
        for split, size in (("train", 40), ("dev", 12)):
            with open(demo.folder() / f"{name}-{split}.csv", newline="", encoding="utf-8") as file:
                rows = list(csv.reader(file))[1 : size + 1]
            lines = ["\t".join(["", "id", *texts, label])]
            for i, (*words, answer) in enumerate(rows):
                value = {"same": "1.0", "different": "0.0"}.get(answer, levels.get(answer, answer))
                lines.append("\t".join([str(i), f"id{i}", *words, str(value)]))
            text = "\n".join(lines) + "\n"
            (folder / f"{stem}-{split}.csv").write_text(text, encoding="utf-8")
    return folder
