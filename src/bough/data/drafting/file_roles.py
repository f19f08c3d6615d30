"""Which task a file belongs to, and whether to learn from it or to judge by it: by its name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path

from bough.errors import UserError
from bough.recipe.recipe import RESERVED
from bough.recipe.tasks import SPLITS, Split

WORDS: dict[str, Split] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("dev", "devel", "development", "valid", "validation", "val"), "dev"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def grouped(files: Sequence[str | Path]) -> dict[str, dict[Split, Path]]:
    """Task name -> split -> file, by the files' names; a file without a split's name is train."""
    tasks: dict[str, dict[Split, Path]] = {}
    for file in map(Path, files):
        name, split = _parted(file)
        splits = tasks.setdefault(name, {})
        if split in splits:
            raise UserError(
                f"{splits[split]} and {file} both look like the {split} rows of {name!r}; give "
                "one of them, or put train, dev or test into the names"
            )
        splits[split] = file
    for name, splits in tasks.items():
        if splits.keys() == {"test"}:
            raise UserError(
                f"{splits['test']} is by its name for testing, and there are no rows to learn from "
                f"for {name!r}; give those, too, or rename the file"
            )
    return {
        name: {split: splits[split] for split in SPLITS if split in splits}
        for name, splits in tasks.items()
    }


def _parted(file: Path) -> tuple[str, Split]:
    """A file's task and split: ids-sst-test-student.csv is ids-sst, test."""
    words = _words(file.stem)
    at = next((i for i, word in enumerate(words) if word.lower() in WORDS), len(words))
    kept = words[:at] or words[at + 1 :]
    while len(kept) > 1 and kept[-1].lower() in ("all", "full", "data"):
        kept.pop()
    # train.csv, dev.csv: the folder says whose
    name = "-".join(kept or _words(file.absolute().parent.name)) or "task"
    return name, WORDS[words[at].lower()] if at < len(words) else "train"


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9]+", text)


def unique_name(name: str, taken: Sequence[str]) -> str:
    """As a recipe takes it, and unlike those that are taken."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
    name = f"{name}-task" if name in RESERVED else name
    choices = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(choice for choice in choices if choice not in taken)
