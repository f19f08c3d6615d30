"""MultiTaskModel: the network with its tokenizer, answering in labels; saved and loaded.

Its folder stands alone: `config.json` (plan, tasks, shape), `model.safetensors` (every weight
once), `tokenizer.json` and a card.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from tokenizers import Tokenizer
from torch import Tensor

import bough
from bough import card
from bough.batches import Pack, Sequences, by_tokens, tokenise
from bough.encoder import read_tokenizer
from bough.families import Shape
from bough.files import write_atomically
from bough.losses import answers
from bough.mistakes import Mistake, nearest
from bough.network import Network, plan_of
from bough.plan import Plan
from bough.tasks import Task, shorten
from bough.walk import Walk

Text = str | tuple[str, str]
TOKENS = 4096  # per pass when answering: large enough for the processor, small enough for caches
WINDOW = 2048  # texts that a stream of texts is sorted within


@dataclass(frozen=True)
class Answer:
    """What a task says about a text: a class with its probabilities, or a number."""

    label: str | None = None
    score: float | None = None  # probability of the label
    probabilities: Mapping[str, float] | None = None
    value: float | None = None

    def plain(self) -> dict[str, Any]:
        """Without what does not apply, for JSON."""
        return {k: v for k, v in vars(self).items() if v is not None}


@dataclass
class MultiTaskModel:
    """One model for all tasks."""

    network: Network
    tokenizer: Tokenizer
    longest: int  # tokens; longer texts are cut
    facts: dict[str, Any] = field(default_factory=dict)  # encoder, scores, examples: for the card

    @property
    def plan(self) -> Plan:
        return self.network.plan

    @property
    def tasks(self) -> dict[str, Task]:
        return self.network.tasks

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    # Answers.

    @overload  # a text is a sequence of texts to the type checker, too
    def predict(  # type: ignore[overload-overlap]
        self, texts: Text, tasks: Sequence[str] | str | None = None
    ) -> dict[str, Answer]: ...
    @overload
    def predict(
        self, texts: Sequence[Text], tasks: Sequence[str] | str | None = None
    ) -> list[dict[str, Answer]]: ...
    def predict(
        self, texts: Text | Sequence[Text], tasks: Sequence[str] | str | None = None
    ) -> dict[str, Answer] | list[dict[str, Answer]]:
        """One text (or pair, as a tuple) -> {task: answer}; a list of them -> a list, in order.

        Without `tasks`, a text is answered by all tasks on one text and a pair by all on pairs.
        """
        if isinstance(texts, str | tuple):
            return next(self.stream([texts], tasks))
        return list(self.stream(texts, tasks))

    def stream(
        self, texts: Iterable[Text], tasks: Sequence[str] | str | None = None
    ) -> Iterator[dict[str, Answer]]:
        """Answers in the order of the texts, however many there are."""
        return self.answer((text, self.asked(text, tasks, i)) for i, text in enumerate(texts))

    def answer(self, asked: Iterable[tuple[Text, tuple[str, ...]]]) -> Iterator[dict[str, Answer]]:
        """Answers to texts that each come with the tasks to answer them."""
        rest = iter(asked)
        while window := list(itertools.islice(rest, WINDOW)):
            texts, names = zip(*window, strict=True)
            out: list[dict[str, Answer]] = [{} for _ in window]
            for task, (numbers, outputs) in self.outputs(texts, names).items():
                for number, answer in zip(numbers, self._answers(task, outputs), strict=True):
                    out[number][task] = answer
            for found, wanted in zip(out, names, strict=True):
                yield {task: found[task] for task in wanted}

    def asked(self, text: Text, tasks: Sequence[str] | str | None, number: int) -> tuple[str, ...]:
        """The tasks that answer this text; a Mistake if it does not fit."""
        parts = tuple(text) if isinstance(text, tuple | list) else (text,)
        if len(parts) not in (1, 2) or not all(isinstance(part, str) for part in parts):
            said = f"text {number + 1} is {shorten(text)}"
            raise Mistake(f"{said}; expected a text, or two of them as a tuple")
        if not all(part.strip() for part in parts):
            raise Mistake(f"text {number + 1} is empty; there is nothing to judge")
        fitting = [n for n, task in self.tasks.items() if len(task.columns) == len(parts)]
        what = "one text" if len(parts) == 1 else "a pair of texts"
        if tasks is None:
            if not fitting:
                raise Mistake(f"text {number + 1}: no task of this model judges {what}")
            return tuple(fitting)
        chosen = (tasks,) if isinstance(tasks, str) else tuple(tasks)
        for name in chosen:
            if name not in self.tasks:
                raise self.unknown(name)
            if name not in fitting:
                wants = "a pair" if self.tasks[name].paired else "one text"
                raise Mistake(f"text {number + 1}: task {name!r} judges {wants}, this is {what}")
        return chosen

    def unknown(self, name: str) -> Mistake:
        known = ", ".join(self.tasks)
        return Mistake(f"no task {name!r} in this model ({known}){nearest(name, self.tasks)}")

    @torch.inference_mode()
    def outputs(
        self, texts: Sequence[Text], asked: Sequence[tuple[str, ...]]
    ) -> dict[str, tuple[list[int], Tensor]]:
        """Raw outputs: task -> numbers of the texts it answered, and its outputs for them."""
        out: dict[str, tuple[list[int], list[Tensor]]] = {}
        for numbers, seats, pack in self._packs(texts, asked):
            for task, outputs in self.network(pack, seats).items():
                found = out.setdefault(task, ([], []))
                found[0].extend(numbers[task])
                found[1].append(outputs.float().cpu())
        return {task: (numbers, torch.cat(parts)) for task, (numbers, parts) in out.items()}

    def _packs(
        self, texts: Sequence[Text], asked: Sequence[tuple[str, ...]]
    ) -> Iterator[tuple[dict[str, list[int]], dict[str, Tensor], Pack]]:
        """Parts of similar length: whose texts they hold, where, and their sequences."""
        whole, whole_of = self._tokenised(texts, asked, twin=False)
        apart, apart_of = self._tokenised(texts, asked, twin=True)
        lengths = np.zeros(len(texts), np.int64)
        for sequences, places in ((whole, whole_of), (apart, apart_of)):
            for number, place in places.items():
                lengths[number] += sequences.lengths[list(place)].sum()
        for part in by_tokens(lengths, TOKENS):
            numbers: dict[str, list[int]] = {}
            seats: dict[str, list[list[int]]] = {}
            chosen: list[list[int]] = [[], []]
            shift = sum(len(whole_of[n]) for n in part.tolist() if n in whole_of)
            for number in part.tolist():
                base = len(chosen[0]), shift + len(chosen[1])
                chosen[0] += whole_of.get(number, ())
                chosen[1] += apart_of.get(number, ())
                for task in asked[number]:
                    at = base[1] if self.tasks[task].twin else base[0]
                    numbers.setdefault(task, []).append(number)
                    seats.setdefault(task, []).append(
                        [at, at + 1] if self.tasks[task].twin else [at]
                    )
            parts = [(whole, np.array(chosen[0], np.int64)), (apart, np.array(chosen[1], np.int64))]
            pack = Pack.of([(s, c) for s, c in parts if len(c)]).to(self.device)
            yield numbers, {t: torch.tensor(s) for t, s in seats.items()}, pack

    def _tokenised(
        self, texts: Sequence[Text], asked: Sequence[tuple[str, ...]], twin: bool
    ) -> tuple[Sequences, dict[int, tuple[int, ...]]]:
        """The sequences of all texts that some task reads whole, or apart; and whose they are."""
        parts: list[tuple[str, ...]] = []
        places: dict[int, tuple[int, ...]] = {}
        for number, (text, tasks) in enumerate(zip(texts, asked, strict=True)):
            if any(self.tasks[task].twin == twin for task in tasks):
                words = (text,) if isinstance(text, str) else text
                own = [(word,) for word in words] if twin else [words]
                places[number] = tuple(range(len(parts), len(parts) + len(own)))
                parts += own
        return tokenise(parts, self.tokenizer, self.longest)[0], places

    def _answers(self, name: str, outputs: Tensor) -> list[Answer]:
        task = self.tasks[name]
        values, probabilities = answers(task, outputs)
        if probabilities is None:
            return [Answer(value=value) for value in values.tolist()]
        labels = task.labels or ()
        return [
            Answer(labels[best], shares[best], dict(zip(labels, shares, strict=True)))
            for best, shares in zip(values.tolist(), probabilities.tolist(), strict=True)
        ]

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], task: str | None = None) -> NDArray[np.float32]:
        """Each text's vector as this task's head reads it (the first task's by default)."""
        name = task or next(iter(self.tasks))
        if name not in self.tasks:
            raise self.unknown(name)
        sequences, _ = tokenise([(text,) for text in texts], self.tokenizer, self.longest)
        out = np.empty((len(texts), self.network.shape.width), np.float32)
        for part in by_tokens(sequences.lengths, TOKENS):
            pack = Pack.of([(sequences, part)]).to(self.device)
            walk = Walk(self.network.route, self.network.cells, pack, [(name,)] * len(part), None)
            walk.run()
            vectors, index = walk.vectors()[name, name]
            out[part] = vectors[index.to(vectors.device)].float().cpu().numpy()
        return out

    # Keeping.

    def config(self) -> dict[str, Any]:
        sources = {"train", "dev", "test"}
        return {
            "bough": bough.__version__,
            "plan": self.plan.text,
            "tasks": {n: t.model_dump(mode="json", exclude=sources) for n, t in self.tasks.items()},
            "shape": vars(self.network.shape),
            "longest": self.longest,
            **({"facts": self.facts} if self.facts else {}),
        }

    def weights(self) -> bytes:
        """All weights in safetensors form, each once; the same weights are always the same bytes,
        so there is one entry of metadata only (the library writes several in any order)."""
        tensors = {k: v.detach().contiguous().cpu() for k, v in self.network.state_dict().items()}
        return save(tensors, {"format": "pt"})

    def save(self, folder: str | Path) -> Path:
        """Write the model's folder; files that are there are replaced one by one, each whole."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.save_words(folder)
        write_atomically(folder / "model.safetensors", self.weights())
        return folder

    def save_words(self, folder: Path) -> None:
        """All but the weights."""
        write_atomically(folder / "tokenizer.json", self.tokenizer.to_str())
        write_atomically(folder / "config.json", json.dumps(self.config(), indent=1) + "\n")
        words = card.write(self.plan, self.tasks, self.longest, self.facts)
        write_atomically(folder / "README.md", words)

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
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError

        api = HfApi(token=token)
        try:
            made = api.create_repo(repo, private=private, exist_ok=True)
            with tempfile.TemporaryDirectory() as folder:
                api.upload_folder(
                    repo_id=made.repo_id, folder_path=self.save(folder), commit_message=message
                )
        except (HfHubHTTPError, HFValidationError, OSError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise Mistake(f"the model could not be put on the hub as {repo!r} ({reason})") from None
        return str(made)

    def only(self, task: str) -> MultiTaskModel:
        """One task, and what it reads, as a model of its own."""
        return MultiTaskModel(
            self.network.only(task), self.tokenizer, self.longest, dict(self.facts)
        )


def load(source: str | Path, device: str = "cpu") -> MultiTaskModel:
    """A model from a run, a model folder or a hub id."""
    folder = find(source)
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        shape = Shape(**config["shape"])
        tasks = {name: Task(**task) for name, task in config["tasks"].items()}
        plan_text, longest = config["plan"], int(config["longest"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Mistake(
            f"{file}: not a bough model's config ({type(error).__name__}: {error})"
        ) from None
    network = Network(plan_of(plan_text, tasks, shape), tasks, shape)
    weights = folder / "model.safetensors"
    try:
        tensors = load_file(weights)
    except (OSError, SafetensorError) as error:
        raise Mistake(f"{weights}: cannot be read ({error})") from None
    try:
        network.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise Mistake(
            f"{weights}: does not fit {file} ({str(error).splitlines()[-1].strip()})"
        ) from None
    network.hold(False)
    network.to(device)
    return MultiTaskModel(network, read_tokenizer(folder), longest, config.get("facts", {}))


def find(source: str | Path) -> Path:
    """The model folder of a run, a folder itself, or a hub id."""
    folder = Path(source).expanduser()
    for candidate in (folder / "model", folder):
        if (candidate / "model.safetensors").is_file() and (candidate / "config.json").is_file():
            return candidate
    if folder.exists():
        raise Mistake(
            f"{folder}: no model there; expected a run or a folder with model.safetensors"
        )
    if len(folder.parts) == 2 and not folder.is_absolute():
        from bough.encoder import from_hub

        return from_hub(str(source), "model")
    raise Mistake(f"{folder}: no such run or model folder")
