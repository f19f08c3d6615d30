"""The models that become one: each of their tasks, with rows to learn it from and to judge it by.

A run brings its own rows. What else is grafted needs texts: with labels in a column `label`, or
without, and then the model's own answers are what is right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, assert_never

from torch import Tensor

from bough.data.checked_rows import Rows
from bough.data.label_cells import label_cells
from bough.data.prepared.streams import open_table
from bough.data.split import split_off
from bough.data.tables import Wanted
from bough.errors import UserError, listed
from bough.files import write_atomically
from bough.inference.load import load
from bough.inference.model import Model
from bough.recipe.labels import number
from bough.recipe.tasks import Task
from bough.recipe.teacher import Teacher
from bough.runs.run_dir import Run
from bough.training.teachers.kept_answers import answered, teacher_folder
from bough.training.teachers.sequence_classifier import NAME, is_classifier, open_classifier
from bough.training.teachers.soft_answers import SoftAnswers, decided, matched
from bough.user_paths import place

LABEL = "label"
BESIDE = ("id", LABEL)  # columns of a file of texts that are no texts
# What a student takes over of a task; the rest, as its head and its loss, is the student's own.
ANSWER = ("kind", "labels", "label_values", "separator", "range", "scale", "metric")
TAKEN = (*ANSWER, "text", "label")  # where the rows are the task's own, too
FOUND = ("labels", "range", "scale")  # what the model knows and its recipe may have left open


@dataclass(frozen=True)
class Donor:
    """One task of one model, as the student will have it."""

    name: str
    source: str  # the model, as it was named
    model: Model
    theirs: str  # what the task is called there
    task: Task  # with the rows' sources
    labelled: bool  # whether the rows' labels are other than its own answers

    @property
    def teacher(self) -> Teacher:
        return Teacher(model=self.source, task=None if self.theirs == NAME else self.theirs)

    def answers(self, texts: Sequence[tuple[str, ...]]) -> Tensor:
        """In the student's classes or range, [texts, classes or 1]."""
        known = self.model.tasks[self.theirs]
        said = SoftAnswers(answered(self.model, self.theirs, texts), known.labels, known.range)
        return matched(self.name, self.task, self.teacher, said)


class _Bare(NamedTuple):
    """A task of a model, before its rows are looked at."""

    name: str
    theirs: str
    source: str
    run: Run | None
    model: Model | None  # none: a classifier of transformers, which is opened by its texts
    inside: Path


def donors(
    models: Sequence[str], texts: Mapping[str, str], held_out: Mapping[str, str], folder: Path
) -> list[Donor]:
    """All tasks of these models; `texts` has files by task, or under "" for the tasks without, and
    `held_out` those to judge by; rows that are made are written into `folder`."""
    found = _tasks_of(models)
    needing = [each.name for each in found if each.run is None or each.name in texts]
    names = [each.name for each in found]
    for option, given in (("--texts", [name for name in texts if name]), ("--held-out", held_out)):
        if unknown := [name for name in given if name not in names]:
            raise UserError(f"{option} {unknown[0]}=...: the tasks are {listed(names)}")
    if own := [name for name in held_out if name not in needing]:
        raise UserError(
            f"--held-out {own[0]}=...: {own[0]} is judged by the dev rows of its run; give rows to "
            f"learn from as well, --texts {own[0]}=FILE, to use others"
        )
    made: dict[Path, str] = {}  # written once all is found to be right
    out = []
    for each in found:
        if each.name not in needing:
            out.append(_of_run(each))
            continue
        file = texts.get(each.name, texts.get(""))
        if file is None:
            raise UserError(
                f"{each.source}: task {each.name!r} has no rows of its own; give texts for it with "
                f"--texts {each.name}=FILE"
            )
        out.append(_with_texts(each, file, held_out.get(each.name), folder, made))
    for path, content in made.items():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    return out


def _tasks_of(models: Sequence[str]) -> list[_Bare]:
    found: list[_Bare] = []
    for source in models:
        inside = teacher_folder(source)
        foreign = is_classifier(inside)
        run = None if foreign or not (Path(source) / "recipe.yaml").is_file() else Run.open(source)
        model = None if foreign else load(inside)
        stem = re.sub(r"[^A-Za-z0-9_-]", "-", Path(source).resolve().name)
        for theirs in [stem] if model is None else list(model.tasks):
            name = _free(theirs, [each.name for each in found])
            found.append(_Bare(name, theirs, source, run, model, inside))
    return found


