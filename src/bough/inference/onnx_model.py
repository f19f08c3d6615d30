"""Answering through onnxruntime: an exported folder behind the same interface as the model.

Texts are tokenised as ever and grouped by exact length, so that no bucket has padding; each bucket
is one run of the graph, in which the tasks' shared prefix is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.data.packing import by_tokens
from bough.data.tokens import Ints, Sequences
from bough.errors import UserError
from bough.extras import install_line
from bough.inference.folder import read_metadata
from bough.inference.model import Form, Model
from bough.inference.onnx_names import (
    ASKED,
    IDS,
    PAIRS_FILE,
    SIDES,
    TEXTS_FILE,
    TYPES,
    Sizes,
    joined,
    pairs_form,
    texts_form,
    twins,
    vector_name,
    wanted,
)
from bough.model.network import Network
from bough.plan.encoder_pooling import OwnPooling
from bough.runs.model_facts import digest

TOKENS = 2048  # of one run: more would not stay in the processor's caches
Floats = NDArray[np.float32]
Read = dict[str, Floats]  # output -> its rows, one per sequence


@dataclass(repr=False)
class OnnxModel(Model):
    """A model whose weights are in graphs; its network is the plan's skeleton, without weights."""

    texts: Any = None  # onnxruntime.InferenceSession
    pairs: Any = None  # the same; None where no task reads its texts apart

    def save(self, folder: str | Path) -> Path:
        """Refused: what another folder would need is not in the graphs."""
        raise UserError(
            f"{folder}: an ONNX export cannot be saved as a model, for its weights are in graphs; "
            "copy its folder, or load the run it came from and save that"
        )

    def outputs(
        self, whole: Form, apart: Form, asked: Sequence[tuple[str, ...]]
    ) -> dict[str, tuple[list[int], Tensor]]:
        """Raw outputs: task -> numbers of the texts it answered, and its outputs for them."""
        numbers: dict[str, list[int]] = {}
        for number, names in enumerate(asked):
            for name in names:
                numbers.setdefault(name, []).append(number)
        out: dict[str, tuple[list[int], Tensor]] = {}
        for twin, (sequences, places, _) in ((False, whole), (True, apart)):
            tasks = [name for name in numbers if self.tasks[name].twin == twin]
            if not tasks:
                continue
            fitting = {n: tuple(t for t in asked[n] if self.tasks[t].twin == twin) for n in places}
            asked_of = [fitting[number] for number, seats in places.items() for _ in seats]
            read = self._read(sequences, asked_of)
            for task in tasks:
                seats = np.array([places[number] for number in numbers[task]])
                if self.tasks[task].kind == "tag":
                    outputs = _of_words(read[task], sequences, seats[:, 0])
                else:
                    outputs = self._join(task, seats, read) if twin else read[task][seats[:, 0]]
                out[task] = numbers[task], torch.from_numpy(outputs)
        return out

    def vectors(self, sequences: Sequences, task: str, pooling: OwnPooling | None = None) -> Floats:
        """Each sequence as this task's head reads it; the graph gives no other vectors."""
        if pooling is not None:
            raise UserError(
                f"an ONNX export has the vectors that the heads read, not the encoder's own "
                f"({pooling}); name a task: encode(texts, task={task!r})"
            )
        name = vector_name(task)
        return self._read(sequences, [(task,)] * len(sequences), [name])[name]

    def _read(
        self,
        sequences: Sequences,
        asked: Sequence[tuple[str, ...]],
        names: list[str] | None = None,
    ) -> Read:
        """The texts' graph on all sequences, each for the tasks that ask about it."""
        out: Read = {}
        kinds = list(zip(sequences.lengths.tolist(), asked, strict=True))
        for rows in by_tokens(sequences.lengths, TOKENS, kinds):
            tasks = asked[rows[0]]
            at = sequences.bounds[rows][:, None] + np.arange(sequences.lengths[rows[0]])
            feeds = {
                IDS: sequences.ids[at].astype(np.int64),
                TYPES: sequences.types[at].astype(np.int64),
                ASKED: np.array([task in tasks for task in self.tasks]),
            }
            fetched = names or wanted(self.network, tasks)
            for name, values in zip(fetched, self.texts.run(fetched, feeds), strict=True):
                if values.ndim == 3:  # a row for each token, as `sequences` has them
                    tokens, width = len(sequences.ids), values.shape[2]
                    out.setdefault(name, np.empty((tokens, width), np.float32))[at] = values
                    continue
                if name not in out:
                    out[name] = np.empty((len(sequences), values.shape[1]), np.float32)
                out[name][rows] = values
        return out

    def _join(self, task: str, seats: Ints, read: Read) -> Floats:
        """A twin task's outputs from what was read of its two texts."""
        needed = {name for t in twins(self.network, task) for name in joined(self.network, t)}
        feeds = {}
        for side, places in zip(SIDES, seats.T, strict=True):
            for twin in (t for t, other in self.tasks.items() if other.twin):
                for name, width in joined(self.network, twin).items():
                    nothing = np.zeros((len(seats), width), np.float32)
                    feeds[f"{name}.{side}"] = read[name][places] if name in needed else nothing
        outputs: Floats = self.pairs.run([task], feeds)[0]
        return outputs


