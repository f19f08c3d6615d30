"""The tables of a recipe's tasks, each prepared when it is first asked for.

Tasks that read the same columns of one source in the same form have one table: its texts are read
and tokenised once, and every task has its labels beside them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer

from bough.data.prepared.part import Reading
from bough.data.prepared.streams import stream
from bough.data.prepared.table import PreparedTable, Watch, prepare
from bough.data.tables import Wanted
from bough.errors import UserError
from bough.recipe.sources import Hub, Source
from bough.recipe.tasks import SPLITS, Split, Task


def plain_tokenizer(tokenizer: Tokenizer) -> str:
    """A tokenizer as JSON, whatever length it was last made to cut texts to."""
    tokenizer.no_truncation()
    return tokenizer.to_str()


@dataclass
class TaskTables:
    """The tables of some tasks; with a tokenizer, their texts are tokenised, too."""

    tasks: dict[str, Task]  # with what is known of them
    root: Path
    splits: Sequence[Split] = SPLITS  # that will be asked for
    gaps: Collection[str] = ()  # tasks whose label may be missing in a row
    tokenizer: Tokenizer | None = None
    longest: int = 0
    watch: Watch | None = None
    _made: dict[tuple[str, Split], PreparedTable] = field(default_factory=dict)

    def settled(self, name: str) -> Task:
        """The task with its classes known, if need be from its train rows."""
        task = self.tasks[name]
        if task.settled:
            return task
        if task.train is None:
            raise UserError(f"task {name!r} has neither labels nor train rows to find them in")
        if "train" in self.splits and task.kind != "tag":  # spans are read by the texts, too
            table = self.table(name, "train")
        else:  # only their labels
            reading = Reading((), {name: task}, hashes=False, gaps=tuple(self.gaps))
            table = self._prepare({name: task}, task.train, reading, "train")
        self.tasks[name] = table.labels[name].task
        return self.tasks[name]

    def table(self, name: str, split: Split) -> PreparedTable:
        if (name, split) not in self._made:
            task = self.tasks[name]
            source = getattr(task, split)
            together = [
                n
                for n, t in self.tasks.items()
                if n == name or (_same(task, t, split) and (t.settled or t.train is not None))
            ]
            marked = task.kind == "tag"
            ahead = split != "train" or marked
            tasks = {n: self.settled(n) if ahead else self.tasks[n] for n in together}
            # The words of a text that is marked are found when its examples are made.
            words = plain_tokenizer(self.tokenizer) if self.tokenizer and not marked else ""
            reading = Reading(
                task.columns, tasks, task.twin, words, self.longest, True, tuple(self.gaps), marked
            )
            table = self._prepare(tasks, source, reading, split)
            self._made |= {(n, split): table for n in together}
        return self._made[name, split]

    def _prepare(
        self, tasks: Mapping[str, Task], source: Source, reading: Reading, split: Split
    ) -> PreparedTable:
        name = next(iter(tasks))
        try:
            rows = stream(source, wanted_by(tasks), self.root, f"tasks.{name}.{split}")
            return prepare(rows, reading, self.watch, self.tokenizer)
        except UserError as error:
            if str(error).startswith("task "):
                raise
            raise UserError(f"task {name!r}: {error}") from None


def wanted_by(tasks: Mapping[str, Task]) -> Wanted:
    """The columns that tasks on one table read."""
    first = next(iter(tasks.values()))
    if isinstance(first.label, str):
        more = [c for task in tasks.values() for c in task.label_columns if c != first.label]
        return Wanted((*first.columns, *dict.fromkeys(more)), first.label, first.rules.classes)
    labels = dict.fromkeys(column for task in tasks.values() for column in task.label_columns)
    return Wanted((*first.columns, *labels), "", False)


def _same(task: Task, other: Task, split: Split) -> bool:
    """Whether both read one table."""
    if (task.columns, task.twin) != (other.columns, other.twin) or task.label == other.label:
        return False
    if "tag" in (task.kind, other.kind):
        return False
    mine, theirs = getattr(task, split), getattr(other, split)
    if isinstance(mine, tuple):  # rows by place have one label
        return mine is theirs and bool(mine) and isinstance(mine[0], dict)
    return not isinstance(mine, Hub) and bool(mine == theirs)
