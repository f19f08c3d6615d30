"""Asking a model: texts in, labels and numbers out, whatever computes the passes.

`Model` has everything but the computing: which tasks fit a text, tokens, order, answers in words.
`model.MultiTaskModel` computes with torch, `runtime.OnnxModel` with an exported graph.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

import bough
from bough.data.tokens import Sequences, Text, text_of, tokenise
from bough.errors import UserError, nearest, shorten
from bough.files import write_atomically
from bough.inference import config
from bough.model.losses import answers
from bough.model.network import Network, plan_of
from bough.model.pretrained import read_tokenizer
from bough.plan.plan import Plan
from bough.recipe.tasks import Task
from bough.runs import card

__all__ = ["Answer", "Model", "Text", "read_words", "text_of"]

WINDOW = 2048  # texts that a stream of texts is sorted within


@dataclass(frozen=True)
class Answer:
    """What a task says about a text: a class with its probabilities, or a number."""

    label: str | None = None
    score: float | None = None  # probability of the label
    probabilities: Mapping[str, float] | None = None
    value: float | None = None
    cut: bool = False  # the text is longer than the model reads; only its beginning was judged

    def plain(self) -> dict[str, Any]:
        """For JSON: without what does not apply, and no more digits than single precision has."""
        return {k: _rounded(v) for k, v in vars(self).items() if v is not None and v is not False}


class Form(NamedTuple):
    """The sequences of all texts that some task reads in one form: whole, or a pair's apart."""

    sequences: Sequences
    places: dict[int, tuple[int, ...]]  # number of a text -> its sequences
    cut: frozenset[int]  # texts that are longer than the model reads


def _kind(task: Task) -> str:
    low, high = task.range or (0, 1)
    answer = f"{len(task.labels)} classes" if task.labels else f"a number from {low:g} to {high:g}"
    return f"a pair, {answer}" if task.paired else answer


def _several(texts: Iterable[Text]) -> Iterable[Text]:
    if not isinstance(texts, Iterable) or isinstance(texts, Mapping | bytes):
        raise UserError(f"{shorten(texts)} is no text; expected one, a pair as a tuple, or several")
    return texts


def _parts(text: object, number: int) -> tuple[str, ...]:
    """The one or two texts that make up the text of this number; a Mistake if it is none."""
    parts = tuple(text) if isinstance(text, tuple | list) else (text,)
    if len(parts) not in (1, 2) or not all(isinstance(part, str) for part in parts):
        said = f"text {number + 1} is {shorten(text)}"
        raise UserError(f"{said}; expected a text, or two of them as a tuple")
    words = tuple(map(str, parts))
    try:
        "".join(words).encode()
    except UnicodeEncodeError as fault:
        half = f"\\u{ord(fault.object[fault.start]):04x}"
        raise UserError(f"text {number + 1}: {half} is half a character; mend the text") from None
    return words


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(share) for name, share in value.items()}
    return round(value, 6) if isinstance(value, float) else value


