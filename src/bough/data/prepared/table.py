"""A whole table made ready, once: checked texts, every task's labels, and tokens, as arrays.

Small tables are held in memory. Large ones go to the disk cache as they are read, under what they
are made of: the file's content, the columns, what the tasks make of their labels, the tokenizer and
the longest length. There later runs, and other processes, find and map them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from tokenizers import Tokenizer

from bough.data.label_cells import CellError, label_cells
from bough.data.prepared.columns import (
    Column,
    Ints,
    Names,
    Numbers,
    Objects,
    Strings,
    Tuples,
    joined,
)
from bough.data.prepared.part import (
    BAD,
    GOOD,
    KINDS,
    NAMED,
    UNLABELLED,
    Faults,
    Labels,
    Part,
    Reading,
)
from bough.data.prepared.pool import read_parts
from bough.data.prepared.store import Disk, Memory, Unkept, keeping
from bough.data.prepared.streams import Stream
from bough.data.prepared.unread_cells import UnreadCells
from bough.data.tables import Skipped, Table
from bough.data.tokens import Sequences
from bough.disk_cache import Array, DiskCache, cache_folder, disk_limit
from bough.errors import UserError, shorten
from bough.recipe.tasks import Task
from bough.spans.schemes import Span

VERSION = 2  # of what is made: part of every key
LARGE = 32 * 2**20  # bytes of a source that is not held in memory
SEVERAL = 8 * 2**20  # bytes of a source that several processes are worth starting for
GROWTH = 4  # times the size of a source that is made of it, about
# What a task's rows do not depend on.
IRRELEVANT = {
    "train", "dev", "test", "limit", "features", "pooling", "head", "depth", "width", "project",
    "norm", "dropout", "reads_as", "fusion", "loss", "smoothing", "class_weights", "temperature",
    "metric", "weight",
}  # fmt: skip
Watch = Callable[[str, float, int], None]  # told the source, how much of it is read, and its rows


@dataclass
class TaskLabels:
    task: Task  # with what was found out about it
    status: NDArray[np.int8]  # of each usable row
    column: Column[Any]
    faults: Faults
    empty: Faults  # cells without a label, if they need one


@dataclass
class PreparedTable:
    """The usable rows of a table: those whose texts are."""

    source: str
    unit: str
    names: tuple[str, ...]
    notes: tuple[str, ...]
    texts: Column[tuple[str, ...]]
    lines: Column[int]
    ids: Column[str]
    hashes: NDArray[np.uint64]
    turned: NDArray[np.uint64]
    faults: Faults  # of texts, and rows that could not be taken apart
    labels: dict[str, TaskLabels]
    sequences: Sequences | None
    cut: NDArray[np.bool_]  # of the sequences
    tokens_of: tuple[str, int, bool] = ("", 0, False)  # their tokenizer, longest length, and twins
    key: str = ""  # where it is kept

    @property
    def total(self) -> int:
        """All rows that there are, usable or not."""
        return len(self.lines) + self.faults.count


def prepare(
    stream: Stream,
    reading: Reading,
    watch: Watch | None = None,
    tokenizer: Tokenizer | None = None,
) -> PreparedTable:
    """What is kept of a table, or what it becomes; `tokenizer` is that of the reading, if it is
    there already."""
    key = _key(stream, reading) if stream.size >= LARGE else None
    if key is None:
        return _Making(stream, reading, Memory(), watch, tokenizer).run()
    cache = DiskCache(cache_folder())
    if (kept := _kept(cache, key, stream, reading)) is not None:
        return kept
    try:
        with ExitStack() as stack:
            with keeping():
                stack.enter_context(cache.made_by_one(key))
            if (kept := _kept(cache, key, stream, reading)) is not None:  # by another meanwhile
                return kept
            disk = Disk(cache, key, GROWTH * stream.size)
            made = _Making(stream, reading, disk, watch, tokenizer).run()
            return replace(made, key=key)
    except Unkept:  # a full or read-only cache is no reason to stop a run
        return _Making(stream, reading, Memory(), watch, tokenizer).run()
    finally:
        cache.clear_unfinished(key)


def _key(stream: Stream, reading: Reading) -> str | None:
    """What it is kept under; None where it cannot be."""
    if GROWTH * stream.size > disk_limit():
        return None
    content = stream.digest(DiskCache(cache_folder()))
    if content is None:
        return None
    tasks = {n: t.model_dump(mode="json", exclude=IRRELEVANT) for n, t in reading.tasks.items()}
    tokens = [hashlib.sha256(reading.tokenizer.encode()).hexdigest(), reading.longest]
    facts = [VERSION, stream.source, content, reading.columns, tasks, reading.twin, tokens]
    facts += [sorted({*reading.gaps} & {*tasks}), reading.marked]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


# --- making it ------------------------------------------------------------------------------------


class _Making:
    """One way through a table."""

    def __init__(
        self,
        stream: Stream,
        reading: Reading,
        store: Memory | Disk,
        watch: Watch | None,
        tokenizer: Tokenizer | None,
    ):
        self.stream = stream
        self.reading = reading
        self.store = store
        self.watch = watch
        self.tokenizer = tokenizer
        self.faults = Faults()
        self.label_faults = {name: Faults() for name in reading.tasks}
        self.empty = {name: Faults() for name in reading.tasks}
        self.unread = {name: UnreadCells() for name, t in reading.tasks.items() if not t.settled}
        self.ends: dict[str, int] = {}
        self.rows = 0
        self.ids = False

    def run(self) -> PreparedTable:
        try:
            return self._run()
        finally:
            self.store.close()

    def _run(self) -> PreparedTable:
        last: Table | None = None
        several = self.stream.size >= SEVERAL
        for table, part in read_parts(self._tables(), self.reading, several, self.tokenizer):
            last = table
            self._take(table, part)
            if self.watch:
                self.watch(self.stream.source, table.share, self.rows)
        assert last is not None
        return self._finish(last)

    def _tables(self) -> Iterator[Table]:
        for table in self.stream.tables():
            nothing = [None] * len(table.lines)  # where a column is missing, which is said later
            there = dict.fromkeys(self.reading.columns, nothing) | table.columns
            yield replace(table, columns=there)

    def _take(self, table: Table, part: Part) -> None:
        add = self.store.add
        add("lines", np.int64, part.lines)
        self._add_texts("texts", part.texts, part.text_sizes)
        add("hashes", np.uint64, part.hashes)
        add("turned", np.uint64, part.turned)
        if part.ids is not None:
            self.ids = True
            self._add_texts("ids", *joined(part.ids))
        self.faults.add(sorted((*table.broken, *part.faults), key=lambda row: row.line))
        for name, labels in part.labels.items():
            self._take_labels(name, labels)
        if part.tokens is not None:
            add("token ids", np.int32, part.tokens.ids)
            add("token types", np.int8, part.tokens.types)
            add("cut", np.bool_, part.tokens.cut)
            self._add_bounds("token bounds", part.tokens.sizes)
        self.rows += len(part.lines)

    def _take_labels(self, name: str, labels: Labels) -> None:
        if labels.cells is not None:
            self.unread[name].add(labels.cells, np.asarray(labels.values))
            return
        self.label_faults[name].add(labels.faults)
        self.empty[name].add(labels.empty)
        self.store.add(f"{name} status", np.int8, labels.status)
        self._add_labels(name, labels.values)

    def _add_labels(self, name: str, values: NDArray[Any] | list[str]) -> None:
        if isinstance(values, list):
            self._add_texts(f"{name} labels", *joined(values))
        else:
            self.store.add(f"{name} labels", values.dtype, values)

    def _add_texts(self, name: str, blob: NDArray[np.uint8], sizes: Ints) -> None:
        self.store.add(name, np.uint8, blob)
        self._add_bounds(f"{name} bounds", sizes)

    def _add_bounds(self, name: str, sizes: Ints) -> None:
        if name not in self.ends:
            self.ends[name] = 0
            self.store.add(name, np.int64, np.zeros(1, np.int64))
        bounds = self.ends[name] + sizes.cumsum()
        self.store.add(name, np.int64, bounds)
        self.ends[name] = int(bounds[-1]) if len(bounds) else self.ends[name]

    def _finish(self, last: Table) -> PreparedTable:
        arrays = {"lines": self.store.finish("lines", np.int64)}
        tasks = dict(self.reading.tasks)
        for name, unread in self.unread.items():
            needed = {*tasks[name].label_columns, *self.reading.columns}
            if self.rows and needed <= {*last.names}:  # else there is nothing to find
                tasks[name] = self._settle(name, tasks[name], unread, last, arrays["lines"])
        facts = {
            "names": last.names,
            "notes": last.notes,
            "unit": last.unit,
            "ids": self.ids,
            "faults": _as_json(self.faults),
            "labels": {
                name: {
                    "faults": _as_json(self.label_faults[name]),
                    "empty": _as_json(self.empty[name]),
                    "task": task.model_dump(mode="json", exclude=IRRELEVANT),
                }
                for name, task in tasks.items()
            },
        }
        reading = replace(self.reading, tasks=tasks)
        for name, kind in _arrays(reading, self.ids).items():
            if name not in arrays:
                arrays[name] = self.store.finish(name, kind)
        self.store.save(facts, arrays)
        return _table(self.stream.source, reading, json.loads(json.dumps(facts)), arrays)

    def _settle(
        self, name: str, task: Task, unread: UnreadCells, last: Table, lines: Array
    ) -> Task:
        """The task with what its cells say about it, and the cells read."""
        cells, codes = label_cells(task), unread.codes()
        counts = np.bincount(codes, minlength=len(unread.cells))
        given = [not cells.missing(cell) for cell in unread.cells]
        some = [cell for cell, there in zip(unread.cells, given, strict=True) if there]
        try:
            task = cells.found(name, some, last.classes, counts[given].tolist())
        except UserError as error:
            where = f"task {name!r}: {last.source}, column {task.label!r}"
            raise UserError(f"{where}: {error}") from None
        if not self.reading.columns:  # the rows are not asked for
            return task
        cells = label_cells(task)
        status = np.full(len(unread.cells), UNLABELLED, np.int8)
        labels: list[Any] = [0] * len(unread.cells)
        why: dict[int, str] = {}
        for place, cell in enumerate(unread.cells):
            if cells.missing(cell) and name in self.reading.gaps:
                continue
            try:
                labels[place], status[place] = cells.read(cell), GOOD
            except CellError as fault:
                why[place] = str(fault)
                status[place] = UNLABELLED if cells.missing(cell) else BAD
        of_rows = status[codes]
        wrong, column = np.isin(codes, list(why)), ", ".join(task.label_columns)
        for faults, kind in ((self.label_faults[name], BAD), (self.empty[name], UNLABELLED)):
            rows = np.flatnonzero(wrong & (of_rows == kind))
            faults.named = [
                Skipped(last.source, int(lines[n]), column, shorten(cell), why[int(codes[n])])
                for n in rows[:NAMED]
                for cell in [unread.cells[codes[n]]]
            ]
            faults.count = len(rows)
        self.store.add(f"{name} status", np.int8, of_rows)
        number = KINDS.get(task.kind)
        if number is None:
            self._add_labels(name, [json.dumps(labels[code] or ()) for code in codes])
        else:
            self._add_labels(name, np.array(labels, number)[codes])
        return task


def _arrays(reading: Reading, ids: bool) -> dict[str, DTypeLike]:
    """Which arrays a table is made of, and of what kind."""
    out: dict[str, DTypeLike] = {"lines": np.int64, "texts": np.uint8, "texts bounds": np.int64}
    out |= {"hashes": np.uint64, "turned": np.uint64}
    if ids:
        out |= {"ids": np.uint8, "ids bounds": np.int64}
    if reading.tokenizer:
        out |= {"token ids": np.int32, "token types": np.int8, "token bounds": np.int64}
        out["cut"] = np.bool_
    for name, task in reading.tasks.items():
        kind = KINDS.get(task.kind)
        out |= {f"{name} status": np.int8, f"{name} labels": np.uint8 if kind is None else kind}
        if kind is None:
            out[f"{name} labels bounds"] = np.int64
    return out


# --- what was made --------------------------------------------------------------------------------


def _table(
    source: str, reading: Reading, facts: dict[str, Any], arrays: dict[str, Array]
) -> PreparedTable:
    lines = Numbers(arrays["lines"])
    labels = {}
    for name, task in reading.tasks.items():
        told = facts["labels"][name]
        known = Task.model_validate(told["task"])
        settled = task.model_copy(update={key: getattr(known, key) for key in told["task"]})
        column: Column[Any] = Numbers(arrays[f"{name} labels"])
        if task.kind not in KINDS:
            column = Objects(
                _strings(arrays, f"{name} labels"), _spans if task.kind == "tag" else tuple
            )
        status = arrays[f"{name} status"]
        faults, empty = (_from_json(told[which], source) for which in ("faults", "empty"))
        labels[name] = TaskLabels(settled, status, column, faults, empty)
    bounds = arrays.get("token bounds")
    return PreparedTable(
        source=source,
        unit=facts["unit"],
        names=tuple(facts["names"]),
        notes=tuple(facts["notes"]),
        texts=Tuples(_strings(arrays, "texts"), len(reading.columns)),
        lines=lines,
        ids=_strings(arrays, "ids") if facts["ids"] else Names(lines),
        hashes=arrays["hashes"],
        turned=arrays["turned"],
        faults=_from_json(facts["faults"], source),
        labels=labels,
        sequences=None
        if bounds is None
        else Sequences(arrays["token ids"], arrays["token types"], bounds),
        cut=arrays.get("cut", np.zeros(0, np.bool_)),
        tokens_of=(reading.tokenizer, reading.longest, reading.twin),
    )


def _kept(cache: DiskCache, key: str, stream: Stream, reading: Reading) -> PreparedTable | None:
    if (entry := cache.read(key)) is None:
        return None
    facts = entry[0][0]["facts"]
    arrays = {what["name"]: array for what, array in entry}
    return replace(_table(stream.source, reading, facts, arrays), key=key)


def _spans(label: Any) -> Any:
    return tuple(Span(*span) for span in label or ())


def _strings(arrays: dict[str, Array], name: str) -> Strings:
    bounds = arrays[f"{name} bounds"]
    return Strings(arrays[name], bounds if len(bounds) else np.zeros(1, np.int64))


def _as_json(faults: Faults) -> list[Any]:
    rows = [[row.line, row.column, row.value, row.why] for row in faults.named]
    return [faults.count, rows]


def _from_json(told: list[Any], source: str) -> Faults:
    count, rows = told
    return Faults([Skipped(source, *row) for row in rows], count)
