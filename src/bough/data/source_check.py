"""Whether a recipe's files are there and have its columns, told with the line that names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from bough.data.checked_rows import USES, MissingColumnError, check_columns, check_splits
from bough.data.tables import check_extra, column_names
from bough.errors import UserError
from bough.recipe.recipe import Recipe
from bough.recipe.sources import Source
from bough.recipe.tasks import SPLITS, Task
from bough.user_paths import check_name, place


def check_source(recipe: Recipe, name: str, split: str, source: Source | None) -> None:
    """Refuse at once what cannot be read."""
    check_extra(source)
    if isinstance(source, str):
        with source_blamed(recipe, name, split):
            check_name(place(source, recipe.root))


def check_files(recipes: Iterable[Recipe]) -> None:
    """Refuse recipes whose files are not there or lack a column. Only their first rows are read,
    and what several recipes have in common once; sets of the hub are left to who reads them."""
    seen: set[tuple[object, ...]] = set()
    for recipe in recipes:
        for name, task in recipe.tasks.items():
            with recipe.blamed("tasks", name):
                check_splits(name, task)
            for key, source, columns in _files(recipe, task):
                asked = (name, recipe.data, source, columns)
                if asked not in seen:
                    seen.add(asked)
                    _check_file(recipe, name, key, source, columns)


def _files(recipe: Recipe, task: Task) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The files that a task reads: its key, the path, and the columns that must be there."""
    for split in SPLITS:
        source = getattr(task, split)
        if isinstance(source, str):
            labels = task.label_columns if USES[split] == "needed" else ()
            yield split, source, (*task.columns, *labels)
    for source in task.unlabelled:
        if source not in recipe.tasks:
            yield "unlabelled", source, task.columns


def _check_file(recipe: Recipe, name: str, key: str, source: str, columns: tuple[str, ...]) -> None:
    check_source(recipe, name, key, source)
    path = place(source, recipe.root)
    with source_blamed(recipe, name, key):
        there = column_names(path, columns)
    if there:  # else no row can be taken apart, which the run tells row by row
        with columns_blamed(recipe, name, recipe.tasks[name]):
            check_columns(name, str(path), there, columns)


@contextmanager
def source_blamed(recipe: Recipe, name: str, split: str) -> Iterator[None]:
    """What is wrong with a source is told with its line."""
    with recipe.blamed("tasks", name, split):
        try:
            yield
        except UserError as error:
            raise UserError(f"task {name!r}: {error}") from None


@contextmanager
def columns_blamed(recipe: Recipe, name: str, task: Task) -> Iterator[None]:
    """A column that a table has not is told with the line that names it."""
    try:
        yield
    except MissingColumnError as missing:
        with recipe.blamed("tasks", name, "text" if missing.column in task.columns else "label"):
            raise
