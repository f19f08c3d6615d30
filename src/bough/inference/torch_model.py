"""MultiTaskModel: the network with its tokenizer, computing with torch; saved and loaded.

Its folder stands alone: `config.json` (plan, tasks, shape), `model.safetensors` (every weight
once), `tokenizer.json` and a card.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from bough.data.packing import Pack, by_tokens, packs
from bough.data.tokens import Sequences
from bough.errors import UserError, nearest
from bough.files import write_atomically
from bough.hub import asking_the_hub, from_hub
from bough.inference.base import Form, Model, read_words
from bough.model.forward import PackedForward
from bough.runs import card


@dataclass(repr=False)
class MultiTaskModel(Model):
    """The model that is trained, and answers through torch."""

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @torch.inference_mode()
    def outputs(
        self, whole: Form, apart: Form, asked: Sequence[tuple[str, ...]]
    ) -> dict[str, tuple[list[int], Tensor]]:
        """Raw outputs: task -> numbers of the texts it answered, and its outputs for them."""
        answered: dict[str, list[int]] = {}
        outputs: dict[str, list[Tensor]] = {}
        for numbers, index, pack in self._packs(whole, apart, asked):
            for task, rows in self.network(pack.to(self.device), index).items():
                answered.setdefault(task, []).extend(numbers[task])
                outputs.setdefault(task, []).append(rows.float().cpu())
        return {task: (numbers, torch.cat(outputs[task])) for task, numbers in answered.items()}

    def _packs(
        self, whole: Form, apart: Form, asked: Sequence[tuple[str, ...]]
    ) -> Iterator[tuple[dict[str, list[int]], dict[str, Tensor], Pack]]:
        """Texts of similar length: each task's texts, where their sequences are, and these."""
        forms = (whole, apart)
        lengths = np.zeros(len(asked), np.int64)
        for form in forms:
            sizes = form.sequences.lengths
            for number, sequences in form.places.items():
                lengths[number] += sizes[list(sequences)].sum()
        for part in by_tokens(lengths):
            chosen = [[s for n in part.tolist() for s in form.places.get(n, ())] for form in forms]
            # A sequence's number in the pack: what several tasks read is there once.
            place = [
                {s: start + i for i, s in enumerate(sequences)}
                for start, sequences in zip((0, len(chosen[0])), chosen, strict=True)
            ]
            numbers: dict[str, list[int]] = {}
            index: dict[str, list[list[int]]] = {}
            for number in part.tolist():
                for task in asked[number]:
                    twin = self.tasks[task].twin
                    numbers.setdefault(task, []).append(number)
                    index.setdefault(task, []).append(
                        [place[twin][s] for s in forms[twin].places[number]]
                    )
            pack = Pack.of(
                [
                    (form.sequences, np.array(sequences, np.int64))
                    for form, sequences in zip(forms, chosen, strict=True)
                    if sequences
                ]
            )
            yield numbers, {task: torch.tensor(own) for task, own in index.items()}, pack

    @torch.inference_mode()
    def vectors(self, sequences: Sequences, task: str) -> NDArray[np.float32]:
        """Each sequence as this task's head reads it."""
        out = np.empty((len(sequences), self.network.shape.width), np.float32)
        for numbers, pack in packs(sequences):
            walk = PackedForward(
                self.network.route,
                self.network.cells,
                pack.to(self.device),
                [(task,)] * len(numbers),
                None,
            )
            walk.run()
            vectors, index = walk.vectors()[task, task]
            out[numbers] = vectors[index.to(vectors.device)].float().cpu().numpy()
        return out

    # Keeping.

    def weights(self) -> bytes:
        """All weights in safetensors form, each once; the same weights are always the same bytes,
        so there is one entry of metadata only (the library writes several in any order)."""
        tensors = {k: v.detach().contiguous().cpu() for k, v in self.network.state_dict().items()}
        return save(tensors, {"format": "pt"})

    def save(self, folder: str | Path) -> Path:
        """Write the model's folder; a model that is there is replaced file by file, each whole."""
        folder = Path(folder)
        if folder.is_file():
            raise UserError(f"{folder} is a file; give a folder for the model")
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not (folder / "model.safetensors").is_file():
            raise UserError(f"{folder}: other files are in it; give a folder of the model's own")
        self.save_words(folder)
        write_atomically(folder / "model.safetensors", self.weights())
        return folder

    def push_to_hub(
        self,
        repo: str,
        *,
        private: bool = False,
        token: str | None = None,
        message: str = "A bough model",
    ) -> str:
        """Put the model and its card on the Hugging Face hub; returns its address there.

        The repository is made if it is not there; without `token` the one you logged in with is
        taken. The card shows a few dev texts: empty `facts["examples"]` if they are not to be seen.
        """
        from huggingface_hub import HfApi

        api = HfApi(token=token)
        with asking_the_hub(f"the model could not be put on the hub as {repo!r}"):
            made = api.create_repo(repo, private=private, exist_ok=True)
            with tempfile.TemporaryDirectory() as folder:
                api.upload_folder(
                    repo_id=made.repo_id, folder_path=self.save(folder), commit_message=message
                )
        return str(made)

    def only(self, task: str) -> MultiTaskModel:
        """One task, and what it reads, as a model of its own."""
        network = self.network.only(task)
        parameters = sum(p.numel() for p in network.parameters())
        facts = card.kept(self.facts, network.tasks, parameters)
        return MultiTaskModel(network, self.tokenizer, self.longest, facts)


