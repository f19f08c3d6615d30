"""A model: texts in, labels and numbers out, whatever computes the passes.

`Model` has everything but the computing: which tasks fit a text, tokens, order, answers in words.
`torch_model.MultiTaskModel` computes with torch, `onnx_model.OnnxModel` with an exported graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from bough.data.tokens import Sequences, Text, tokenise
from bough.errors import UserError, nearest, shorten
from bough.inference.answers import Answer, answers_of, in_words
from bough.inference.columns import Asked, asked_of
from bough.model.network import Network
from bough.parts_of_speech.taggers import Tagger, tagger
from bough.plan.encoder_pooling import OwnPooling
from bough.plan.plan import Plan
from bough.recipe.sources import columns_of, is_frame
from bough.recipe.tasks import Task

__all__ = ["Form", "Model", "Text"]

WINDOW = 2048  # texts that a stream of texts is sorted within


class Form(NamedTuple):
    """The sequences of all texts that some task reads in one form: whole, or a pair's apart."""

    sequences: Sequences
    places: dict[int, tuple[int, ...]]  # number of a text -> its sequences
    cut: frozenset[int]  # texts that are longer than the model reads


def _several(texts: Iterable[Text]) -> Iterable[Text]:
    if is_frame(texts):  # an Arrow table is none to iterate over
        return texts
    if not isinstance(texts, Iterable) or isinstance(texts, Mapping | bytes):
        raise UserError(f"{shorten(texts)} is no text; expected one, a pair as a tuple, or several")
    return texts


def _parts(text: object, number: int) -> tuple[str, ...]:
    """The one or two texts that make up the text of this number; a UserError if it is none."""
    parts = tuple(text) if isinstance(text, tuple | list) else (text,)
    if len(parts) not in (1, 2) or not all(isinstance(part, str) for part in parts):
        raise UserError(
            f"text {number + 1} is {shorten(text)}; expected a text, or two of them as a tuple"
        )
    words = tuple(map(str, parts))
    try:
        "".join(words).encode()
    except UnicodeEncodeError as fault:
        half = f"\\u{ord(fault.object[fault.start]):04x}"
        raise UserError(f"text {number + 1}: {half} is half a character; fix the text") from None
    return words


