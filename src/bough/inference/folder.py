"""A model's folder: where it is, and all that is in it but the weights.

It stands alone: `config.json` (plan, tasks, shape), `tokenizer.json`, a card, and the weights, as
`model.safetensors` for torch or as graphs for onnxruntime.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

import bough
from bough.errors import UserError, nearest
from bough.files import write_atomically
from bough.hub import from_hub
from bough.inference import config
from bough.inference.model import Model
from bough.inference.onnx_names import TEXTS_FILE
from bough.model.encoder_files import read_tokenizer
from bough.model.network import Network, plan_of
from bough.runs import model_card
from bough.runs.run_dir import Run

WEIGHTS_FILE = "model.safetensors"


def save_metadata(model: Model, folder: Path) -> None:
    """Write all but the weights."""
    sources = {"train", "dev", "test", "teacher", "unlabelled"}  # places of the user's machine
    tasks = {n: t.model_dump(mode="json", exclude=sources) for n, t in model.tasks.items()}
    content = {
        "bough": bough.__version__,
        "plan": model.plan.text,
        "tasks": tasks,
        "shape": vars(model.network.shape),
        "longest": model.longest,
        **({"facts": model.facts} if model.facts else {}),
    }
    write_atomically(folder / "tokenizer.json", model.tokenizer.to_str())
    write_atomically(folder / config.FILE, json.dumps(content, indent=1) + "\n")
    readme = model_card.write(model.plan, model.tasks, model.longest, model.facts)
    write_atomically(folder / "README.md", readme)


def read_metadata(folder: Path) -> tuple[Network, Tokenizer, int, dict[str, Any]]:
    """What `save_metadata` wrote, as a model's fields; the network's cells are empty."""
    content = config.read(folder)
    try:
        plan = plan_of(content.plan, content.tasks, content.shape)
        network = Network(plan, content.tasks, content.shape)
    except UserError as error:
        raise UserError(f"{folder / config.FILE}: {error}") from None
    facts = content.facts.model_dump(exclude_unset=True)
    return network, read_tokenizer(folder, content.shape), content.longest, facts


def unfinished(source: str | os.PathLike[str]) -> list[str]:
    """A sentence where the model is that of a run which is still going on, or was stopped."""
    run = Run(Path(source).expanduser())
    if not run.begun or run.finished:
        return []
    return [f"{run.folder}: the run is not finished; this is its best model so far"]


def find(source: str | os.PathLike[str] | Run) -> Path:
    """The model folder of a run, a folder itself, or that of a hub id."""
    folder = source.folder if isinstance(source, Run) else Path(source).expanduser()
    for candidate in (folder / "model", folder):
        weights = any((candidate / name).is_file() for name in (WEIGHTS_FILE, TEXTS_FILE))
        if weights and (candidate / config.FILE).is_file():
            return candidate
    if Run(folder).pretrained:
        raise UserError(
            f"{folder}: is a pretraining, which answers nothing; train tasks on it: "
            f"bough train RECIPE --set encoder={folder}"
        )
    if Run(folder).recipe_file.is_file():
        how = f"--resume {folder}" if Run(folder).begun else folder / "recipe.yaml"
        what = "go on with the run" if Run(folder).begun else "train the recipe"
        raise UserError(f"{folder}: no model there yet; {what}: bough train {how}")
    if folder.exists():
        raise UserError(f"{folder}: no model there; expected a run or a folder with {WEIGHTS_FILE}")
    # A hub id looks like a path; where its first part is a folder of runs, it is one.
    beside = folder.parent.iterdir() if folder.parent.is_dir() and folder.parts[1:] else ()
    runs = [f.name for f in beside if (f / "recipe.yaml").exists() or (f / config.FILE).exists()]
    if len(folder.parts) == 2 and not folder.is_absolute() and not runs:
        return from_hub(str(source), "model")
    close = nearest(folder.name, runs, f"{folder.parent}{os.sep}")
    raise UserError(f"{folder}: no such run or model folder{close}")