def load(source: str | Path, device: str = "cpu") -> MultiTaskModel:
    """A model from a run, a model folder or a hub id."""
    where = device_of(device)
    folder = find(source)
    network, tokenizer, longest, facts = read_words(folder)
    weights = folder / "model.safetensors"
    try:
        tensors = load_file(weights)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{weights}: cannot be read ({error})") from None
    try:
        network.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise UserError(f"{weights}: does not fit the config.json beside it ({reason})") from None
    network.unfreeze()
    network.to(where)
    return MultiTaskModel(network, tokenizer, longest, facts)


def device_of(name: str) -> torch.device:
    """The device of this name, or auto; a Mistake where there is none."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", name):
        raise UserError(f"device is {name!r}; expected auto, cpu, cuda, cuda:N or mps")
    known = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": torch.backends.mps.is_available()}
    kind, _, number = name.partition(":")
    if int(number or 0) >= known[kind]:
        raise UserError(f"device is {name!r}, but torch sees none such here; set it to cpu")
    return torch.device(name)


def find(source: str | Path) -> Path:
    """The model folder of a run, a folder itself, or a hub id."""
    folder = Path(source).expanduser()
    for candidate in (folder / "model", folder):
        if (candidate / "model.safetensors").is_file() and (candidate / "config.json").is_file():
            return candidate
    if (folder / "model.onnx").is_file():
        raise UserError(
            f"{folder}: an ONNX export, which torch does not run; serve it with --runtime onnx, or "
            "name the run it came from"
        )
    if (folder / "recipe.yaml").is_file():
        raise UserError(
            f"{folder}: no model there yet; go on with the run: bough train --resume {folder}"
        )
    if folder.exists():
        raise UserError(
            f"{folder}: no model there; expected a run or a folder with model.safetensors"
        )
    # A hub id looks like a path; where its first part is a folder of runs, it is one.
    beside = folder.parent.iterdir() if folder.parent.is_dir() and folder.parts[1:] else ()
    runs = [f.name for f in beside if (f / "recipe.yaml").exists() or (f / "config.json").exists()]
    if len(folder.parts) == 2 and not folder.is_absolute() and not runs:
        return from_hub(str(source), "model")
    raise UserError(f"{folder}: no such run or model folder{nearest(folder.name, runs)}")