def _of_words(read: Floats, sequences: Sequences, chosen: Ints) -> Floats:
    """The first token's rows of the words of the chosen sequences, one after another."""
    words = sequences.words
    assert words is not None
    index = words.of(chosen)
    found: Floats = read[np.repeat(sequences.bounds[chosen], index.counts) + index.tokens]
    return found


def load(source: str | Path, threads: int | None = None) -> OnnxModel:
    """A model from a folder that `bough export --onnx` wrote; `threads` of one run."""
    folder = Path(source).expanduser()
    if not (folder / TEXTS_FILE).is_file():
        raise UserError(
            f"{folder}: there is no {TEXTS_FILE}; write a folder with: bough export RUN --onnx DIR"
        )
    network, tokenizer, longest, facts = read_metadata(folder)
    texts = _fitting(folder / TEXTS_FILE, threads, network, texts_form(network))
    twin = any(task.twin for task in network.tasks.values())
    pairs = _fitting(folder / PAIRS_FILE, threads, network, pairs_form(network)) if twin else None
    facts["sha256"] = graphs_digest(folder)
    return OnnxModel(network, tokenizer, longest, facts, texts, pairs, origin=folder)


def graphs_digest(folder: Path) -> str:
    """Of all graphs, and of the weights beside them where they are too large to be in them."""
    return digest(file.read_bytes() for file in sorted(folder.glob("*.onnx*")))


def _fitting(file: Path, threads: int | None, network: Network, form: tuple[Sizes, Sizes]) -> Any:
    """The graph, if it is of the model that the config.json beside it tells of."""
    graph = session(file, threads)
    # The order of the tasks matters, too: by it they are asked.
    tasks = graph.get_modelmeta().custom_metadata_map.get("tasks", "unknown")
    odd = [] if tasks == ",".join(network.tasks) else [f"its tasks are {tasks}"]
    for ours, values in zip(form, (graph.get_inputs(), graph.get_outputs()), strict=True):
        theirs = {value.name: (value.shape or [1])[-1] for value in values}
        names = [*ours, *theirs]
        odd += [f"{name} differs" for name in names if ours.get(name) != theirs.get(name)]
    if odd:
        raise UserError(
            f"{file}: does not fit the config.json beside it ({odd[0]}); export the run anew"
        )
    return graph


def session(file: Path, threads: int | None) -> Any:
    """The graph, ready to run."""
    try:
        import onnxruntime
    except ImportError:
        raise UserError(f"the ONNX runtime is not installed; {install_line('export')}") from None
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.enable_mem_pattern = False  # one would be kept for every shape that ever came
    # Threads that wait sleep, as those of torch soon do: see `machine_limits.sleep_when_idle`.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"{file}: onnxruntime cannot read it ({reason})") from None
