"""All that a recipe's tasks learn from and are judged on: their rows, checked, and as tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from bough.data import audit, checked_rows
from bough.data.checked_rows import Rows
from bough.data.examples import Examples, examples_of
from bough.data.tables import check_extra
from bough.recipe.recipe import Recipe
from bough.recipe.tasks import SPLITS, Task, on_one_table


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
        only: Collection[str] | None = None,
    ) -> Data:
        """All rows; or those of some splits, or of some tasks."""
        chosen = {n: t for n, t in recipe.tasks.items() if only is None or n in only}
        for task in chosen.values():
            for split in SPLITS if splits is None else splits:
                check_extra(getattr(task, split))
        tasks, gathered = {}, {}
        gaps = on_one_table(recipe.tasks)
        for name, task in chosen.items():
            tasks[name], by_split = checked_rows.load(
                name, task, root=recipe.root, policy=recipe.rows, splits=splits, gaps=name in gaps
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
                    "skipped": len(part.skipped),
                    "unlabelled": part.unlabelled,
                    "repeated": part.repeated,
                }
                for split, part in by_split.items()
            }
            for name, by_split in self.rows.items()
        }

    def examples(self, split: str, tokenizer: Tokenizer, longest: int) -> dict[str, Examples]:
        """Every task's examples; those of one table have their texts in common."""
        tables: list[dict[str, Task]] = []
        for name in (name for name, by_split in self.rows.items() if split in by_split):
            task = self.tasks[name]
            for table in tables:
                if _same_texts(task, next(iter(table.values())), split):
                    table[name] = task
                    break
            else:
                tables.append({name: task})
        made: dict[str, Examples] = {}
        for table in tables:
            rows = {name: self.rows[name][split] for name in table}
            made |= examples_of(table, rows, tokenizer, longest)
        return {name: made[name] for name in self.rows if name in made}


def _same_texts(task: Task, other: Task, split: str) -> bool:
    """Whether both read the same columns of one source in the same form."""
    alike = (task.text, task.twin) == (other.text, other.twin)
    return alike and bool(getattr(task, split) == getattr(other, split))
