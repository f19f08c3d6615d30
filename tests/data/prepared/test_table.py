"""Tables on disk and in memory, by one process and by several: always the same rows and tokens."""

from __future__ import annotations

import errno
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bough.data import checked_rows
from bough.data.dataset import Data
from bough.data.prepared import streams, table
from bough.data.tables import Table
from bough.disk_cache import DiskCache, GrowingArray
from bough.errors import UserError
from bough.recipe.recipe import Recipe
from tests import tiny

ROWS = 5000


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every table counts as large; the cache is in this folder."""
    monkeypatch.setattr(table, "LARGE", 0)
    monkeypatch.setattr(table, "SEVERAL", 2**60)
    monkeypatch.setenv("BOUGH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def text(rng: random.Random) -> str:
    return " ".join(rng.choices(tiny.WORDS, k=rng.randrange(1, 9)))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A table with two labels, gaps and one bad row; a small one of pairs."""
    rng = random.Random(0)
    lines = ["id,text,mood,stars"]
    for n in range(ROWS):
        mood = rng.choice(["good", "bad", "so-so", ""])
        lines.append(f'{n:x},"{text(rng)}",{mood},{rng.randrange(5)}')
    lines[4000] = '"x",   ,good,1'
    (tmp_path / "train.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "dev.csv").write_text("\n".join(lines[:300]) + "\n")
    pairs = [
        {"a": text(rng), "b": text(rng), "label": rng.choice(["no", "yes"])} for _ in range(40)
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)) + "\n")
    for file in tmp_path.iterdir():  # else what is known of them is not kept yet
        os.utime(file, (time.time() - 60,) * 2)
    return tmp_path


def recipe(files: Path, **changes: Any) -> Recipe:
    mood = {"kind": "classify", "text": "text", "train": "train.csv", "dev": "dev.csv"}
    return Recipe.read(
        {
            "encoder": "minilm",
            "data": str(files),
            "rows": "skip",
            "tasks": {
                "mood": {**mood, "label": "mood", **changes},
                "stars": {**mood, "label": "stars", "kind": "regress", "range": [0, 4]},
                "same": {
                    "kind": "classify", "text": ["a", "b"], "pair": "twin",
                    "train": "pairs.jsonl", "dev": "pairs.jsonl",
                },
            },
        }
    )  # fmt: skip


def gathered(files: Path, **changes: Any) -> Data:
    return Data.gather(recipe(files, **changes), tokenizer=tiny.tokenizer(), longest=12)


def assert_same(one: Data, other: Data) -> None:
    assert one.tasks == other.tasks
    assert one.rows == other.rows
    assert one.digests() == other.digests()
    assert one.notes() == other.notes()
    assert one.noticed() == other.noticed()
    for split in ("train", "dev"):
        ours, theirs = (d.examples(split, tiny.tokenizer(), 12) for d in (one, other))
        for name, mine in ours.items():
            yours = theirs[name]
            assert mine.cut == yours.cut
            assert mine.targets is not None
            assert yours.targets is not None
            assert mine.targets.equal(yours.targets)
            ids, again = (e.sequences.of(e.index.reshape(-1)) for e in (mine, yours))
            for a, b in zip(vars(ids).values(), vars(again).values(), strict=True):
                assert np.array_equal(a, b)