@dataclass(repr=False)
class Model(ABC):
    """One model for all tasks."""

    network: Network  # its cells are empty where another runtime has the weights
    tokenizer: Tokenizer
    longest: int  # tokens; longer texts are cut
    facts: dict[str, Any] = field(default_factory=dict)  # encoder, scores, examples: for the card

    def __repr__(self) -> str:
        tasks = ", ".join(f"{name} ({_kind(task)})" for name, task in self.tasks.items())
        on = f" of {self.facts['encoder']}" if self.facts.get("encoder") else ""
        return f"<{type(self).__name__} {self.plan.text}{on}: {tasks}>"

    @property
    def plan(self) -> Plan:
        return self.network.plan

    @property
    def tasks(self) -> dict[str, Task]:
        return self.network.tasks

    # What a runtime does.

    @abstractmethod
    def outputs(
        self, whole: Form, apart: Form, asked: Sequence[tuple[str, ...]]
    ) -> dict[str, tuple[list[int], Tensor]]:
        """Raw outputs: task -> numbers of the texts it answered, and its outputs for them."""

    @abstractmethod
    def vectors(self, sequences: Sequences, task: str) -> NDArray[np.float32]:
        """Each sequence as this task's head reads it."""

    # Answers.

    @overload  # a text is an iterable of texts to the type checker, too
    def predict(  # type: ignore[overload-overlap]
        self, texts: Text, tasks: Iterable[str] | str | None = None
    ) -> dict[str, Answer]: ...
    @overload
    def predict(
        self, texts: Iterable[Text], tasks: Iterable[str] | str | None = None
    ) -> list[dict[str, Answer]]: ...
    def predict(
        self, texts: Text | Iterable[Text], tasks: Iterable[str] | str | None = None
    ) -> dict[str, Answer] | list[dict[str, Answer]]:
        """One text (or pair, as a tuple) -> {task: answer}; several of them -> a list, in order.

        Without `tasks`, a text is answered by all tasks on one text and a pair by all on pairs.
        """
        if isinstance(texts, str | tuple):
            return next(self.stream([texts], tasks))
        return list(self.stream(_several(texts), tasks))

    def stream(
        self, texts: Iterable[Text], tasks: Iterable[str] | str | None = None
    ) -> Iterator[dict[str, Answer]]:
        """Answers in the order of the texts, however many there are."""
        chosen = self.chosen(tasks)
        return self.answer((text, self.asked(text, chosen, i)) for i, text in enumerate(texts))

    def answer(
        self, asked: Iterable[tuple[Text, tuple[str, ...]] | None]
    ) -> Iterator[dict[str, Answer]]:
        """Answers to texts that each come with the tasks to answer them.

        None among them: the next may be long in coming, and what has come is answered now.
        """
        rest = iter(asked)
        fault: UserError | None = None
        while fault is None:
            window: list[tuple[Text, tuple[str, ...]]] = []
            try:
                for item in rest:
                    if item is not None:
                        window.append(item)
                    if len(window) == WINDOW or (item is None and window):
                        break
            except UserError as mistake:  # what came before a bad text is answered still
                fault = mistake
            if not window:
                break
            texts, names = zip(*window, strict=True)
            out: list[dict[str, Answer]] = [{} for _ in window]
            whole, apart = self.forms(texts, names)
            for task, (numbers, outputs) in self.outputs(whole, apart, names).items():
                cut = (apart if self.tasks[task].twin else whole).cut
                for number, answer in zip(numbers, self._answers(task, outputs), strict=True):
                    out[number][task] = replace(answer, cut=True) if number in cut else answer
            for found, wanted in zip(out, names, strict=True):
                yield {task: found[task] for task in wanted}
        if fault is not None:
            raise fault

    def chosen(self, tasks: Iterable[str] | str | None) -> tuple[str, ...] | None:
        """The tasks of these names, each once; None for all that fit a text."""
        if tasks is None:
            return None
        names = (tasks,) if isinstance(tasks, str) else tasks
        names = tuple(names) if isinstance(names, Iterable) else (names,)
        if not all(isinstance(name, str) for name in names):
            raise UserError(f"tasks is {shorten(tasks)}; expected a task's name, or several")
        if not names:
            raise UserError("tasks is empty; name tasks, or leave it out for all that fit")
        for name in names:
            if name not in self.tasks:
                raise self.unknown(name)
        return tuple(dict.fromkeys(names))

    def asked(self, text: Text, chosen: Sequence[str] | None, number: int) -> tuple[str, ...]:
        """The tasks that answer this text; a Mistake if it does not fit."""
        parts = _parts(text, number)
        if not all(part.strip() for part in parts):
            raise UserError(f"text {number + 1} is empty; there is nothing to judge")
        fitting = [n for n, task in self.tasks.items() if len(task.columns) == len(parts)]
        what = "one text" if len(parts) == 1 else "a pair of texts"
        if chosen is None:
            if not fitting:
                raise UserError(f"text {number + 1}: no task of this model judges {what}")
            return tuple(fitting)
        for name in chosen:
            if name not in fitting:
                wants = "a pair" if self.tasks[name].paired else "one text"
                raise UserError(f"text {number + 1}: task {name!r} judges {wants}, this is {what}")
        return tuple(chosen)

    def unknown(self, name: str) -> UserError:
        known = ", ".join(self.tasks)
        return UserError(f"no task {name!r} in this model ({known}){nearest(name, self.tasks)}")

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

    def forms(self, texts: Sequence[Text], asked: Sequence[tuple[str, ...]]) -> tuple[Form, Form]:
        """The texts as tokens: those that some task reads whole, and those read apart."""
        return self._form(texts, asked, False), self._form(texts, asked, True)

    def _form(self, texts: Sequence[Text], asked: Sequence[tuple[str, ...]], twin: bool) -> Form:
        parts: list[tuple[str, ...]] = []
        places: dict[int, tuple[int, ...]] = {}
        for number, (text, tasks) in enumerate(zip(texts, asked, strict=True)):
            if any(self.tasks[task].twin == twin for task in tasks):
                words = (text,) if isinstance(text, str) else text
                own = [(word,) for word in words] if twin else [words]
                places[number] = tuple(range(len(parts), len(parts) + len(own)))
                parts += own
        sequences, cut = tokenise(parts, self.tokenizer, self.longest)
        long = (
            [number for number, own in places.items() if cut[list(own)].any()] if cut.any() else []
        )
        return Form(sequences, places, frozenset(long))

    # Vectors.

    def encode(self, texts: Text | Iterable[Text], task: str | None = None) -> NDArray[np.float32]:
        """Each text's vector as this task's head reads it (the first task's by default).

        One text -> [width], several -> [texts, width]. A pair, as a tuple, is read as one.
        """
        name = next(iter(self.tasks)) if task is None else task
        if not isinstance(name, str) or name not in self.tasks:
            raise self.unknown(str(name))
        if isinstance(texts, str | tuple):
            one: NDArray[np.float32] = self.encode([texts], name)[0]
            return one
        parts = [_parts(text, number) for number, text in enumerate(_several(texts))]
        for number, words in enumerate(parts, 1):
            if len(words) == 2 and self.tasks[name].twin:
                raise UserError(
                    f"text {number} is a pair, and task {name!r} reads the two texts of a pair "
                    "apart; encode them one by one"
                )
        if not parts:
            return np.empty((0, self.network.shape.width), np.float32)
        return self.vectors(tokenise(parts, self.tokenizer, self.longest)[0], name)

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

    def save_words(self, folder: Path) -> None:
        """All but the weights."""
        write_atomically(folder / "tokenizer.json", self.tokenizer.to_str())
        write_atomically(folder / config.FILE, json.dumps(self.config(), indent=1) + "\n")
        words = card.write(self.plan, self.tasks, self.longest, self.facts)
        write_atomically(folder / "README.md", words)


def read_words(folder: Path) -> tuple[Network, Tokenizer, int, dict[str, Any]]:
    """What `save_words` wrote, as a model's fields; the network's cells are empty."""
    found = config.read(folder)
    try:
        plan = plan_of(found.plan, found.tasks, found.shape)
        network = Network(plan, found.tasks, found.shape)
    except UserError as mistake:
        raise UserError(f"{folder / config.FILE}: {mistake}") from None
    facts = found.facts.model_dump(exclude_unset=True)
    return network, read_tokenizer(folder), found.longest, facts
