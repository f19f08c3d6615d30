"""All that a recipe's tasks learn from and are judged on: their rows, checked, and as tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from bough.data import audit, checked_rows
from bough.data.checked_rows import Rows
from bough.data.examples import Examples
from bough.data.prepared.table import Watch
from bough.data.prepared.task_tables import TaskTables
from bough.data.tables import check_extra
from bough.recipe.recipe import Recipe
from bough.recipe.tasks import SPLITS, Task


@dataclass(frozen=True)
class Data:
    """Every task's rows, checked, and the tasks with their classes known."""

    tasks: dict[str, Task]
    rows: dict[str, dict[str, Rows]]  # task -> split -> rows

    @classmethod
    def gather(
        cls,
        recipe: Recipe,
        splits: Sequence[Any] | None = None,
        tokenizer: Tokenizer | None = None,
        longest: int = 0,
        watch: Watch | None = None,
    ) -> Data:
        """The rows of these splits, of all if left open; with a tokenizer tokenised as they are
        read, which is told to `watch`."""
        for task in recipe.tasks.values():
            for split in SPLITS if splits is None else splits:
                check_extra(getattr(task, split))
        tables = TaskTables(
            dict(recipe.tasks), recipe.root, splits or SPLITS, tokenizer, longest, watch
        )
        tasks, gathered = {}, {}
        for name, task in recipe.tasks.items():
            tasks[name], by_split = checked_rows.load(
                name, task, root=recipe.root, policy=recipe.rows, splits=splits, tables=tables
            )
            gathered[name] = {str(split): part for split, part in by_split.items()}
        return cls(tasks, gathered)

    def notes(self) -> list[str]:
        """What was skipped or assumed, one sentence each."""
        every = [part for by_split in self.rows.values() for part in by_split.values()]
        limited = [
            f"{name} {split} {len(part):,} of {len(part) + part.unused:,}"
            for name, by_split in self.rows.items()
            for split, part in by_split.items()
            if part.unused
        ]
        return [
            *([f"of the rows, as `limit` says: {', '.join(limited)}"] if limited else []),
            *(part.report() for part in every if part.skipped),
            *self._unlabelled(),
            *(note for part in every for note in part.notes),
            *(
                f"{part.source}: {part.repeated:,} of {len(part):,} {split} rows repeat the texts "
                "of others; intervals take them for rows of their own"
                for by_split in self.rows.values()
                for split, part in by_split.items()
                if split != "train" and part.repeated
            ),
        ]

    def _unlabelled(self) -> Iterator[str]:
        for name, by_split in self.rows.items():
            for split, part in by_split.items():
                if part.unlabelled:
                    of = f"{part.unlabelled:,} of {part.unlabelled + len(part) + part.unused:,}"
                    column = f"{part.source}, column {self.tasks[name].label!r}"
                    so = (
                        "nothing is learned from them"
                        if split == "train"
                        else "they are not judged"
                    )
                    yield f"task {name!r}: {of} {split} rows have no label ({column}): {so}"

    def noticed(self) -> list[str]:
        """The classes with their counts, and what is odd about the rows, one sentence each."""
        return [
            f"task {name!r}: {note}"
            for name, by_split in self.rows.items()
            for note in audit.notes(self.tasks[name], by_split)
        ]

    def digests(self) -> dict[str, dict[str, dict[str, Any]]]:
        """What the rows are known by: task -> split -> sizes and sha256."""
        return {
            name: {
                split: {
                    "rows": len(part),
                    "sha256": checked_rows.digest(part),
                    "skipped": part.left_out,
                    "unlabelled": part.unlabelled,
                    "repeated": part.repeated,
                }
                for split, part in by_split.items()
            }
            for name, by_split in self.rows.items()
        }

    def examples(self, split: str, tokenizer: Tokenizer, longest: int) -> dict[str, Examples]:
        return {
            name: Examples.of(self.tasks[name], by_split[split], tokenizer, longest)
            for name, by_split in self.rows.items()
            if split in by_split
        }
