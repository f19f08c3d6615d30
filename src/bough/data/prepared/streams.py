"""A source as a stream of parts of a table: a file, a set of the hub, or rows in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bough.data.tables import PART, Skipped, Table, Wanted, first_line, needs_hub_extra, parts
from bough.disk_cache import DiskCache
from bough.errors import UserError, nearest, shorten
from bough.recipe.labels import class_name
from bough.recipe.sources import Hub, Record
from bough.user_paths import place

ROW = 100  # bytes of a row whose size is not known, about


@dataclass(frozen=True)
class Stream:
    """A table in parts of rows that follow each other, so that it may be of any size.

    Where a column may be missing in a row (JSON), a part has every wanted column, and its names are
    those found so far.
    """

    source: str
    size: int  # in bytes, about
    tables: Callable[[], Iterator[Table]]  # each time from the first part on
    digest: Callable[[DiskCache], str | None]  # what its content is known by, if by anything


def open_table(
    source: str | Hub | tuple[Record, ...], wanted: Wanted, root: Path, origin: str
) -> Table:
    """All of what a recipe names as a source; rows in memory have no name but `origin`."""
    return _joined(stream(source, wanted, root, origin).tables())


def stream(
    source: str | Hub | tuple[Record, ...], wanted: Wanted, root: Path, origin: str
) -> Stream:
    """The same part by part."""
    if isinstance(source, str):
        path = place(source, root)
        # os.path says no to a name that the system does not take, where a Path raises.
        size = os.path.getsize(path) if os.path.exists(path) else 0
        tables = partial(parts, path, wanted)
        return Stream(str(path), size, tables, lambda cache: cache.file_digest(path))
    if isinstance(source, Hub):
        return _hub(source, wanted, root)
    tables = partial(_memory, source, wanted, origin)
    return Stream(origin, ROW * len(source), tables, lambda cache: None)


def _joined(tables: Iterable[Table]) -> Table:
    every = list(tables)
    last = every[-1]
    return replace(
        last,
        columns={
            name: [cell for part in every for cell in part.columns[name]]
            for name in last.columns
            if name in last.names
        },
        lines=[line for part in every for line in part.lines],
        broken=tuple(row for part in every for row in part.broken),
    )


def _hub(source: Hub, wanted: Wanted, root: Path) -> Stream:
    try:
        import datasets
    except ImportError:
        raise needs_hub_extra(f"{source.hub} is a hub set") from None
    for ours in source.columns:
        if ours not in wanted.names:
            raise UserError(
                f"hub set {source.hub}: `columns` names {ours!r}, which the task does not read "
                f"({', '.join(wanted.names)}){nearest(ours, wanted.names)}"
            )
    folder = place(source.hub, root)
    path = str(folder) if folder.is_dir() else source.hub
    origin = f"hub set {path}{f' ({source.config})' if source.config else ''}, split {source.split}"
    try:
        rows = datasets.load_dataset(path, source.config, split=source.split)
    # The library raises what its loaders, the network and the file system happen to raise.
    except Exception as fault:
        raise UserError(
            f"{origin} cannot be loaded: {first_line(fault)}; check the name, the split and the "
            "network, or name a local folder"
        ) from None
    theirs = {name: source.columns.get(name, name) for name in wanted.names}
    present = {ours: name for ours, name in theirs.items() if name in rows.column_names}
    for ours in source.columns:
        if ours not in present:
            raise UserError(
                f"{origin}: there is no column {theirs[ours]!r}, only "
                + ", ".join(rows.column_names)
                + nearest(theirs[ours], rows.column_names)
            )
    label = present.get(wanted.label) if wanted.classes else None
    classes, tags = _class_names(source, rows, label)
    back = {name: ours for ours, name in present.items()}
    names = tuple(back.get(name, name) for name in rows.column_names)

    def tables() -> Iterator[Table]:
        chosen = rows.select_columns(sorted(set(present.values()))).with_format("arrow")
        for start in range(0, max(1, len(rows)), PART):
            arrow = chosen[start : start + PART]
            columns = {ours: arrow.column(name).to_pylist() for ours, name in present.items()}
            if tags is not None:
                columns[wanted.label] = [
                    cell and [_class_of(tag, tags) for tag in cell]
                    for cell in columns[wanted.label]
                ]
            if classes is not None and wanted.label in columns:
                columns[wanted.label] = [_class_of(c, classes) for c in columns[wanted.label]]
            end = min(start + PART, len(rows))
            lines = list(range(start + 1, end + 1))
            share = end / max(1, len(rows))
            yield Table(origin, "row", names, columns, lines, classes=classes, share=share)

    size = rows.dataset_size or ROW * len(rows)
    print_of = getattr(rows, "_fingerprint", None)  # of the content and of what was done to it
    # What the recipe makes of the same content: other columns, other names of the classes.
    known = print_of and json.dumps([print_of, theirs, classes, tags])
    return Stream(origin, size, tables, lambda cache: known)


def _class_names(
    source: Hub, rows: Any, label: str | None
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """What the numbers in a set's label column stand for: classes, or tags of words."""
    import datasets

    classes, tags = source.labels, None
    if label is not None:
        feature = rows.features[label]
        if classes is None and isinstance(feature, datasets.ClassLabel):
            classes = tuple(feature.names)
        of_words = getattr(feature, "feature", None)
        if isinstance(of_words, datasets.ClassLabel):  # a list of them in each row
            tags = tuple(of_words.names)
        if classes is not None:
            classes = tuple(map(class_name, classes))
    return classes, tags


def _class_of(cell: object, classes: Sequence[str]) -> object:
    """The name of a numbered class; -1 is how hub sets write a hidden label."""
    if not isinstance(cell, int):
        return cell
    if cell == -1:
        return None
    return classes[cell] if 0 <= cell < len(classes) else cell


def _memory(source: tuple[Record, ...], wanted: Wanted, origin: str) -> Iterator[Table]:
    """Rows written out: dicts by name, tuples by place: the texts, then the label."""
    if not source:
        raise UserError(f"{origin}: there are no rows; give at least one")
    fields = (*wanted.texts, wanted.label)
    names: dict[str, None] = {}
    for start in range(0, len(source), PART):
        rows: list[dict[str, Any]] = []
        lines: list[int] = []
        broken: list[Skipped] = []
        for number, row in enumerate(source[start : start + PART], start + 1):
            if isinstance(row, dict):
                rows.append(row)
            elif len(row) in (len(fields), len(wanted.texts)):
                rows.append(dict(zip(fields, row, strict=False)))
            else:
                why = f"the row has {len(row)} fields; expected {', '.join(fields)}"
                broken.append(Skipped(origin, number, "", shorten(row), why))
                continue
            lines.append(number)
        names |= dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in wanted.names}
        share = (start + PART) / len(source)
        yield Table(origin, "row", tuple(names), columns, lines, tuple(broken), share=share)
