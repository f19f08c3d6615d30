"""Which tasks labelled rows judge: those whose columns are there, and whose rows they can be.

A column of labels is one task's. Where several tasks read it, the rows are those of the task that
the recipe has them for, or somebody has to say whose they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path, PurePath

from bough.data.prepared.streams import open_table
from bough.data.tables import wanted_of
from bough.errors import UserError, listed, nearest
from bough.inference.columns import fitting, readers
from bough.inference.input_files import Choice
from bough.inference.model import Model
from bough.recipe.recipe import Recipe
from bough.recipe.sources import Hub, Source
from bough.recipe.tasks import SPLITS, Task
from bough.runs.run_dir import Run
from bough.user_paths import place

GIVEN = "the rows given"
TableId = tuple[str, Hashable]  # what a table is called, and what tells it from its namesakes


def judged_tasks(model: Model, source: Source, choice: Choice, root: Path) -> dict[str, Task]:
    """The tasks that the rows judge, each with the columns it is to read."""
    called = source if isinstance(source, str) else GIVEN
    candidates = readers(model.tasks, choice.tasks, choice.text, choice.label)
    first = source[0] if isinstance(source, tuple) and source else None
    by_place = isinstance(first, tuple)  # the columns have no names
    if isinstance(first, tuple):
        able = {n: t for n, t in candidates.items() if len(t.columns) + 1 == len(first)}
        able = able or candidates
    elif choice.tasks:  # a column that is not there is named when it is read
        able = candidates
    else:
        able = _with_their_columns(candidates, source, called, choice, root)
    if choice.tasks:
        return able
    tables = _tables(model)
    owners = _owners(tables, source, root) & able.keys()
    able = {name: task for name, task in able.items() if name in owners or not owners}
    if choice.label:  # if it is some tasks' own, then it is theirs
        able = {n: t for n, t in able.items() if model.tasks[n].label == choice.label} or able
    for task in able.values():
        rivals = [n for n, t in able.items() if by_place or t.label_columns == task.label_columns]
        if not _of_one_table(rivals, model.tasks, tables):
            raise UserError(
                f"{called}: its labels may be those of task {' or '.join(rivals)}; say which to "
                "judge, with --task NAME (in Python tasks='NAME')"
            )
    return able


def _with_their_columns(
    candidates: Mapping[str, Task], source: Source, called: str, choice: Choice, root: Path
) -> dict[str, Task]:
    names = open_table(source, wanted_of(candidates.values()), root, GIVEN).names
    for column in filter(None, (*choice.text, choice.label)):
        if column not in names:
            there = [name for name in names if name]
            raise UserError(
                f"{called}: has no column {column!r}; it has {listed(there) or 'none'}"
                + nearest(column, there)
            )
    how = "or name those to read, by `text` and `label`"
    return fitting(candidates, called, names, how, labels=True)


def _owners(tables: Mapping[str, set[TableId]], source: Source, root: Path) -> set[str]:
    """The tasks that have just these rows; or else rows in a file of that name."""
    table = _table_id(source, root)
    if table is None:
        return set()
    same = {name for name, own in tables.items() if table in own}
    return same or {name for name, own in tables.items() if table[0] in {n for n, _ in own}}


def _of_one_table(
    names: Iterable[str], tasks: Mapping[str, Task], tables: Mapping[str, set[TableId]]
) -> bool:
    """Whether the recipe has the same rows, and the same labels of them, for all these tasks."""
    first, *others = names
    return all(
        tasks[name].label_columns == tasks[first].label_columns and tables[name] & tables[first]
        for name in others
    )


def _tables(model: Model) -> dict[str, set[TableId]]:
    """Each task's: as the recipe of the model's run has them, or else as the model knows them."""
    recipe = _recipe(model)
    if recipe is None:
        data = model.facts.get("data", {})
        return {
            name: {(split["source"], split["rows"]) for split in data.get(name, {}).values()}
            for name in model.tasks
        }
    sources = {
        name: [source for split in SPLITS if (source := getattr(task, split)) is not None]
        for name, task in recipe.tasks.items()
    }
    ids = {name: [_table_id(each, recipe.root) for each in own] for name, own in sources.items()}
    return {name: {table for table in ids.get(name, ()) if table} for name in model.tasks}


def _table_id(source: Source, root: Path) -> TableId | None:
    """None for rows in memory."""
    match source:
        case str():
            return PurePath(source).name, place(source, root).resolve()
        case Hub():
            return source.hub, source.config
    return None


def _recipe(model: Model) -> Recipe | None:
    """That of the model's run, if the model was opened there and the rows' folder is there yet."""
    if model.origin is None or model.origin.name != "model":
        return None
    run = Run(model.origin.parent)
    if not run.begun:
        return None
    try:
        recipe = run.recipe(unset="keep")
        recipe.root  # noqa: B018  # which says so if it is not there
    except UserError:
        return None
    return recipe