def test_on_disk_and_in_memory(files: Path, large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And by several processes; the second time nothing is read but what is kept."""
    with monkeypatch.context() as small:
        small.setattr(table, "LARGE", 2**60)
        memory = gathered(files)
        plain = Data.gather(recipe(files))  # tokenised afterwards, text by text
    assert not large.exists()
    assert memory.rows["mood"]["train"].gaps > 500
    assert memory.rows["mood"]["train"].skipped[0].line == 4001
    train = memory.examples("train", tiny.tokenizer(), 12)
    assert train["mood"].sequences is train["stars"].sequences
    monkeypatch.setattr(table, "SEVERAL", 0)
    first = gathered(files)
    kept = sorted(large.glob("*.npy"))
    assert kept
    assert not list(large.glob("*.part"))

    def nobody(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(table, "read_parts", nobody)
    again = gathered(files)
    assert isinstance(again.rows["mood"]["train"].hashes, np.ndarray)
    for data in (plain, first, again):
        assert_same(memory, data)
    assert sorted(large.glob("*.npy")) == kept


def test_what_a_table_depends_on(files: Path, large: Path) -> None:
    def tables() -> int:
        gathered(files, **changes)
        return sum("facts" in file.read_text() for file in large.glob("*.json"))

    changes: dict[str, Any] = {}
    before = tables()
    changes["loss"] = "ce"
    assert tables() == before, "a task's loss has nothing to do with its rows"
    changes["labels"] = ["good", "bad", "so-so"]
    both = tables()
    assert both == before + 2, "of train and of dev"
    with (files / "train.csv").open("a") as file:
        file.write("x,a tree,good,3\n")
    assert tables() == both + 1
    assert len(gathered(files).rows["stars"]["train"]) == ROWS


def test_a_damaged_table_is_made_anew(
    files: Path, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as small:
        small.setattr(table, "LARGE", 2**60)
        before = gathered(files)
    gathered(files)
    for file in large.glob("*.npy"):
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    assert_same(before, gathered(files))


def test_without_room_it_is_held_in_memory(
    files: Path, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = gathered(files)
    monkeypatch.setenv("BOUGH_CACHE", str(large / "other"))
    monkeypatch.setenv("BOUGH_CACHE_GB", "0")
    assert_same(before, gathered(files))
    assert not (large / "other").exists()
    monkeypatch.setenv("BOUGH_CACHE_GB", "1")
    monkeypatch.setenv("BOUGH_CACHE", "/proc/nowhere")
    assert_same(before, gathered(files))


@pytest.mark.parametrize("broken", ["add", "finish", "save"])
def test_a_cache_that_fills_up_costs_no_row(
    broken: str, files: Path, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as small:
        small.setattr(table, "LARGE", 2**60)
        before = gathered(files)
    calls = 0

    def full(*_: object, **__: object) -> None:
        nonlocal calls
        calls += 1
        if broken != "add" or calls > 40:  # in the middle of the table
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(DiskCache if broken == "save" else GrowingArray, broken, full)
    assert_same(before, gathered(files))
    assert calls
    assert not list(large.glob("*.part"))


def test_a_file_that_cannot_be_read_is_not_read_twice(
    files: Path, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def torn(*_: object) -> Iterator[Table]:
        nonlocal calls
        calls += 1
        yield from ()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(streams, "parts", torn)
    with pytest.raises(OSError, match="Input/output error"):
        gathered(files)
    assert calls == 1


@pytest.mark.parametrize("several", [0, 2**60])
def test_mistakes_are_named_as_ever(
    several: int, files: Path, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "SEVERAL", several)
    strict = recipe(files).model_copy(update={"rows": "error"})
    with pytest.raises(UserError, match=r"train\.csv line 4001, column 'text': the text is empty"):
        Data.gather(strict)
    with (files / "train.csv").open("a") as file:
        file.write("x,a tree,good,9\n")
    with pytest.raises(
        UserError, match=rf"line 4001, .*; 2 of {ROWS:,} rows are bad|line 4001, .*; 2 of 5,001"
    ):
        checked_rows.load(
            "stars", strict.tasks["stars"], root=files, policy="error", splits=["train"]
        )
    (files / "train.csv").write_text("text,mood,stars\na tree,good,\nb,bad,\n")
    with pytest.raises(UserError, match="no row has a label in column 'stars'"):
        Data.gather(recipe(files))
    (files / "train.csv").write_text("words,mood,stars\na tree,good,1\nb,bad,2\n")
    with pytest.raises(UserError, match=r"task 'mood': .*has no column 'text'; it has words"):
        Data.gather(recipe(files))


def test_it_is_told_how_far_it_is(files: Path, large: Path) -> None:
    told: list[tuple[str, float, int]] = []
    Data.gather(recipe(files), watch=lambda *what: told.append(what))
    mine = [(share, rows) for source, share, rows in told if source.endswith("train.csv")]
    assert mine == sorted(mine)
    assert len(mine) == -(-ROWS // 1024)
    assert mine[-1] == (1.0, ROWS - 1)