@dataclass(repr=False)
class Model(ABC):
    """One model for all tasks: what `bough.load` opens.

    Attributes:
        plan: What the tasks share; `print(model.plan)` shows it as a table.
        tasks: The tasks by their names: text columns, labels, range.
        longest: Tokens that are read of a text; longer texts are cut, and their answers marked.

    Example:
        >>> model = bough.load("runs/first")
        >>> one, two = model.predict(["A fine film.", "Two hours I will not get back."])
        >>> sorted(model.predict(("How old is he?", "What is his age?")))
        ['questions', 'similarity']
        >>> len(model.encode("A fine film.", task="sentiment"))
        16
    """

    network: Network  # its cells are empty where another runtime has the weights
    tokenizer: Tokenizer
    longest: int  # tokens; longer texts are cut
    facts: dict[str, Any] = field(default_factory=dict)  # encoder, scores, examples: for the card
    origin: Path | None = field(default=None, kw_only=True)  # the folder that it was opened from

    def __repr__(self) -> str:
        tasks = ", ".join(f"{name} ({in_words(task)})" for name, task in self.tasks.items())
        on = f" of {self.facts['encoder']}" if self.facts.get("encoder") else ""
        return f"<{type(self).__name__} {self.plan.text}{on}: {tasks}>"

    @property
    def plan(self) -> Plan:
        return self.network.plan

    @property
    def tasks(self) -> dict[str, Task]:
        return self.network.tasks

    @property
    def tagger(self) -> Tagger | None:
        """Who tells the parts of speech, where the trunk sees them."""
        name = self.network.shape.tagger
        return tagger(name) if name else None

    # What a runtime does.

    @abstractmethod
    def outputs(
        self, whole: Form, apart: Form, asked: Sequence[tuple[str, ...]]
    ) -> dict[str, tuple[list[int], Tensor]]:
        """Raw outputs: task -> numbers of the texts it answered, and its outputs for them."""

    @abstractmethod
    def vectors(
        self, sequences: Sequences, task: str, pooling: OwnPooling | None = None
    ) -> NDArray[np.float32]:
        """Each sequence as this task's head reads it; or the trunk's states there, so pooled."""

    # Answers.

    @overload  # a text is an iterable of texts to the type checker, too
    def predict(  # type: ignore[overload-overlap]
        self, texts: Text, tasks: Iterable[str] | str | None = None, *, abstain: float = 0
    ) -> dict[str, Answer]: ...
    @overload
    def predict(
        self,
        texts: Iterable[Text],
        tasks: Iterable[str] | str | None = None,
        *,
        text: Sequence[str] | str = (),
        abstain: float = 0,
    ) -> list[dict[str, Answer]]: ...
    def predict(
        self,
        texts: Text | Iterable[Text],
        tasks: Iterable[str] | str | None = None,
        *,
        text: Sequence[str] | str = (),
        abstain: float = 0,
    ) -> dict[str, Answer] | list[dict[str, Answer]]:
        """Answers by task: a dict for one text, a list of them, in order, for several.

        Args:
            texts: A text, a pair as a tuple, or any iterable of these; or a frame (pandas, polars,
                Arrow, `datasets`), whose rows are answered by the tasks whose columns it has.
            tasks: A task's name, or several; else all on one text, or all on pairs.
            text: The frame's column with the text, or two for a pair, if not by their names in the
                recipe; then all tasks on as many texts answer.
            abstain: Labels and spans of a smaller probability are left out of the answers.
        """
        if isinstance(texts, str | tuple):
            return next(self.stream([texts], tasks, text=text, abstain=abstain))
        return list(self.stream(_several(texts), tasks, text=text, abstain=abstain))

    def stream(
        self,
        texts: Iterable[Text],
        tasks: Iterable[str] | str | None = None,
        *,
        text: Sequence[str] | str = (),
        abstain: float = 0,
    ) -> Iterator[dict[str, Answer]]:
        """Like `predict`, for however many texts: answers come in order, while texts are read."""
        if not 0 <= abstain <= 1:
            raise UserError(f"abstain is {abstain}; expected a probability from 0 to 1")
        chosen = self.chosen(tasks)
        read = (text,) if isinstance(text, str) else tuple(text)
        if is_frame(texts):
            answered = self._rows(asked_of(columns_of(texts), self.tasks, chosen or (), read))
        elif read:
            raise UserError(f"text names columns of a frame ({', '.join(read)}); this is none")
        else:
            fits = ((each, self.asked(each, chosen, i)) for i, each in enumerate(texts))
            answered = self.answer(fits)
        return (
            {task: answer.unless_below(abstain) for task, answer in answers.items()}
            for answers in answered
        )

    def _rows(self, rows: Sequence[Sequence[Asked]]) -> Iterator[dict[str, Answer]]:
        """Answers to rows of which each may have several texts."""
        each = self.answer(
            (text, self.asked(text, names, number))
            for number, row in enumerate(rows)
            for text, names in row
        )
        for row in rows:
            found = {task: answer for _ in row for task, answer in next(each).items()}
            yield {task: found[task] for task in self.tasks if task in found}

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
            except UserError as error:  # what came before a bad text is answered still
                fault = error
            if not window:
                break
            texts, names = zip(*window, strict=True)
            out: list[dict[str, Answer]] = [{} for _ in window]
            whole, apart = self.forms(texts, names)
            for task, (numbers, outputs) in self.outputs(whole, apart, names).items():
                cut = (apart if self.tasks[task].twin else whole).cut
                said = self._said(task, outputs, numbers, texts, whole)
                for number, answer in zip(numbers, said, strict=True):
                    out[number][task] = replace(answer, cut=True) if number in cut else answer
            for answered, wanted in zip(out, names, strict=True):
                yield {task: answered[task] for task in wanted}
        if fault is not None:
            raise fault

    def _said(
        self, task: str, outputs: Tensor, numbers: Sequence[int], texts: Sequence[Text], whole: Form
    ) -> list[Answer]:
        if self.tasks[task].kind != "tag":
            return answers_of(self.tasks[task], outputs)
        index = whole.sequences.words
        assert index is not None
        words = [index.words(whole.places[number][0]) for number in numbers]
        asked = (texts[n] for n in numbers)
        alone = [text if isinstance(text, str) else text[0] for text in asked]  # ("text",) is one
        return answers_of(self.tasks[task], outputs, alone, words)

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
        """The tasks that answer this text; a UserError if it does not fit."""
        parts = _parts(text, number)
        if not all(part.strip() for part in parts):
            raise UserError(f"text {number + 1} is empty; there is nothing to judge")
        try:
            return self.fitting(chosen, len(parts) == 2)
        except UserError as error:
            raise UserError(f"text {number + 1}: {error}") from None

    def fitting(self, chosen: Sequence[str] | None, pair: bool) -> tuple[str, ...]:
        """The tasks that judge a pair, or one text; a UserError if a chosen one does not."""
        what, other = ("a pair of texts", "one text") if pair else ("one text", "a pair")
        for name in chosen or ():
            if self.tasks[name].paired != pair:
                raise UserError(f"task {name!r} judges {other}, this is {what}")
        names = tuple(name for name in chosen or self.tasks if self.tasks[name].paired == pair)
        if not names:
            raise UserError(f"no task of this model judges {what}")
        return names

    def unknown(self, name: str) -> UserError:
        known = ", ".join(self.tasks)
        return UserError(f"no task {name!r} in this model ({known}){nearest(name, self.tasks)}")

    def forms(self, texts: Sequence[Text], asked: Sequence[tuple[str, ...]]) -> tuple[Form, Form]:
        """The texts as tokens: those that some task reads whole, and those read apart."""
        return self._form(texts, asked, False), self._form(texts, asked, True)

    def _form(self, texts: Sequence[Text], asked: Sequence[tuple[str, ...]], twin: bool) -> Form:
        parts: list[tuple[str, ...]] = []
        places: dict[int, tuple[int, ...]] = {}
        for number, (text, tasks) in enumerate(zip(texts, asked, strict=True)):
            if any(self.tasks[task].twin == twin for task in tasks):
                words = (text,) if isinstance(text, str) else text
                separate = [(word,) for word in words] if twin else [words]
                places[number] = tuple(range(len(parts), len(parts) + len(separate)))
                parts += separate
        tagging = not twin and any(self.tasks[t].kind == "tag" for names in asked for t in names)
        sequences, cut = tokenise(parts, self.tokenizer, self.longest, tagging, self.tagger)
        long = [n for n, place in places.items() if cut[list(place)].any()] if cut.any() else []
        return Form(sequences, places, frozenset(long))

    # Vectors.

    def encode(
        self, texts: Text | Iterable[Text], task: str | None = None, normalise: bool = False
    ) -> NDArray[np.float32]:
        """Each text's vector: [width] for one text, else [texts, width].

        Args:
            texts: A text, a pair as a tuple (read as one), or any iterable of these.
            task: A task's name, for the vector that its head reads; else the trunk's on the first
                task's path, pooled as the encoder was made for.
            normalise: Scale each vector to length 1.
        """
        name = next(iter(self.tasks)) if task is None else task
        if not isinstance(name, str) or name not in self.tasks:
            raise self.unknown(str(name))
        if self.tasks[name].kind == "tag" and task is not None:
            raise UserError(
                f"task {name!r} reads a vector per word and none of a whole text; leave `task` out "
                "for the trunk's own"
            )
        if is_frame(texts):
            raise UserError("a frame has several columns; give one: frame['text'].tolist()")
        if isinstance(texts, str | tuple):
            one: NDArray[np.float32] = self.encode([texts], task, normalise)[0]
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
        sequences, _ = tokenise(parts, self.tokenizer, self.longest, tagger=self.tagger)
        vectors = self.vectors(sequences, name, self._trunk_pooling(name) if task is None else None)
        if normalise:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)
        return vectors

    def _trunk_pooling(self, task: str) -> OwnPooling | None:
        """The encoder's own pooling; None where this task's head reads just that, or in a model
        from before, which does not know it."""
        own: OwnPooling | None = (self.facts.get("pooling") or {}).get("name")
        read = self.tasks[task].pooling
        if read == "words":
            return own if own != "pooler" or task in self.plan.pooled else "mean"
        assert read != "auto"
        if own == "pooler" and task not in self.plan.pooled:  # the model came without it
            own = read
        late = any(step.cell.place.startswith("late ") for step in self.plan.path(task))
        return None if own == read and not late else own
