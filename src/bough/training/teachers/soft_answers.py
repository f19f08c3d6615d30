"""What a teacher answers, in its own classes or range, and the same in those of a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, assert_never

import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.errors import UserError
from bough.recipe.tasks import Task
from bough.recipe.teacher import Teacher


class SoftAnswers(NamedTuple):
    """One teacher's, to each of many texts."""

    values: Tensor  # [texts, classes] probabilities, or [texts, 1] numbers
    labels: tuple[str, ...] | None  # its classes; None: it answers with numbers
    range: tuple[float, float] | None = None  # of its numbers


def matched(name: str, task: Task, teacher: Teacher, said: SoftAnswers) -> Tensor:
    """The answers in the task's own classes or range; one that does not fit is refused."""
    where = f"task {name!r}: its teacher {teacher.source}"
    if (said.labels is None) != (task.labels is None):
        kinds = ("a number", "classes") if said.labels is None else ("classes", "a number")
        raise UserError(f"{where} answers with {kinds[0]}, and the task with {kinds[1]}")
    if not bool(torch.isfinite(said.values).all()):
        raise UserError(f"{where} answers what is no number; train it anew")
    if said.labels is not None:
        renaming = _renaming(where, task, teacher, said.labels)
        if task.kind == "multilabel":  # chances that do not exclude each other have no sum
            return (said.values[:, :, None] * renaming).amax(1)
        return said.values @ renaming
    (low, high), (first, last) = task.ends, teacher.range or said.range or task.ends
    if teacher.range is None and (first, last) != (low, high):
        raise UserError(
            f"{where} answers from {first:g} to {last:g}, and the task from {low:g} to {high:g}; "
            f"if these are the same scale, give the teacher `range: [{first:g}, {last:g}]`"
        )
    values = low + (said.values - first) / (last - first) * (high - low)
    return values if task.range is None else values.clamp(low, high)


def decided(task: Task, soft: Tensor) -> NDArray[Any]:
    """What such answers come to, in the task's own form: the likeliest class, every label that is
    likelier than not, or the number."""
    match task.kind:
        case "classify" | "ordinal":
            said = soft.argmax(1)
        case "multilabel":
            said = (soft > 0.5).long()
        case "regress":
            said = soft[:, 0]
        case "tag":
            raise ValueError("a tag task answers word by word, which no teacher does")
        case _:
            assert_never(task.kind)
    return said.numpy()


def other_classes(where: str, theirs: Sequence[str], ours: Sequence[str]) -> UserError:
    """What a teacher is refused with whose classes are not the task's."""
    advice = "give the teacher `labels: {theirs: ours}` for each of its classes"
    return UserError(
        f"{where} has the classes {', '.join(theirs)}, and the task {', '.join(ours)}; {advice}"
    )


def _renaming(where: str, task: Task, teacher: Teacher, theirs: tuple[str, ...]) -> Tensor:
    """[theirs, ours]: 1 where both are the same class; several of theirs may be one of ours."""
    ours = task.labels or ()
    given = teacher.labels
    if given is None:
        folded = Counter(label.casefold() for label in ours)
        by_name = {label.casefold(): label for label in ours if folded[label.casefold()] == 1}
        given = {label: by_name.get(label.casefold(), label) for label in theirs}
        given |= {label: label for label in ours}
    names = [given.get(label) for label in theirs]
    if set(names) != set(ours):
        raise other_classes(where, theirs, ours)
    return torch.tensor([[float(name == label) for label in ours] for name in names])
