"""All that a recipe's tasks learn from and are judged on: their rows, checked, and as tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer

from bough.data import audit, checked_rows
from bough.data.checked_rows import Rows
from bough.data.examples import Examples, examples_of
from bough.data.prepared.table import Watch
from bough.data.prepared.task_tables import TaskTables
from bough.data.source_check import check_source, columns_blamed
from bough.data.tables import Skipped
from bough.parts_of_speech.taggers import Tagger
from bough.recipe.recipe import Recipe
from bough.recipe.tasks import SPLITS, Task, on_one_table


@dataclass(frozen=True)
class Data:
    """Every task's rows, checked, and the tasks with their classes known."""

    tasks: dict[str, Task]
    rows: dict[str, dict[str, Rows]]  # task -> split -> rows
    unlabelled: dict[str, Rows] = field(default_factory=dict)  # of tasks that have a teacher

    @classmethod
    def gather(
        cls,
        recipe: Recipe,
        splits: Sequence[Any] | None = None,
        only: Collection[str] | None = None,
        tokenizer: Tokenizer | None = None,
        longest: int = 0,
        watch: Watch | None = None,
    ) -> Data:
        """All rows; or those of some splits, or of some tasks. With a tokenizer they are tokenised
        as they are read, which is told to `watch`."""
        chosen = {n: t for n, t in recipe.tasks.items() if only is None or n in only}
        for name, task in chosen.items():
            for split in SPLITS if splits is None else splits:
                check_source(recipe, name, split, getattr(task, split))
        tasks, gathered = {}, {}
        gaps = on_one_table(recipe.tasks)
        tables = TaskTables(
            dict(chosen), recipe.root, splits or SPLITS, gaps, tokenizer, longest, watch
        )
        for name, task in chosen.items():
            with columns_blamed(recipe, name, task):
                tasks[name], by_split = checked_rows.load(
                    name, task, root=recipe.root, policy=recipe.rows, splits=splits, tables=tables
                )
            gathered[name] = {str(split): part for split, part in by_split.items()}
        learning = splits is None
        more = {
            name: _unlabelled(name, task, gathered, recipe)
            for name, task in tasks.items()
            if learning and task.unlabelled
        }
        return cls(tasks, gathered, {name: rows for name, rows in more.items() if len(rows)})

    def part(self, name: str, split: str) -> Rows:
        """A task's rows of a split, or its texts without labels."""
        return self.unlabelled[name] if split == "unlabelled" else self.rows[name][split]

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
            *(
                f"task {name!r}: {len(part):,} texts without labels for its teacher"
                for name, part in self.unlabelled.items()
            ),
            *(part.report() for part in every if part.skipped),
            *self._gaps(),
            *(note for part in every for note in part.notes),
            *(
                f"{part.source}: {part.repeated:,} of {len(part):,} {split} rows repeat the texts "
                "of others; intervals take them for rows of their own"
                for by_split in self.rows.values()
                for split, part in by_split.items()
                if split != "train" and part.repeated
            ),
        ]

    def _gaps(self) -> Iterator[str]:
        for name, by_split in self.rows.items():
            for split, part in by_split.items():
                if part.gaps:
                    of = f"{part.gaps:,} of {part.gaps + len(part) + part.unused:,}"
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
        every = {name: dict(by_split) for name, by_split in self.rows.items()}
        for name, part in self.unlabelled.items():
            every[name]["unlabelled"] = part
        return {
            name: {
                split: {
                    "rows": len(part),
                    "sha256": checked_rows.digest(part),
                    "skipped": part.left_out,
                    "gaps": part.gaps,
                    "repeated": part.repeated,
                }
                for split, part in by_split.items()
            }
            for name, by_split in every.items()
        }

    def examples(
        self, split: str, tokenizer: Tokenizer, longest: int, tagger: Tagger | None = None
    ) -> dict[str, Examples]:
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
            made |= examples_of(table, rows, tokenizer, longest, tagger)
        return {name: made[name] for name in self.rows if name in made}


def _same_texts(task: Task, other: Task, split: str) -> bool:
    """Whether both read the same columns of one source in the same form."""
    alike = (task.text, task.twin) == (other.text, other.twin)
    return alike and bool(getattr(task, split) == getattr(other, split))


def _unlabelled(
    name: str, task: Task, gathered: Mapping[str, Mapping[str, Rows]], recipe: Recipe
) -> Rows:
    """All that a task's teachers answer beside its train rows, each text once."""
    texts: dict[tuple[str, ...], None] = {}
    skipped: list[Skipped] = []
    for source in task.unlabelled:
        if source not in gathered:
            rows = checked_rows.read(
                name, task, source, root=recipe.root, policy=recipe.rows, labels="ignored"
            )
            texts |= dict.fromkeys(rows.texts)
            skipped += rows.skipped
        elif task.paired:
            texts |= dict.fromkeys(gathered[source]["train"].texts)
        else:
            texts |= {(text,): None for row in gathered[source]["train"].texts for text in row}
    own = set(gathered[name]["train"].texts)
    new = [text for text in texts if text not in own]
    numbers = list(range(1, len(new) + 1))
    called = ", ".join(task.unlabelled)
    rows = Rows(new, None, [str(n) for n in numbers], called, numbers, tuple(skipped), unit="text")
    return checked_rows.limited(rows, task.limit.unlabelled)
