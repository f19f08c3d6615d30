"""MultiTaskModel: a model whose network computes with torch, and which can be saved."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from bough.data.batches import Pack, Sequences, by_tokens
from bough.errors import UserError
from bough.files import write_atomically
from bough.hub import asking_the_hub
from bough.inference.folder import WEIGHTS_FILE, save_metadata
from bough.inference.model import Form, Model
from bough.model.forward import PackedForward
from bough.runs.facts import of_part

TOKENS = 4096  # per pass when answering: large enough for the processor, small enough for caches


@dataclass(repr=False)
class MultiTaskModel(Model):
    """The model that is trained, and answers through torch: with weights that can be saved.

    Example:
        >>> model = bough.load("runs/first")
        >>> assert isinstance(model, bough.MultiTaskModel)  # not an ONNX export
        >>> model.only("sentiment").save("sentiment-alone").name
        'sentiment-alone'
    """

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @torch.inference_mode()
    def outputs(
        self, whole: Form, apart: Form, asked: Sequence[tuple[str, ...]]
    ) -> dict[str, tuple[list[int], Tensor]]:
        """Raw outputs: task -> numbers of the texts it answered, and its outputs for them."""
        out: dict[str, tuple[list[int], list[Tensor]]] = {}
        for numbers, seats, pack in self._packs(whole, apart, asked):
            for task, outputs in self.network(pack, seats).items():
                found = out.setdefault(task, ([], []))
                found[0].extend(numbers[task])
                found[1].append(outputs.float().cpu())
        return {task: (numbers, torch.cat(parts)) for task, (numbers, parts) in out.items()}

    def _packs(
        self, whole: Form, apart: Form, asked: Sequence[tuple[str, ...]]
    ) -> Iterator[tuple[dict[str, list[int]], dict[str, Tensor], Pack]]:
        """Parts of similar length: whose texts they hold, where, and their sequences."""
        lengths = np.zeros(len(asked), np.int64)
        for form in (whole, apart):
            sizes = form.sequences.lengths
            for number, place in form.places.items():
                lengths[number] += sizes[list(place)].sum()
        for part in by_tokens(lengths, TOKENS):
            numbers: dict[str, list[int]] = {}
            seats: dict[str, list[list[int]]] = {}
            chosen: list[list[int]] = [[], []]
            shift = sum(len(whole.places[n]) for n in part.tolist() if n in whole.places)
            for number in part.tolist():
                base = len(chosen[0]), shift + len(chosen[1])
                chosen[0] += whole.places.get(number, ())
                chosen[1] += apart.places.get(number, ())
                for task in asked[number]:
                    at = base[1] if self.tasks[task].twin else base[0]
                    numbers.setdefault(task, []).append(number)
                    seats.setdefault(task, []).append(
                        [at, at + 1] if self.tasks[task].twin else [at]
                    )
            parts = [
                (form.sequences, np.array(own, np.int64))
                for form, own in zip((whole, apart), chosen, strict=True)
                if own
            ]
            pack = Pack.of(parts).to(self.device)
            yield numbers, {t: torch.tensor(s) for t, s in seats.items()}, pack

    @torch.inference_mode()
    def vectors(self, sequences: Sequences, task: str) -> NDArray[np.float32]:
        """Each sequence as this task's head reads it."""
        out = np.empty((len(sequences), self.network.shape.width), np.float32)
        for part in by_tokens(sequences.lengths, TOKENS):
            pack = Pack.of([(sequences, part)]).to(self.device)
            forward = PackedForward(
                self.network.routing, self.network.cells, pack, [(task,)] * len(part), None
            )
            forward.run()
            vectors, index = forward.vectors()[task, task]
            out[part] = vectors[index.to(vectors.device)].float().cpu().numpy()
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
        if any(folder.iterdir()) and not (folder / WEIGHTS_FILE).is_file():
            raise UserError(f"{folder}: other files are in it; give a folder of the model's own")
        save_metadata(self, folder)
        write_atomically(folder / WEIGHTS_FILE, self.weights())
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
        facts = of_part(self.facts, network.tasks, parameters)
        return MultiTaskModel(network, self.tokenizer, self.longest, facts)
