"""The training examples with what their teachers answer, and with texts that only these answer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

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
) -> dict[str, Examples]:
    """The examples of every task, with its teachers' answers where it has teachers.

    The first process asks the teachers; the others are told.
    """
    out = dict(examples)
    for name, source in examples.items():
        task = data.tasks[name]
        if not task.teacher:
            continue
        texts = list(data.rows[name]["train"].texts)
        if more := data.unlabelled.get(name):
            source = source.with_unlabelled(Examples.of(task, more, tokenizer, longest, tagger))
            texts += more.texts
        if processes.first:
            answers = mean_answers(name, task, texts, root, device, say)
        else:
            answers = torch.empty(len(texts), len(task.labels or ("value",)))
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


def digests(examples: Mapping[str, Examples]) -> dict[str, str]:
    """What the teachers' answers are known by: task -> sha256."""
    return {
        name: hashlib.sha256(source.taught.contiguous().numpy().tobytes()).hexdigest()
        for name, source in examples.items()
        if source.taught is not None
    }
