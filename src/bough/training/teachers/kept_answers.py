"""A model's answers to a task's texts, computed once: kept on disk, as the states of frozen parts
are, under the digest of the model's files and the texts, for all runs that ask again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from bough import files
from bough.data.tokens import text_of
from bough.disk_cache import DiskCache, cache_folder, disk_limit
from bough.errors import UserError
from bough.inference import folder as model_folder
from bough.inference.load import is_onnx, load
from bough.inference.model import WINDOW, Model
from bough.recipe.tasks import Task
from bough.recipe.teacher import Teacher
from bough.training.objective.agreement import soft_answers
from bough.training.teachers.sequence_classifier import NAME, is_classifier, open_classifier
from bough.training.teachers.soft_answers import SoftAnswers

VERSION = 3  # of what the answers are: part of every key
_FORMS = ("one answer", "any number of labels")
MATTERS = (".json", ".safetensors", ".onnx", ".bin")  # files of a model that its answers rest on


def model_answers(
    name: str,
    task: Task,
    teacher: Teacher,
    texts: Sequence[tuple[str, ...]],
    device: str,
    say: Callable[[str], None],
) -> SoftAnswers:
    """What the teacher's model answers to these texts, from the disk if it has been asked."""
    assert teacher.model is not None
    folder = teacher_folder(teacher.model)
    foreign = is_classifier(folder)
    ends = (teacher.range or task.range) if foreign else None
    several = task.kind == "multilabel"
    asked = [VERSION, None if foreign else teacher.task or name, task.paired, several, ends]
    key = _key(folder, asked, texts)
    cache = DiskCache(cache_folder())
    kept = cache.read(key, mapped=False)
    if kept is not None:
        ((what, array),) = kept
        return _as_answers(torch.from_numpy(array), what["labels"], what["range"])
    say(f"task {name!r}: its teacher {teacher.model} answers {len(texts):,} texts, once")
    model: Model
    if foreign:
        model, theirs = open_classifier(folder, task, ends), NAME
        model.network.to(torch.device(device))
    else:
        # Not in what is faster here: kept answers must not hang on the machine that was asked.
        precision = "auto" if is_onnx(folder) else "fp32"
        model, theirs = load(folder, device, precision=precision), teacher.task or name
    _check(name, task, teacher, model, theirs)
    values, known = answered(model, theirs, texts), model.tasks[theirs]
    what = {"labels": known.labels, "range": known.range}
    try:
        if values.nbytes <= disk_limit():
            cache.make_room(values.nbytes)
            cache.save(key, [(what, values.numpy())], filled=False)
    except OSError:  # a full or read-only cache is no reason to stop a run
        pass
    finally:
        cache.clear_unfinished(key)
    return _as_answers(values, known.labels, known.range)


def teacher_folder(model: str) -> Path:
    """The folder of a run's or a model's files, ours or transformers'."""
    path = Path(model).expanduser()
    inside = path / "model" if (path / "model" / "config.json").is_file() else path
    if (inside / "config.json").is_file() and is_classifier(inside):
        return inside  # whose weights may have other names than ours
    return model_folder.find(model)


def _key(folder: Path, asked: Sequence[object], texts: Sequence[tuple[str, ...]]) -> str:
    matter = sorted(file for file in folder.iterdir() if file.suffix in MATTERS)
    names = [file.name for file in matter]
    digest = hashlib.sha256(json.dumps([asked, names, files.sha256(matter)]).encode())
    digest.update(json.dumps(list(texts)).encode())
    return digest.hexdigest()[:32]


def _as_answers(
    values: Tensor, labels: Sequence[str] | None, ends: Sequence[float] | None
) -> SoftAnswers:
    low_high = None if ends is None else (float(ends[0]), float(ends[1]))
    return SoftAnswers(values, None if labels is None else tuple(labels), low_high)


def _check(name: str, task: Task, teacher: Teacher, model: Model, theirs: str) -> None:
    where = f"task {name!r}: its teacher {teacher.model}"
    if theirs not in model.tasks:
        known = ", ".join(model.tasks)
        raise UserError(
            f"{where} has no task {theirs!r}, only {known}; name one with "
            f"`teacher: {{model: {teacher.model}, task: ...}}`"
        )
    if model.tasks[theirs].paired != task.paired:
        forms = ("pairs", "one text") if task.paired else ("one text", "pairs")
        raise UserError(f"{where} judges {forms[1]}, and the task {forms[0]}")
    wanted, given = (_FORMS[t.kind == "multilabel"] for t in (task, model.tasks[theirs]))
    if wanted != given:
        raise UserError(f"{where} gives a text {given}, and the task {wanted}")


def answered(model: Model, task: str, texts: Sequence[tuple[str, ...]]) -> Tensor:
    """A model's soft answers, [texts, classes or 1]."""
    parts = []
    for start in range(0, len(texts), WINDOW):
        some = [text_of(text) for text in texts[start : start + WINDOW]]
        asked = [(task,)] * len(some)
        numbers, outputs = model.outputs(*model.forms(some, asked), asked)[task]
        soft = soft_answers(model.tasks[task], outputs).float()
        part = torch.empty_like(soft)
        part[torch.tensor(numbers)] = soft
        parts.append(part)
    return torch.cat(parts)
