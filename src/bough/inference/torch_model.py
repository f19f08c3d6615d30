"""MultiTaskModel: a model whose network computes with torch, and which can be saved."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.data.dataset import Data
from bough.data.packing import Pack, by_tokens, packs
from bough.data.tokens import Sequences
from bough.errors import UserError
from bough.files import write_atomically
from bough.hub import asking_the_hub
from bough.inference.folder import WEIGHTS_FILE, save_metadata
from bough.inference.model import Form, Model
from bough.inference.precision.answering_layer import answer_in
from bough.model import pretrained
from bough.model.network import Network, plan_of
from bough.model.routing import READ, Routing
from bough.plan.encoder_pooling import OwnPooling
from bough.recipe.recipe import Recipe
from bough.runs.model_facts import of_part
from bough.runs.weights_file import digest_of, write_weights


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

    def answer_in(self, precision: str) -> None:
        """Compute answers in this precision from now on; the weights stay as they are.

        Args:
            precision: `fp32`, `bf16`, `int8`, or `auto`: the faster one here of the first two.
        """
        answer_in(self.network, precision, self.device)

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
        joined = {
            task: out[0] if len(out) == 1 else torch.cat(out) for task, out in outputs.items()
        }
        return {task: (numbers, joined[task]) for task, numbers in answered.items()}

    def _packs(
        self, whole: Form, apart: Form, asked: Sequence[tuple[str, ...]]
    ) -> Iterator[tuple[dict[str, list[int]], dict[str, Tensor], Pack]]:
        """Texts of similar length: each task's texts, where their sequences are, and these."""
        forms = (whole, apart)
        if len(asked) == 1:  # needs no sorting
            parts = [form.sequences for form in forms if form.places]
            pack = Pack.of([(sequences, np.arange(len(sequences))) for sequences in parts])
            starts = (0, len(whole.places))
            index = {
                task: torch.tensor([[starts[twin] + s for s in forms[twin].places[0]]])
                for task, twin in ((task, self.tasks[task].twin) for task in asked[0])
            }
            yield {task: [0] for task in asked[0]}, index, pack
            return
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
            places: dict[str, list[list[int]]] = {}
            for number in part.tolist():
                for task in asked[number]:
                    twin = self.tasks[task].twin
                    numbers.setdefault(task, []).append(number)
                    places.setdefault(task, []).append(
                        [place[twin][s] for s in forms[twin].places[number]]
                    )
            pack = Pack.of(
                [
                    (form.sequences, np.array(sequences, np.int64))
                    for form, sequences in zip(forms, chosen, strict=True)
                    if sequences
                ]
            )
            yield numbers, {task: torch.tensor(own) for task, own in places.items()}, pack

    @torch.inference_mode()
    def vectors(
        self, sequences: Sequences, task: str, pooling: OwnPooling | None = None
    ) -> NDArray[np.float32]:
        """Each sequence as this task's head reads it; or the trunk's states there, so pooled."""
        out = np.empty((len(sequences), self.network.shape.width), np.float32)
        routing = self.network.routing
        last = None
        if pooling is not None:
            last = routing.rows.index(READ if pooling != "pooler" else "pooler") + 1
            routing = Routing(self.plan, {**routing.poolings, task: pooling}, routing.learning)
        for numbers, pack in packs(sequences):
            asked = [(task,)] * len(numbers)
            forward = self.network.trunk(pack.to(self.device), asked, None, routing)
            forward.run(last)
            vectors, index = forward.vectors()[task, task]
            out[numbers] = vectors[index.to(vectors.device)].float().cpu().numpy()
        return out

    # Keeping.

    def write_weights(self, file: IO[bytes]) -> None:
        """All weights in safetensors form, each once; the same weights are the same bytes."""
        write_weights(file, self.network.state_dict())

    def save(self, folder: str | Path) -> Path:
        """Write the model's folder; a model that is there is replaced file by file, each whole."""
        folder = Path(folder).expanduser()
        if folder.is_file():
            raise UserError(f"{folder} is a file; give a folder for the model")
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not (folder / WEIGHTS_FILE).is_file():
            raise UserError(f"{folder}: other files are in it; give a folder of the model's own")
        known = digest_of(self.network.state_dict())
        save_metadata(replace(self, facts={**self.facts, "sha256": known}), folder)
        write_atomically(folder / WEIGHTS_FILE, self.write_weights)
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


def untrained_model(
    recipe: Recipe, data: Data, encoder: pretrained.Encoder | None = None
) -> tuple[MultiTaskModel, list[str]]:
    """The untrained model of a recipe, and what there is to say about its encoder."""
    encoder = encoder or pretrained.load(recipe.encoder)
    if recipe.parts_of_speech is not None:
        encoder = pretrained.with_tags(encoder, recipe.parts_of_speech)
    tasks = encoder.pooling.resolve(data.tasks)
    plan = plan_of(recipe.plan, tasks, encoder.shape)
    network = Network.pretrained(plan, tasks, encoder, recipe.training.seed)
    longest = min(recipe.max_length, encoder.shape.longest)
    auto = [t for t in data.tasks.values() if t.pooling == "auto" and t.kind != "tag"]
    notes = [f"pooling: {encoder.pooling}"] if auto else []
    if plan.pooled and not encoder.weights("pooler"):
        notes.append(f"encoder {encoder.source!r} has no pooler; a fresh one is trained with it")
    if encoder.unused:
        names = ", ".join(encoder.unused[:3]) + (", ..." if len(encoder.unused) > 3 else "")
        notes.append(f"of the encoder, not used: {names} ({len(encoder.unused)} in all)")
    embeddings = [cell for cell in plan.users() if cell.place == "embeddings"]
    if encoder.shape.tagger and not any(map(plan.learns, embeddings)):
        notes.append(
            "parts of speech begin as zero and are learned with the embeddings, which the plan "
            "holds fixed: they will change nothing"
        )
    # A model may be shown to others, who need not know the folders of this machine.
    called = Path(encoder.source)
    name = called.name if called.is_absolute() else encoder.source
    facts = {"encoder": name, "saw_quora": encoder.saw_quora}
    if encoder.pooling.name is not None:
        facts["pooling"] = {"name": encoder.pooling.name, "reason": encoder.pooling.reason}
    return MultiTaskModel(network, encoder.tokenizer, longest, facts), notes
