"""Rows that were given in memory become files of the run: it can be resumed and judged from them,
and its recipe stays a page that a person reads.

A file's name has the digest of its rows, so that runs on the same rows have the same recipe.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping

from bough.recipe.recipe import Recipe
from bough.recipe.sources import Record
from bough.recipe.tasks import SPLITS, Task

FOLDER = "rows"
_NAME = re.compile(rf"(?:^|.*/){FOLDER}/[A-Za-z0-9_-]+-[0-9a-f]{{12}}\.jsonl")


def stored(recipe: Recipe, tasks: Mapping[str, Task]) -> tuple[Recipe, dict[str, str]]:
    """The recipe of these tasks with files in place of rows, and what goes into each file."""
    files: dict[str, str] = {}
    named = {}
    for name, task in tasks.items():
        changed: dict[str, str] = {}
        for split in SPLITS:
            rows = getattr(task, split)
            if isinstance(rows, tuple):
                content = "".join(f"{_line(row, task)}\n" for row in rows)
                digest = hashlib.sha256(content.encode()).hexdigest()[:12]
                # Tasks on the same rows have one file, as they are drawn together.
                same = (path for path, other in files.items() if other == content)
                changed[split] = next(same, f"{FOLDER}/{name}-{split}-{digest}.jsonl")
                files[changed[split]] = content
        named[name] = task.model_copy(update=changed)
    kept = {"tasks": named}
    sources = [getattr(task, split) for task in named.values() for split in SPLITS]
    # A hub set cannot be looked up: it has no hash.
    if all(s is None or (isinstance(s, str) and s in files) for s in sources):
        return recipe.model_copy(update={**kept, "data": "."}), files  # found wherever the run goes
    return recipe.model_copy(update=kept), files


def is_stored(path: str) -> bool:
    """Whether this is such a file."""
    return _NAME.fullmatch(path) is not None


def _line(row: Record, task: Task) -> str:
    fields = (*task.columns, *task.label_columns)
    # A row that has not as many fields stays a list, which is refused as such again.
    if isinstance(row, tuple) and len(row) in (len(fields), len(task.columns)):
        row = dict(zip(fields, row, strict=False))
    return json.dumps(row)