def _free(name: str, taken: Sequence[str]) -> str:
    number = 1
    while (called := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return called


def _taken(task: Task, keys: Sequence[str], **more: Any) -> Task:
    """The task as far as a student takes it over."""
    settings = {key: getattr(task, key) for key in keys}
    return Task(**{key: value for key, value in settings.items() if value is not None}, **more)


def _of_run(found: _Bare) -> Donor:
    name, theirs, source, run, model, _ = found
    assert run is not None
    assert model is not None
    recipe = run.recipe()
    told = recipe.tasks[theirs]
    root = recipe.root if recipe.data != "." else run.folder.absolute()
    rows = {}
    for split in ("train", "dev"):
        rows[split] = getattr(told, split)
        if isinstance(rows[split], str):
            rows[split] = str(place(rows[split], root))
    known = {key: getattr(model.tasks[theirs], key) for key in FOUND}
    task = _taken(told.model_copy(update=known), TAKEN, **rows)
    task = task.model_copy(update={"limit": told.limit})
    return Donor(name, source, model, theirs, task, True)


def _with_texts(
    found: _Bare, file: str, judged: str | None, folder: Path, made: dict[Path, str]
) -> Donor:
    """A donor without rows: those of a file, judged by others or by a part of them."""
    name, theirs, source, _, model, inside = found
    columns = model.tasks[theirs].columns if model is not None else _text_columns(file)
    text: Any = columns[0] if len(columns) == 1 else tuple(columns)
    rows = _rows(name, file, columns)
    others = None if judged is None else _rows(name, judged, columns)
    labelled = rows.labels is not None
    if others is not None and labelled != (others.labels is not None):
        has, has_not = (file, judged) if labelled else (judged, file)
        raise UserError(f"{has_not}: has no column {LABEL!r}, which {has} has")
    if model is None:
        told = [*(rows.labels or ()), *((others.labels or ()) if others is not None else ())]
        values = [value for value in map(number, told) if value is not None]
        ends = (min(values), max(values)) if len(set(values)) > 1 else None
        asking = Task(kind="regress", text=text, range=ends)
        model, theirs = open_classifier(inside, asking, None), NAME
    known = model.tasks[theirs]
    task = _taken(known, ANSWER, text=text)
    if not labelled:
        rows = _labelled(rows, known, model, theirs)
        others = None if others is None else _labelled(others, known, model, theirs)
    assert rows.labels is not None
    if not labelled and task.scale is not None:  # which fits no texts yet: its range is not known
        task = label_cells(task).found(name, rows.labels, None)
    if others is None:
        by_class = task.kind in ("classify", "ordinal")
        learned, kept = split_off(rows, lambda label: label if by_class else 0)
        splits = {"train": (rows, learned), "dev": (rows, kept)}
    else:
        every = [list(range(len(each))) for each in (rows, others)]
        splits = {"train": (rows, every[0]), "dev": (others, every[1])}
    files = {}
    for split, (table, chosen) in splits.items():
        cells = list(zip(table.texts, table.labels or (), strict=True))
        lines = [
            {**dict(zip(columns, texts, strict=True)), LABEL: label}
            for texts, label in (cells[row] for row in chosen)
        ]
        path = (folder / f"{name}-{split}.jsonl").absolute()
        made[path] = "".join(f"{json.dumps(line)}\n" for line in lines)
        files[split] = str(path)
    return Donor(name, source, model, theirs, task.model_copy(update=files), labelled)


def _rows(name: str, file: str, columns: Sequence[str]) -> Rows:
    """The texts of a file, with what it has of labels."""
    table = open_table(file, Wanted((*columns, LABEL), "", False), Path.cwd(), f"texts of {name}")
    for column in columns:
        if column not in table.columns:
            raise UserError(f"{file}: has no column {column!r} of task {name!r}")
    texts = list(zip(*(map(str, table.columns[column]) for column in columns), strict=True))
    labels = list(table.columns[LABEL]) if LABEL in table.columns else None
    numbers = list(range(len(texts)))
    return Rows(texts, labels, [str(n) for n in numbers], file, numbers)


def _labelled(rows: Rows, task: Task, model: Model, theirs: str) -> Rows:
    """With the model's own answers as labels."""
    return replace(rows, labels=_own_labels(task, answered(model, theirs, rows.texts)))


def _own_labels(task: Task, soft: Tensor) -> list[Any]:
    """A model's answers as the cells of a file have them."""
    said, names = decided(task, soft).tolist(), task.labels or ()
    match task.kind:
        case "classify" | "ordinal":
            return [names[place] for place in said]
        case "multilabel":
            return [[n for n, holds in zip(names, row, strict=True) if holds] for row in said]
        case "regress" | "tag":
            return list(said)
        case _:
            assert_never(task.kind)


def _text_columns(file: str) -> tuple[str, ...]:
    """Of a file for a model that does not say what its texts are called."""
    names = open_table(file, Wanted((), "", False), Path.cwd(), "texts").names
    columns = tuple(name for name in names if name and name not in BESIDE)
    if len(columns) not in (1, 2):
        raise UserError(
            f"{file}: has the columns {listed(columns)}; expected one for a text, or two for a "
            f"pair, and beside them only {listed(BESIDE)}"
        )
    return columns


def encoder_of(found: Sequence[Donor]) -> str | None:
    """The encoder that the first of them with a recipe began with."""
    for donor in found:
        if (Path(donor.source) / "recipe.yaml").is_file():
            return Run.open(donor.source).recipe().encoder
    return None
