"""Which tasks have a table in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bough.data.prepared.task_tables import TaskTables
from bough.errors import UserError
from bough.recipe.tasks import Task

TABLE = "text,mood,topic\na tree,good,x\nthe leaf,bad,y\nit is,good,x\n"


def tables(folder: Path, *splits: Any, **tasks: dict[str, Any]) -> TaskTables:
    (folder / "a.csv").write_text(TABLE)
    (folder / "b.csv").write_text(TABLE)
    base = {"kind": "classify", "text": "text", "train": "a.csv", "dev": "b.csv"}
    made = {name: Task(**{**base, "label": name, **more}) for name, more in tasks.items()}
    return TaskTables(made, folder, splits or ("train", "dev"))


def test_tasks_that_read_the_same_texts_have_one_table(tmp_path: Path) -> None:
    made = tables(tmp_path, mood={}, topic={}, other={"label": "topic", "train": "b.csv"})
    both = made.table("mood", "train")
    assert made.table("topic", "train") is both
    assert made.table("other", "train") is not both
    assert made.table("mood", "dev") is made.table("other", "dev") is not both
    assert made.settled("mood").labels == ("bad", "good")
    assert made.settled("topic").labels == ("x", "y")


def test_classes_are_found_in_train_rows_that_nobody_asks_for(tmp_path: Path) -> None:
    made = tables(tmp_path, "dev", mood={}, topic={"train": None})
    assert made.settled("mood").labels == ("bad", "good")
    assert len(made.table("mood", "dev").texts) == 3
    with pytest.raises(UserError, match="task 'topic' has neither labels nor train rows"):
        made.settled("topic")
