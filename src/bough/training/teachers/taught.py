"""The training examples with what their teachers answer, and with texts that only these answer.

A run has the answers in its own folder: it goes on with them, whatever becomes of its teachers.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from bough.data.dataset import Data
from bough.data.examples import Examples
from bough.distributed import Processes
from bough.parts_of_speech.taggers import Tagger
from bough.recipe.tasks import Task
from bough.training.teachers.answer_file import read_answers
from bough.training.teachers.kept_answers import model_answers
from bough.training.teachers.soft_answers import matched

FOLDER = "taught"  # of a run's


def taught(
    examples: Mapping[str, Examples],
    data: Data,
    tokenizer: Tokenizer,
    longest: int,
    root: Path,
    device: str,
    processes: Processes,
    say: Callable[[str], None],
    tagger: Tagger | None = None,
    run: Path | None = None,
) -> dict[str, Examples]:
    """The examples of every task, with its teachers' answers where it has teachers.

    The first process asks the teachers, unless the run's folder has their answers; the others are
    told.
    """
    out = dict(examples)
    for name, source in examples.items():
        task = data.tasks[name]
        if not task.teacher:
            continue
        if more := data.unlabelled.get(name):
            source = source.with_unlabelled(Examples.of(task, more, tokenizer, longest, tagger))
        texts = _texts(name, data)
        answers = torch.empty(len(texts), len(task.labels or ("value",)))
        if processes.first:
            kept = None if run is None else _read(run / _file(name, texts), answers.shape)
            answers = mean_answers(name, task, texts, root, device, say) if kept is None else kept
        processes.hand_out([answers])
        out[name] = replace(source, taught=answers)
    return out


def mean_answers(
    name: str,
    task: Task,
    texts: Sequence[tuple[str, ...]],
    root: Path,
    device: str,
    say: Callable[[str], None],
) -> Tensor:
    """The mean of all teachers' answers, in the task's own classes or range."""
    parts = []
    for teacher in task.teacher:
        if teacher.answers is not None:
            said = read_answers(name, task, teacher, texts, root)
        else:
            said = model_answers(name, task, teacher, texts, device, say)
        parts.append(matched(name, task, teacher, said))
    return torch.stack(parts).mean(0)


def answer_files(examples: Mapping[str, Examples], data: Data) -> dict[str, bytes]:
    """The answers as files of a run's folder: name -> content."""
    found = {}
    for name, source in examples.items():
        if source.taught is not None:
            content = io.BytesIO()
            np.save(content, source.taught.contiguous().numpy())
            found[_file(name, _texts(name, data))] = content.getvalue()
    return found


def _texts(name: str, data: Data) -> list[tuple[str, ...]]:
    """All that a task's teachers are asked."""
    more = data.unlabelled.get(name)
    return [*data.rows[name]["train"].texts, *(more.texts if more else ())]


def _file(name: str, texts: Sequence[tuple[str, ...]]) -> str:
    """With the texts' digest: other texts have no answers there."""
    return f"{FOLDER}/{name}-{hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:12]}.npy"


def _read(file: Path, shape: torch.Size) -> Tensor | None:
    """What the run has kept, if it is whole; that it is the same is known by its digest."""
    try:
        answers = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    whole = answers.dtype == np.float32 and answers.shape == tuple(shape)
    return torch.from_numpy(answers) if whole else None


def digests(examples: Mapping[str, Examples]) -> dict[str, str]:
    """What the teachers' answers are known by: task -> sha256."""
    return {
        name: hashlib.sha256(source.taught.contiguous().numpy().tobytes()).hexdigest()
        for name, source in examples.items()
        if source.taught is not None
    }
